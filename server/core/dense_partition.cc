#include "server/core/dense_partition.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/core/partition_image.h"

namespace cairn {
namespace {

bool IsAligned(const Buffer& floats) { return reinterpret_cast<uintptr_t>(floats.data()) % alignof(float) == 0; }

size_t NumbersBytes(const PartitionSettings& settings) { return static_cast<size_t>(settings.size()) * sizeof(float); }

}  // namespace

const DenseConfig& DenseKind::Of(const PartitionConfig& config) {
  const auto* kind = dynamic_cast<const DenseKind*>(config.kind.get());
  CAIRN_CHECK(kind != nullptr, "the partition is of another kind");
  return *kind->dense_;
}

const DenseContents& DenseContents::Of(const PartitionState& state) {
  const auto* contents = dynamic_cast<const DenseContents*>(state.contents.get());
  CAIRN_CHECK(contents != nullptr, "the partition is of another kind");
  return *contents;
}

// ---- gradients as clients push them ----

GradientRounding DenseKind::RoundingOf(const PartitionSettings& settings, uint64_t sequence) const {
  return {dense_->wire, settings.seed, sequence, settings.begin, &dense_->layout};
}

size_t DenseKind::GradientBytes(const PartitionSettings& settings, v1::DataType dtype) const {
  return cairn::PackedBytes(RoundingOf(settings, 0).As(dtype), static_cast<size_t>(settings.size()));
}

absl::Status DenseKind::CheckPayload(const PartitionSettings& settings, const Frame& push) const {
  const size_t bytes = GradientBytes(settings, push.dtype);
  if (bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dtype: ", static_cast<int>(push.dtype), " is not known; use FLOAT32, BFLOAT16, FLOAT16, INT8, INT4 or INT2"));
  }
  if (push.payload.size() != bytes) {
    return absl::InvalidArgumentError(absl::StrCat("payload: ", push.payload.size(), " bytes, but ", settings.Name(),
                                                   " has ", settings.size(), " numbers (", bytes, " bytes as ",
                                                   v1::DataType_Name(push.dtype), ")"));
  }
  return absl::OkStatus();
}

Buffer DenseKind::TakeGradient(const PartitionSettings& settings, Frame& push) const {
  Buffer out = std::exchange(push.payload, {});
  const GradientRounding rounding = RoundingOf(settings, push.sequence), sent_as = rounding.As(push.dtype);
  const bool rounds =
      !rounding.exact() && (push.dtype != dense_->wire ||
                            !IsRounded(sent_as, {out.data(), out.size()}, static_cast<size_t>(settings.size())));
  if (push.dtype != v1::FLOAT32 || !IsAligned(out) || (rounds && !out.unique())) {
    const Buffer sent = std::move(out);
    out = Buffer::Allocate(NumbersBytes(settings));
    UnpackRounded(sent_as, {sent.data(), sent.size()}, out.mutable_floats());
  }
  if (rounds) {
    RoundGradient(rounding, {static_cast<uint32_t>(push.replica_first.value), push.replica_count},
                  out.mutable_floats());
  }
  return out;
}

Buffer MergeGradients(const GradientRounding& rounding, const TreeNode& node, Buffer left, Buffer right) {
  // x + y and y + x have the same bits, so either buffer may be reused.
  if (!left.unique() && right.unique()) std::swap(left, right);
  if (!left.unique()) left = Buffer::CopyOf(left.data(), left.size());
  SumInto(rounding, node, left.mutable_floats(), right.floats());
  return left;
}

Buffer DenseKind::Merge(const PartitionSettings& settings, uint64_t sequence, const TreeNode& node, Buffer left,
                        Buffer right) const {
  return MergeGradients(RoundingOf(settings, sequence), node, std::move(left), std::move(right));
}

NormRecord DenseKind::Measure(const ClipScope& scope, const Buffer& gradient, uint64_t examples) const {
  return MeasureNorm(scope, gradient.empty() ? absl::Span<const float>() : gradient.floats(), examples);
}

void DenseKind::Scale(const ClipScope& scope, double factor, Buffer& gradient) const {
  ScaleGradient(scope, factor, gradient.mutable_floats());
}

// ---- gradients as they are logged ----

v1::DataType DenseKind::LogDtype(const PartitionSettings& settings) const {
  return dense_->penalties.empty() && settings.clip_norm == 0 ? dense_->wire : v1::FLOAT32;
}

absl::Status DenseKind::CheckPacked(const PartitionSettings& settings, v1::DataType dtype, size_t bytes) const {
  const size_t expected = GradientBytes(settings, dtype);
  if (expected == 0) {
    return absl::DataLossError(absl::StrCat("is of type ", static_cast<int>(dtype),
                                            ", which is not known; a newer cairn-ps wrote it, use that one"));
  }
  if (bytes != expected) {
    return absl::DataLossError(absl::StrCat("has ", bytes, " bytes, expected ", expected,
                                            ": it is damaged, or a cairn-ps of another version wrote it"));
  }
  return absl::OkStatus();
}

Buffer DenseKind::Pack(const PartitionSettings& settings, const v1::LogEntry& entry, const Buffer& gradient) const {
  const v1::DataType dtype = DtypeOf(entry);
  if (dtype == v1::FLOAT32 || gradient.empty()) return gradient;
  Buffer packed = Buffer::Allocate(GradientBytes(settings, dtype));
  PackRounded(RoundingOf(settings, entry.sequence()).As(dtype), {entry.replica_first(), entry.replica_count()},
              gradient.floats(), {packed.mutable_data(), packed.size()});
  return packed;
}

Buffer DenseKind::Unpack(const PartitionSettings& settings, const v1::LogEntry& entry, Buffer packed) const {
  const v1::DataType dtype = DtypeOf(entry);
  if (packed.empty() || (dtype == v1::FLOAT32 && IsAligned(packed))) return packed;
  Buffer gradient = Buffer::Allocate(NumbersBytes(settings));
  UnpackRounded(RoundingOf(settings, entry.sequence()).As(dtype), {packed.data(), packed.size()},
                gradient.mutable_floats());
  return gradient;
}

size_t DenseKind::PackedBytes(const PartitionSettings& settings, const v1::LogEntry& entry,
                              const Buffer& gradient) const {
  return gradient.empty() ? 0 : GradientBytes(settings, DtypeOf(entry));
}

// A query always requests all values.
absl::StatusOr<Buffer> DenseKind::TakeQuery(const PartitionSettings&, Frame&) const { return Buffer(); }

// ---- contents ----

std::unique_ptr<PartitionContents> DenseKind::MakeInitial(const PartitionSettings& settings) const {
  Buffer values = Buffer::Zeros(NumbersBytes(settings));
  dense_->initialize(values.mutable_floats());
  std::vector<Buffer> slots;
  for (int i = 0; i < dense_->optimizer.slots(); ++i) {
    Buffer slot = Buffer::Allocate(NumbersBytes(settings));
    std::fill_n(slot.mutable_floats().begin(), settings.size(), dense_->optimizer.initial_slot_value(i));
    slots.push_back(std::move(slot));
  }
  return std::make_unique<DenseContents>(dense_, std::move(values), std::move(slots));
}

std::unique_ptr<PartitionContents> DenseKind::MakeEmpty() const { return std::make_unique<DenseContents>(dense_); }

Buffer DenseContents::AddPenalties(const PartitionSettings&, uint64_t examples, Buffer gradient) const {
  const std::vector<PenaltyRange>& penalties = dense_->penalties;
  if (penalties.empty() || gradient.empty()) return gradient;
  if (!gradient.unique()) gradient = Buffer::CopyOf(gradient.data(), gradient.size());
  const Buffer used = UsedValues();
  AddPenaltyGradient(penalties, examples, used.floats(), gradient.mutable_floats());
  return gradient;
}

Buffer DenseContents::UsedValues() const {
  if (dense_->spectral.empty()) return values_;
  Buffer used = Buffer::CopyOf(values_.data(), values_.size());
  NormalizeKernels(dense_->spectral, used.mutable_floats());
  return used;
}

void DenseContents::Apply(const PartitionSettings&, const v1::LogEntry& entry, uint64_t step, Buffer gradient) {
  ForgetConverted();
  if (entry.examples() == 0) {
    previous_ = values_;
    if (!entry.ema_overwrite()) return;
    values_ = Buffer::CopyOf(values_.data(), values_.size());
    OverwriteWithAverage(dense_->segments, slots_.back().floats(), values_.mutable_floats());
    return ApplyConstraints(dense_->constraints, values_.mutable_floats());
  }
  if (!gradient.unique()) gradient = Buffer::CopyOf(gradient.data(), gradient.size());
  const Buffer used = UsedValues();
  Update update;
  update.step = step;
  update.examples = entry.examples();
  update.learning_rate = entry.learning_rate();
  update.ema_overwrite = entry.ema_overwrite();
  update.values = used.floats();
  update.gradient = gradient.mutable_floats();
  std::vector<Buffer> shared(slots_.size());  // shared with an image; kept alive until they are copied
  for (size_t i = 0; i < shared.size(); ++i) {
    Buffer& slot = slots_[i];
    if (!slot.unique()) shared[i] = std::exchange(slot, Buffer::Allocate(slot.size()));
    update.slots.push_back(slot.mutable_floats());
    update.copied_from.push_back(shared[i].floats());
  }
  ApplyUpdate(dense_->optimizer, dense_->segments, update);
  ApplyConstraints(dense_->constraints, gradient.mutable_floats());
  previous_ = std::exchange(values_, std::move(gradient));
}

bool DenseContents::trainable(const PartitionSettings& settings) const {
  return values_.size() == NumbersBytes(settings) && slots_.size() == static_cast<size_t>(dense_->optimizer.slots());
}

Buffer DenseContents::Read(const PartitionSettings& settings, const ValuesQuery& query) {
  if (query.previous) return Convert(settings, previous_, query.dtype);
  if (query.dtype == v1::FLOAT32) return values_;
  Buffer& cached = converted_[query.dtype == v1::BFLOAT16 ? 0 : query.dtype == v1::FLOAT16 ? 1 : 2];
  if (cached.empty()) cached = Convert(settings, values_, query.dtype);
  return cached;
}

Buffer DenseContents::Convert(const PartitionSettings& settings, const Buffer& values, v1::DataType dtype) const {
  if (dtype == v1::FLOAT32) return values;
  const GradientRounding rounding = ValuesRounding(dtype, settings.begin, dense_->layout);
  Buffer out = Buffer::Allocate(cairn::PackedBytes(rounding, values.floats().size()));
  PackNearest(rounding, values.floats(), {out.mutable_data(), out.size()});
  return out;
}

void DenseContents::ForgetPrevious() {
  previous_ = {};
  ForgetConverted();
}

void DenseContents::ForgetConverted() {
  for (Buffer& b : converted_) b = {};
}

void DenseContents::Clear() {
  values_ = previous_ = {};
  slots_.clear();
  ForgetConverted();
}

// ---- images ----

void DenseContents::AddTo(const ImageParts& parts, Image& image) const {
  image.tensors.push_back(values_);
  if (parts.training) {
    image.header.set_slots(static_cast<uint32_t>(slots_.size()));
    image.tensors.insert(image.tensors.end(), slots_.begin(), slots_.end());
  }
  if (parts.previous && has_previous()) image.tensors.push_back(previous_);
}

std::unique_ptr<PartitionContents> DenseKind::MakeFrom(const PartitionSettings&, const Image& image) const {
  const size_t others = image.tensors.size() - 1;
  CAIRN_CHECK(others == image.header.slots() || others == size_t{image.header.slots()} + 1, "image of another kind");
  const auto slots = image.tensors.begin() + 1, previous = slots + image.header.slots();
  return std::make_unique<DenseContents>(dense_, image.tensors.front(), std::vector<Buffer>(slots, previous),
                                         previous == image.tensors.end() ? Buffer() : *previous);
}

absl::Status DenseKind::CheckHeader(const PartitionSettings& settings, const v1::PartitionImage& header,
                                    size_t tensors) const {
  const uint32_t slots = static_cast<uint32_t>(dense_->optimizer.slots());
  const bool final = settings.ended && header.slots() == 0;
  if (header.slots() != slots && !final) {
    return absl::InvalidArgumentError(absl::StrCat("slots: ", header.slots(), ", the job's optimizer has ", slots));
  }
  if (tensors != size_t{header.slots()} + 1 && tensors != size_t{header.slots()} + 2)
    return absl::InvalidArgumentError(absl::StrCat("tensors: ", tensors, " with ", header.slots(), " slots"));
  return absl::OkStatus();
}

absl::Status DenseKind::CheckTensor(const PartitionSettings& settings, size_t, size_t bytes) const {
  if (bytes == NumbersBytes(settings)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(settings.size(), " FLOAT32 numbers"));
}

ImageParts DenseKind::PartsOf(const v1::PartitionImage& header, size_t tensors) const {
  return {/*training=*/header.slots() > 0, /*previous=*/tensors == size_t{header.slots()} + 2};
}

}  // namespace cairn
