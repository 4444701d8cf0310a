#include "coordinator/core/options.h"

#include "absl/strings/str_format.h"

namespace cairn {
namespace {

absl::Status InRange(const char* name, absl::Duration value, absl::Duration low, absl::Duration high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s: %s is not between %s and %s", name,
                                                    absl::FormatDuration(value), absl::FormatDuration(low),
                                                    absl::FormatDuration(high)));
}

absl::Status InRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s: %d is not between %d and %d", name, value, low, high));
}

}  // namespace

absl::Status CoordinatorOptions::Validate() const {
  CAIRN_RETURN_IF_ERROR(InRange("heartbeat_interval", heartbeat_interval, absl::Milliseconds(10), absl::Minutes(1)));
  CAIRN_RETURN_IF_ERROR(
      InRange("lease (at least 3 heartbeat intervals)", lease, 3 * heartbeat_interval, absl::Minutes(10)));
  CAIRN_RETURN_IF_ERROR(InRange("reopen_grace (at most the lease)", reopen_grace, absl::ZeroDuration(), lease));
  CAIRN_RETURN_IF_ERROR(InRange("start_grace (at least reopen_grace)", start_grace, reopen_grace, absl::Minutes(10)));
  CAIRN_RETURN_IF_ERROR(InRange("copies_grace", copies_grace, absl::ZeroDuration(), absl::Minutes(10)));
  CAIRN_RETURN_IF_ERROR(InRange("inspect_timeout", inspect_timeout, absl::Milliseconds(1), absl::Hours(1)));
  CAIRN_RETURN_IF_ERROR(InRange("finalize_timeout", finalize_timeout, absl::Milliseconds(1), absl::Hours(1)));
  CAIRN_RETURN_IF_ERROR(InRange("report_grace", report_grace, absl::ZeroDuration(), absl::Minutes(1)));
  CAIRN_RETURN_IF_ERROR(InRange("max-job-parameters", job_parameters_max, 1, kParametersMax));
  CAIRN_RETURN_IF_ERROR(InRange("attempts_max", attempts_max, 1, 100));
  CAIRN_RETURN_IF_ERROR(InRange("finalize_attempts_max", finalize_attempts_max, 1, 100));
  CAIRN_RETURN_IF_ERROR(InRange("dead_nodes_kept.most", dead_nodes_kept.most, 0, 4096));
  CAIRN_RETURN_IF_ERROR(InRange("evaluations_max", evaluations_max, 1, 10000));
  return InRange("evaluate_shards_max", evaluate_shards_max, 1, 4096);
}

}  // namespace cairn
