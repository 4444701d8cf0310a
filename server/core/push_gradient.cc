#include "server/core/push_gradient.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/core/limits.h"

namespace cairn {

absl::Status CheckPush(const PartitionConfig& config, const Frame& f) {
  const auto bad = [](auto... what) { return absl::InvalidArgumentError(absl::StrCat(what...)); };
  const TreeNode node{static_cast<uint32_t>(f.replica_first.value), f.replica_count};
  if (f.replica_first.value < 0 || !IsNode(node, config.replicas)) {
    return bad("replica_first ", f.replica_first.value, ", replica_count ", f.replica_count,
               ": not a node of the summation tree of ", config.replicas, " replicas");
  }
  if (config.mode != UpdateMode::kSynchronous && f.replica_count != 1) {
    return bad("replica_count ", f.replica_count, ": an asynchronous job takes one replica a push");
  }
  if (f.sequence == 0) return bad("sequence: 0; the first update of a replica is 1");
  if (!std::isfinite(f.learning_rate) || f.learning_rate < 0) {
    return bad("learning_rate: ", f.learning_rate, " is not a number >= 0");
  }
  if (f.ema_overwrite && !config.kind->keeps_average()) return bad("ema_overwrite: the job keeps no moving average");
  if (config.loss_scale ? !IsLossScale(f.loss_scale) : f.loss_scale != 0 || f.not_finite) {
    return bad("loss_scale: ", f.loss_scale,
               config.loss_scale ? ", but the job computes in FLOAT16; say the scale of its gradient, 1 to 2^24"
                                 : ", but the job has none");
  }
  if (f.not_finite && config.mode == UpdateMode::kSynchronous) {
    return bad("not_finite: a synchronous job pushes its gradients as they are");
  }
  if (f.not_finite && f.examples > 0)
    return bad("not_finite: the gradient is left out; send examples = 0 and no payload");
  if (f.examples > kPushExamplesMax) return bad("examples: ", f.examples, " is more than ", kPushExamplesMax);
  if (f.examples == 0) {
    if (!f.payload.empty()) return bad("payload: ", f.payload.size(), " bytes with examples = 0; send none");
    return absl::OkStatus();
  }
  return config.kind->CheckPayload(config, f);
}

Buffer TakeGradient(const PartitionConfig& config, Frame& push) {
  return push.examples == 0 ? Buffer() : config.kind->TakeGradient(config, push);
}

}  // namespace cairn
