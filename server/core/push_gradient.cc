#include "server/core/push_gradient.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tensor/dtype.h"
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
  if (f.ema_overwrite && !config.optimizer.ema) return bad("ema_overwrite: the job keeps no moving average");
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
  const size_t bytes = config.GradientBytes(f.dtype);
  if (bytes == 0)
    return bad("dtype: ", static_cast<int>(f.dtype), " is not known; use FLOAT32, BFLOAT16, FLOAT16 or INT8");
  if (f.payload.size() != bytes) {
    return bad("payload: ", f.payload.size(), " bytes, but ", config.Name(), " has ", config.size(), " numbers (",
               bytes, " bytes as ", v1::DataType_Name(f.dtype), ")");
  }
  return absl::OkStatus();
}

Buffer TakeGradient(const PartitionConfig& config, Frame& push) {
  if (push.examples == 0) return {};
  Buffer out = std::exchange(push.payload, {});
  const bool aligned = reinterpret_cast<uintptr_t>(out.data()) % alignof(float) == 0;
  const GradientRounding rounding = config.RoundingOf(push.sequence), sent_as = rounding.As(push.dtype);
  const bool rounds =
      !rounding.exact() &&
      (push.dtype != config.wire || !IsRounded(sent_as, {out.data(), out.size()}, static_cast<size_t>(config.size())));
  if (push.dtype != v1::FLOAT32 || !aligned || (rounds && !out.unique())) {
    const Buffer sent = std::move(out);
    out = Buffer::Allocate(static_cast<size_t>(config.size()) * sizeof(float));
    UnpackRounded(sent_as, {sent.data(), sent.size()}, out.mutable_floats());
  }
  if (rounds) {
    RoundGradient(rounding, {static_cast<uint32_t>(push.replica_first.value), push.replica_count},
                  out.mutable_floats());
  }
  return out;
}

Buffer AddPenalties(const PartitionConfig& config, const PartitionState& state, uint64_t examples, Buffer gradient) {
  if (config.penalties.empty() || gradient.empty()) return gradient;
  if (!gradient.unique()) gradient = Buffer::CopyOf(gradient.data(), gradient.size());
  AddPenaltyGradient(config.penalties, examples, state.values.floats(), gradient.mutable_floats());
  return gradient;
}

}  // namespace cairn
