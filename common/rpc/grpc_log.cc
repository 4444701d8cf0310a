#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/log.h"

namespace cairn {
namespace {

void Write(gpr_log_func_args* args) {
  static absl::Mutex& mutex = *new absl::Mutex;
  static GrpcLogGate& gate = *new GrpcLogGate;
  std::optional<std::string> text;
  {
    absl::MutexLock lock(&mutex);
    text = gate.Pass(absl::StrCat(args->file, ":", args->line), args->message, absl::Now());
  }
  if (!text.has_value()) return;
  args->severity == GPR_LOG_SEVERITY_ERROR ? LogWarning("gRPC: %s", *text) : LogDebug("gRPC: %s", *text);
}

}  // namespace

void LogOfGrpc() { gpr_set_log_function(Write); }

void SilenceGrpc() {
  gpr_set_log_function([](gpr_log_func_args*) {});
}

std::optional<std::string> GrpcLogGate::Pass(std::string_view place, std::string_view message, absl::Time now) {
  const auto found = places_.find(absl::string_view(place.data(), place.size()));
  const absl::Duration since = found == places_.end() ? absl::InfiniteDuration() : now - found->second.written;
  if (since < kGrpcLogEvery && since >= absl::ZeroDuration()) {  // a wall clock may be set back
    ++found->second.held;
    return std::nullopt;
  }
  const int64_t held = found == places_.end() ? 0 : found->second.held;
  places_[std::string(place)] = {.written = now};
  std::string text = absl::StrCat(std::string(message), " (", std::string(place.substr(place.rfind('/') + 1)));
  if (held > 0)
    absl::StrAppendFormat(&text, ", %d times more in the %s before", held,
                          absl::FormatDuration(absl::Trunc(since, absl::Seconds(1))));
  return text + ")";
}

}  // namespace cairn
