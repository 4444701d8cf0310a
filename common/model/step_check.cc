#include "common/model/step_check.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/model/given.h"
#include "common/model/loss_scale.h"
#include "common/model/type_text.h"

namespace cairn {
namespace {

absl::Status ResolveComputeType(v1::JobSpec* spec) {
  switch (spec->compute_dtype()) {
    case v1::DATA_TYPE_UNSPECIFIED: spec->set_compute_dtype(v1::FLOAT32); break;
    case v1::FLOAT32:
    case v1::BFLOAT16:
    case v1::FLOAT16: break;
    default:
      return Bad("compute_dtype: ", TypeText(spec->compute_dtype()),
                 " is not a type to compute with; use FLOAT32, BFLOAT16 or FLOAT16");
  }
  if (spec->device() == v1::DEVICE_UNSPECIFIED) spec->set_device(v1::ANY);
  if (!v1::Device_IsValid(spec->device()))
    return Bad("device: ", static_cast<int>(spec->device()), " is not known; use ANY, CPU or GPU");
  if (spec->compute_dtype() == v1::FLOAT16 && spec->device() == v1::CPU) {
    return Bad("device: CPU does not compute compute_dtype FLOAT16; use GPU, or BFLOAT16 or FLOAT32");
  }
  return ResolveLossScaling(spec);
}

// examples: as in CheckStepAgainstData. The counts are positive.
absl::Status CheckTotalSteps(const v1::JobSpec& spec, int64_t examples) {
  const int64_t batch = int64_t{spec.batch_size()} * std::max(1, spec.accumulate_steps());
  const int64_t steps = spec.steps_per_epoch() > 0 ? spec.steps_per_epoch() : (examples + batch - 1) / batch;
  if (steps <= std::numeric_limits<int64_t>::max() / spec.epochs()) return absl::OkStatus();
  return Bad("epochs: ", spec.epochs(), " of ", steps, " steps are more than can be counted; use fewer");
}

}  // namespace

absl::Status ResolveStep(v1::JobSpec* spec) {
  CAIRN_RETURN_IF_ERROR(AtLeastOne("accumulate_steps", spec->has_accumulate_steps(), spec->accumulate_steps(), "1"));
  if (!spec->has_accumulate_steps()) spec->set_accumulate_steps(1);
  const int64_t examples = int64_t{spec->batch_size()} * spec->accumulate_steps();
  if (examples > kBatchSizeMax) {
    return Bad("accumulate_steps: ", spec->accumulate_steps(), " batches of ", spec->batch_size(), " make steps of ",
               examples, " examples, above the limit of ", kBatchSizeMax, "; use fewer");
  }
  return ResolveComputeType(spec);
}

absl::Status CheckStepAgainstData(const v1::JobSpec& spec, int64_t examples, const std::string& path) {
  if (int64_t{spec.batch_size()} * spec.accumulate_steps() <= examples) return CheckTotalSteps(spec, examples);
  return Bad("accumulate_steps: ", spec.accumulate_steps(), " batches of ", spec.batch_size(), " are more than the ",
             examples, " training examples of ", path, "; use fewer");
}

absl::Status CheckStepCounts(const v1::JobSpec& spec, uint64_t train_examples) {
  const auto check = [](const char* field, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return absl::OkStatus();
    return Bad(field, ": ", value, " is not within ", least, " .. ", most);
  };
  constexpr int64_t kAny = std::numeric_limits<int32_t>::max();
  CAIRN_RETURN_IF_ERROR(check("replicas", spec.replicas(), 1, kReplicasMax));
  CAIRN_RETURN_IF_ERROR(check("batch_size", spec.batch_size(), spec.replicas(), kBatchSizeMax));
  CAIRN_RETURN_IF_ERROR(check("epochs", spec.epochs(), 1, kAny));
  CAIRN_RETURN_IF_ERROR(check("steps_per_epoch", spec.steps_per_epoch(), 0, kAny));
  CAIRN_RETURN_IF_ERROR(check("accumulate_steps", spec.accumulate_steps(), 0, kBatchSizeMax / spec.batch_size()));
  if (train_examples < 1 || train_examples > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / 2)
    return Bad("data: ", train_examples, " training examples, but there is at least one, and fewer than 2^62");
  return CheckTotalSteps(spec, static_cast<int64_t>(train_examples));
}

}  // namespace cairn
