#include "worker/core/partition_frames.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/learning_rate.h"
#include "common/model/loss_scale.h"
#include "common/tensor/dtype.h"

namespace cairn::replica {

Frame PartitionFrames::MakeFrame(v1::ExchangeFrame::Kind kind, uint32_t partition) const {
  Frame frame;
  frame.kind = kind;
  frame.job = assignment_.job;
  frame.partition = PartitionId(partition);
  frame.reply_dtype = job_.values;
  return frame;
}

Frame PartitionFrames::MakePull(uint32_t partition) const { return MakeFrame(v1::ExchangeFrame::PULL, partition); }

Frame PartitionFrames::MakePush(uint32_t partition, const TreeNode& node, int64_t step, uint64_t examples,
                                const Buffer& gradient, bool packed) const {
  const Part& part = assignment_.parts[partition];
  Frame frame = MakeFrame(v1::ExchangeFrame::PUSH, partition);
  frame.generation = assignment_.generation;
  frame.replica_first = ReplicaId(static_cast<int32_t>(node.first));
  frame.replica_count = node.count;
  frame.sequence = static_cast<uint64_t>(step) + 1;
  frame.examples = examples;
  frame.learning_rate = schedule_.rates.At(step);
  frame.ema_overwrite =
      EmaOverwritesAfter(job_.spec.optimizer(), step, schedule_.plan.steps_per_epoch * job_.spec.epochs());
  frame.dtype = job_.wire;
  if (examples > 0) {
    if (job_.wire == v1::FLOAT32 || packed) {
      frame.payload = gradient.Slice(BytesOf(job_.wire, part.range.begin()), BytesOf(job_.wire, part.numbers()));
    } else {
      const GradientRounding rounding = RoundingOf(partition, step);
      frame.payload = Buffer::Allocate(PackedBytes(rounding, part.numbers()));
      PackRounded(rounding, node, gradient.floats().subspan(part.range.begin(), part.numbers()),
                  {frame.payload.mutable_data(), frame.payload.size()});
    }
  }
  frame.payload_total = frame.payload.size();
  return frame;
}

Frame PartitionFrames::MakeClip(uint32_t partition, int64_t step, std::string factors, uint64_t norms_xxh3) const {
  Frame frame = MakeFrame(v1::ExchangeFrame::CLIP, partition);
  frame.generation = assignment_.generation;
  frame.sequence = static_cast<uint64_t>(step) + 1;
  frame.scalars = std::move(factors);
  frame.norms_xxh3 = norms_xxh3;
  return frame;
}

GradientRounding PartitionFrames::RoundingOf(uint32_t partition, int64_t step) const {
  return {job_.wire, job_.spec.seed(), static_cast<uint64_t>(step) + 1,
          static_cast<int64_t>(assignment_.parts[partition].range.begin()), &job_.layout};
}

GradientRounding PartitionFrames::ValuesOf(uint32_t partition, v1::DataType type) const {
  return ValuesRounding(type, static_cast<int64_t>(assignment_.parts[partition].range.begin()), job_.layout);
}

absl::Status PartitionFrames::CheckLossScale(const Frame& frame) const {
  if (!job_.has_loss_scale || IsLossScale(frame.loss_scale)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the answer says ", frame.loss_scale, " of the loss scale; use a newer ps"));
}

absl::Status PartitionFrames::CheckValues(const Frame& frame, uint32_t partition) const {
  if (frame.kind != v1::ExchangeFrame::VALUES) return absl::UnavailableError("the answer holds no values");
  if (frame.partition.value != partition) return absl::UnavailableError("the answer is of another partition");
  const size_t numbers = assignment_.parts[partition].numbers();
  if (!IsValuesType(frame.dtype) || frame.payload.size() != PackedBytes(ValuesOf(partition, frame.dtype), numbers)) {
    return absl::UnavailableError(absl::StrCat("partition ", partition, ": ", frame.payload.size(),
                                               " bytes of values, expected ", numbers, " numbers"));
  }
  return CheckLossScale(frame);
}

void PartitionFrames::CopyValues(const Frame& frame, Buffer& into) const {
  const Part& part = assignment_.parts[frame.partition.value];
  UnpackRounded(ValuesOf(frame.partition.value, frame.dtype), {frame.payload.data(), frame.payload.size()},
                into.mutable_floats().subspan(part.range.begin(), part.numbers()));
}

}  // namespace cairn::replica
