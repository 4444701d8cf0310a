#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_format.h"
#include "client/cli/commands.h"

namespace cairn {

int Fail(const absl::Status& status) {
  absl::FPrintF(stderr, "cairn: %s\n", status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition: return kExitUsage;
    default: return kExitFailed;
  }
}

int CloseOutput(int code) {
  const bool lost = std::ferror(stdout) != 0;  // some of it, earlier
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && !lost) return code;
  std::fprintf(stderr, "cairn: standard output cannot be written%s%s\n", flushed ? "" : ": ",
               flushed ? "" : std::strerror(errno));
  return code == kExitOk ? kExitFailed : code;
}

}  // namespace cairn
