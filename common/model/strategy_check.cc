#include "common/model/strategy_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/model/fault_check.h"
#include "common/model/given.h"

namespace cairn {
namespace {

absl::Status CheckCentralStorage(const v1::JobSpec& spec) {
  if (spec.strategy() != v1::CENTRAL_STORAGE) return absl::OkStatus();
  if (spec.backup_replicas() > 0) {
    return Bad(
        "backup_replicas: not with strategy CENTRAL_STORAGE, whose steps need values that the others would have "
        "left behind; leave it out, or use MULTI_WORKER_MIRRORED");
  }
  return absl::OkStatus();
}

absl::Status CheckLocalSync(const v1::JobSpec& spec) {
  const int32_t group = spec.local_sync();
  CAIRN_RETURN_IF_ERROR(AtLeastOne("local_sync", spec.has_local_sync(), group, "1"));
  if (group <= 1) return absl::OkStatus();
  if (spec.strategy() != v1::PARAMETER_SERVER) {
    return Bad("local_sync: only for strategy PARAMETER_SERVER, not ", v1::Strategy_Name(spec.strategy()),
               ", whose replicas are all in step; leave it out");
  }
  if (IsSynchronous(spec)) {
    return Bad("local_sync: with staleness_bound 0 all replicas are in step; leave it out, or the bound");
  }
  if (spec.replicas() == 0) {
    return Bad("local_sync: ", group, " needs to know the number of replicas; set replicas to a multiple of it");
  }
  if (spec.replicas() % group != 0) {
    return Bad("local_sync: ", group, " does not divide the ", spec.replicas(),
               " replicas; use a divisor, or replicas: ", (spec.replicas() + group - 1) / group * group);
  }
  return absl::OkStatus();
}

absl::Status CheckValidation(const v1::JobSpec& spec) {
  if (spec.validation_freq_steps() < 0) {
    return Bad("validation_freq_steps: ", spec.validation_freq_steps(), " is negative; use 1 or more, or leave it out");
  }
  if (!v1::ValidationBy_IsValid(spec.validation_by())) {
    return Bad("validation_by: ", static_cast<int>(spec.validation_by()),
               " is not known; use BY_REPLICAS or BY_EVALUATOR");
  }
  if (spec.validation_by() != v1::BY_EVALUATOR) return absl::OkStatus();
  if (!spec.has_checkpoints()) {
    return Bad("validation_by: BY_EVALUATOR evaluates checkpoints, but the job writes none; set checkpoints.dir");
  }
  if (spec.validation_freq_steps() > 0) {
    return Bad("validation_freq_steps: an evaluator evaluates every checkpoint; set checkpoints.every_steps: ",
               spec.validation_freq_steps(), " instead, or validation_by: BY_REPLICAS");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStrategyOptions(const v1::JobSpec& spec) {
  CAIRN_RETURN_IF_ERROR(CheckCentralStorage(spec));
  CAIRN_RETURN_IF_ERROR(CheckLocalSync(spec));
  return CheckValidation(spec);
}

absl::Status CheckStrategyAgainstData(const v1::JobSpec& spec, const v1::DataInfo& data) {
  if (data.validation_examples() > 0) return absl::OkStatus();
  const char* field = spec.validation_by() == v1::BY_EVALUATOR ? "validation_by"
                      : spec.validation_freq_steps() > 0       ? "validation_freq_steps"
                                                               : nullptr;
  if (field == nullptr) return absl::OkStatus();
  return Bad(field, ": ", data.path(), " has no validation examples; set data.validation_split, or leave it out");
}

int32_t LocalSyncOf(const v1::JobSpec& spec) { return std::max(1, spec.local_sync()); }

}  // namespace cairn
