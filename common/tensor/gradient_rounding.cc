#include "common/tensor/gradient_rounding.h"

#include "common/base/check.h"
#include "common/tensor/block_int.h"
#include "common/tensor/dtype.h"
#include "common/tensor/summation_tree.h"

namespace cairn {
namespace {

RoundingKey KeyOf(const GradientRounding& r, const TreeNode& node) {
  return RoundingKey::Of(r.seed, r.sequence, node.first, node.count);
}

template <typename T>
absl::Span<T> Run(absl::Span<T> numbers, int64_t first, int64_t last) {
  return numbers.subspan(static_cast<size_t>(first), static_cast<size_t>(last - first));
}

// As EachRun, with the bytes of each run: each(type, first, last, bytes).
template <typename T, typename Each>
void EachPackedRun(const GradientRounding& rounding, size_t numbers, absl::Span<T> bytes, const Each& each) {
  CAIRN_CHECK(bytes.size() == PackedBytes(rounding, numbers), "a gradient of another size");
  size_t at = 0;
  EachRun(rounding, static_cast<int64_t>(numbers), [&](v1::DataType type, int64_t first, int64_t last) {
    const size_t size = BytesOf(type, static_cast<size_t>(last - first));
    each(type, first, last, bytes.subspan(at, size));
    at += size;
  });
}

}  // namespace

size_t PackedBytes(const GradientRounding& rounding, size_t numbers) {
  size_t bytes = 0;
  EachRun(rounding, static_cast<int64_t>(numbers), [&](v1::DataType type, int64_t first, int64_t last) {
    bytes += BytesOf(type, static_cast<size_t>(last - first));
  });
  return bytes;
}

void RoundGradient(const GradientRounding& rounding, const TreeNode& node, absl::Span<float> numbers) {
  EachRun(rounding, static_cast<int64_t>(numbers.size()), [&](v1::DataType type, int64_t first, int64_t last) {
    const absl::Span<float> run = Run(numbers, first, last);
    if (IsBlockInt(type)) return RoundBlockInt(type, KeyOf(rounding, node), rounding.begin + first, run);
    RoundTo(type, run, rounding.shift());
  });
}

void PackRounded(const GradientRounding& rounding, const TreeNode& node, absl::Span<const float> numbers,
                 absl::Span<uint8_t> out) {
  EachPackedRun(rounding, numbers.size(), out,
                [&](v1::DataType type, int64_t first, int64_t last, absl::Span<uint8_t> bytes) {
                  const absl::Span<const float> run = Run(numbers, first, last);
                  if (IsBlockInt(type))
                    return PackBlockInt(type, KeyOf(rounding, node), rounding.begin + first, run, bytes);
                  FromFloat(run, type, bytes, rounding.shift());
                });
}

void UnpackRounded(const GradientRounding& rounding, absl::Span<const uint8_t> bytes, absl::Span<float> numbers) {
  EachPackedRun(rounding, numbers.size(), bytes,
                [&](v1::DataType type, int64_t first, int64_t last, absl::Span<const uint8_t> in) {
                  ToFloat(in, type, Run(numbers, first, last), rounding.shift());
                });
}

void PackNearest(const GradientRounding& rounding, absl::Span<const float> numbers, absl::Span<uint8_t> out) {
  EachPackedRun(rounding, numbers.size(), out,
                [&](v1::DataType type, int64_t first, int64_t last, absl::Span<uint8_t> bytes) {
                  FromFloat(Run(numbers, first, last), type, bytes, rounding.shift());
                });
}

void RoundNearest(const GradientRounding& rounding, absl::Span<float> numbers) {
  EachRun(rounding, static_cast<int64_t>(numbers.size()), [&](v1::DataType type, int64_t first, int64_t last) {
    const absl::Span<float> run = Run(numbers, first, last);
    if (!IsBlockInt(type)) return RoundTo(type, run, rounding.shift());
    std::vector<uint8_t> bytes(BytesOf(type, run.size()));
    FromFloat(run, type, absl::MakeSpan(bytes));
    ToFloat(bytes, type, run);
  });
}

bool IsRounded(const GradientRounding& rounding, absl::Span<const uint8_t> bytes, size_t numbers) {
  bool rounded = true;
  EachPackedRun(rounding, numbers, bytes, [&](v1::DataType type, int64_t, int64_t, absl::Span<const uint8_t> in) {
    rounded = rounded && (!IsBlockInt(type) || IsPackedBlockInt(type, in));
  });
  return rounded;
}

void SumInto(absl::Span<float> into, absl::Span<const float> from) { SumRounded(v1::FLOAT32, into, from); }

void SumInto(const GradientRounding& rounding, const TreeNode& node, absl::Span<float> into,
             absl::Span<const float> from) {
  CAIRN_CHECK(into.size() == from.size(), "gradients of different sizes");
  EachRun(rounding, static_cast<int64_t>(into.size()), [&](v1::DataType type, int64_t first, int64_t last) {
    const absl::Span<float> run = Run(into, first, last);
    if (IsBlockInt(type))
      return SumBlockInt(type, KeyOf(rounding, node), rounding.begin + first, run, Run(from, first, last));
    SumRounded(type, run, Run(from, first, last), rounding.shift());
  });
}

}  // namespace cairn
