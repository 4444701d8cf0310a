// The dense kind of partition: a range of the parameter space as float32 numbers, and optimizer slots of the same size.
//
// Gradients are summed as float32 numbers of the range, rounded at each node of the summation tree as the job's wire
// type says (common/tensor/gradient_rounding.h).
//
// DenseKind: any thread. DenseContents: not thread-safe. Invariants, in addition to those of partition_kind.h:
//   1. The bytes of values() and previous() are never written to. An update writes the new values over the gradient's
//      buffer (if it is not shared) and keeps the old ones as previous(), so that a partition owns values + slots +
//      max(previous, the gradients of the open step), and an update allocates nothing.
//   2. Slots that an image shares are copied before they are written to.
//   3. Values in another type are converted once between two updates, for all requests.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/model/constraint.h"
#include "common/model/penalty.h"
#include "common/model/spectral.h"
#include "common/tensor/gradient_rounding.h"
#include "server/core/optimizer.h"
#include "server/core/partition_state.h"

namespace cairn {

struct DenseConfig {
  std::vector<Segment> segments;
  OptimizerRule optimizer;
  v1::DataType wire = v1::FLOAT32;  // gradients are rounded to it at every node of the summation tree
  GradientLayout layout;
  // The gradients of these penalties are added to each sum (synchronous) or push, before it is clipped.
  std::vector<PenaltyRange> penalties;
  std::vector<ConstraintRange> constraints;           // of the values that an update leaves
  std::vector<SpectralRange> spectral;                // divided before a step uses them, and before its update
  std::function<void(absl::Span<float>)> initialize;  // fills in the values of version 0
};

class DenseKind : public PartitionKind {
 public:
  explicit DenseKind(DenseConfig dense) : dense_(std::make_shared<const DenseConfig>(std::move(dense))) {}
  const DenseConfig& dense() const { return *dense_; }
  // The dense configuration of a dense partition.
  static const DenseConfig& Of(const PartitionConfig& config);

  // The result refers to this object.
  GradientRounding RoundingOf(const PartitionSettings& settings, uint64_t sequence) const;
  size_t GradientBytes(const PartitionSettings& settings, v1::DataType dtype) const;

  absl::Status CheckPayload(const PartitionSettings& settings, const Frame& push) const override;
  // The payload itself if it is float32 and rounded; else it is converted, or copied if it is misaligned. A client may
  // send another type than the job's, and blocks that are not packed.
  Buffer TakeGradient(const PartitionSettings& settings, Frame& push) const override;
  Buffer Merge(const PartitionSettings& settings, uint64_t sequence, const TreeNode& node, Buffer left,
               Buffer right) const override;
  NormRecord Measure(const ClipScope& scope, const Buffer& gradient, uint64_t examples) const override;
  void Scale(const ClipScope& scope, double factor, Buffer& gradient) const override;
  bool keeps_average() const override { return dense_->optimizer.ema; }

  // The type in which an update's gradient is exact: that of the sum, if nothing is done to the sum afterwards.
  v1::DataType LogDtype(const PartitionSettings& settings) const override;
  absl::Status CheckPacked(const PartitionSettings& settings, v1::DataType dtype, size_t bytes) const override;
  Buffer Pack(const PartitionSettings& settings, const v1::LogEntry& entry, const Buffer& gradient) const override;
  Buffer Unpack(const PartitionSettings& settings, const v1::LogEntry& entry, Buffer packed) const override;
  size_t PackedBytes(const PartitionSettings& settings, const v1::LogEntry& entry,
                     const Buffer& gradient) const override;

  absl::StatusOr<Buffer> TakeQuery(const PartitionSettings& settings, Frame& pull) const override;

  std::unique_ptr<PartitionContents> MakeInitial(const PartitionSettings& settings) const override;
  std::unique_ptr<PartitionContents> MakeEmpty() const override;
  std::unique_ptr<PartitionContents> MakeFrom(const PartitionSettings& settings, const Image& image) const override;

  absl::Status CheckHeader(const PartitionSettings& settings, const v1::PartitionImage& header,
                           size_t tensors) const override;
  absl::Status CheckTensor(const PartitionSettings& settings, size_t tensor, size_t bytes) const override;
  ImageParts PartsOf(const v1::PartitionImage& header, size_t tensors) const override;

 private:
  std::shared_ptr<const DenseConfig> dense_;
};

class DenseContents : public PartitionContents {
 public:
  explicit DenseContents(std::shared_ptr<const DenseConfig> dense) : dense_(std::move(dense)) {}  // empty
  DenseContents(std::shared_ptr<const DenseConfig> dense, Buffer values, std::vector<Buffer> slots,
                Buffer previous = {})
      : dense_(std::move(dense)),
        values_(std::move(values)),
        slots_(std::move(slots)),
        previous_(std::move(previous)) {}
  // The contents of a dense partition.
  static const DenseContents& Of(const PartitionState& state);

  const Buffer& values() const { return values_; }
  const std::vector<Buffer>& slots() const { return slots_; }
  const Buffer& previous() const { return previous_; }  // empty if not kept

  Buffer AddPenalties(const PartitionSettings& settings, uint64_t examples, Buffer gradient) const override;
  void Apply(const PartitionSettings& settings, const v1::LogEntry& entry, uint64_t step, Buffer gradient) override;
  bool trainable(const PartitionSettings& settings) const override;
  Buffer Read(const PartitionSettings& settings, const ValuesQuery& query) override;
  bool has_previous() const override { return !previous_.empty(); }
  // Drops the converted values too: a push for the next update was accepted.
  void ForgetPrevious() override;
  // Tensors: values, each slot, and the values of version - 1.
  void AddTo(const ImageParts& parts, Image& image) const override;
  size_t image_bytes() const override { return values_.size() * (1 + slots_.size()); }
  bool empty() const override { return values_.empty(); }
  void Clear() override;

 private:
  // The values of the partition in another type.
  Buffer Convert(const PartitionSettings& settings, const Buffer& values, v1::DataType dtype) const;
  void ForgetConverted();
  Buffer UsedValues() const;  // those that the workers compute a step's gradients with

  std::shared_ptr<const DenseConfig> dense_;
  Buffer values_;
  std::vector<Buffer> slots_;
  Buffer previous_;      // values of version - 1
  Buffer converted_[3];  // values_ as BFLOAT16, FLOAT16, INT8
};

// The gradient of a node from those of its two sides, in float32, rounded: the same bits for either order of the sides.
Buffer MergeGradients(const GradientRounding& rounding, const TreeNode& node, Buffer left, Buffer right);

}  // namespace cairn
