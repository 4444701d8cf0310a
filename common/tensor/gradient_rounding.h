// The wire format of a job's gradients, and of its values: the type of each number, how sums are rounded, and the
// layout of the bytes.
//
// Pure functions; any thread. The format depends on the JobSpec and its model alone; workers, ps and devices use the
// same (common/model/gradient_layout.h).
// Invariants:
//   1. Rounded numbers do not change when they are rounded again, packed or unpacked, whatever the node.
//   2. FLOAT16 holds numbers times 2^-shift, so that the sum over all examples of a step is of the size of the mean
//      gradient: the largest FLOAT16 is 65504. In memory numbers are float32 and not shifted.
//   3. Moving averages of gradients are BFLOAT16 where the rest is FLOAT16 or blocks (INT8, INT4, INT2): a variance may
//      exceed 65504, and must not be rounded at the step of a larger neighbour. With FLOAT32 and BFLOAT16 all numbers
//      have one type.
//   4. The bytes are a sequence of runs of one type each. A run is a multiple of 16 numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/types.pb.h"
#include "common/base/limits.h"
#include "common/tensor/block_int.h"

namespace cairn {

struct TreeNode;  // summation_tree.h

struct GradientLayout {
  int shift = 0;                                      // of FLOAT16; 0 to kFloat16ShiftMax
  std::vector<std::pair<int64_t, int64_t>> averages;  // [begin, end) of the space, in order, multiples of 16
};

// The rounding of numbers of the parameter space from `begin` on, in one update.
struct GradientRounding {
  v1::DataType type = v1::FLOAT32;  // JobSpec.wire_dtype; FLOAT32: nothing is rounded
  // Blocks are rounded at random; these identify the update.
  uint64_t seed = 0;                       // JobSpec.seed
  uint64_t sequence = 0;                   // of the update: its step + 1
  int64_t begin = 0;                       // a multiple of 16
  const GradientLayout* layout = nullptr;  // outlives this; null: no shift, no averages

  bool exact() const { return type == v1::FLOAT32; }
  int shift() const { return layout == nullptr ? 0 : layout->shift; }
  GradientRounding From(int64_t numbers) const { return {type, seed, sequence, begin + numbers, layout}; }
  GradientRounding As(v1::DataType other) const { return {other, seed, sequence, begin, layout}; }
};

// Whether values may travel in this type.
inline bool IsValuesType(v1::DataType type) {
  return type == v1::FLOAT32 || type == v1::BFLOAT16 || type == v1::FLOAT16 || type == v1::INT8;
}
// The layout of values of this type, from `begin` on. FLOAT16 values are not shifted, and averages have the type of the
// rest but with INT8. `layout` outlives the result.
inline GradientRounding ValuesRounding(v1::DataType type, int64_t begin, const GradientLayout& layout) {
  return {type, 0, 0, begin, IsBlockInt(type) ? &layout : nullptr};
}

// Calls each(type, first, last) for the runs of one type in [0, numbers) (relative to rounding.begin), in order.
template <typename Each>
void EachRun(const GradientRounding& rounding, int64_t numbers, const Each& each) {
  int64_t from = 0;
  if (rounding.layout != nullptr && (rounding.type == v1::FLOAT16 || IsBlockInt(rounding.type))) {
    const auto& averages = rounding.layout->averages;
    const auto past = [&](const std::pair<int64_t, int64_t>& range) { return range.second <= rounding.begin; };
    for (auto it = std::partition_point(averages.begin(), averages.end(), past); it != averages.end(); ++it) {
      const int64_t first = std::max(it->first - rounding.begin, from),
                    last = std::min(it->second - rounding.begin, numbers);
      if (first >= numbers) break;
      if (from < first) each(rounding.type, from, first);
      each(v1::BFLOAT16, first, last);
      from = last;
    }
  }
  if (from < numbers) each(rounding.type, from, numbers);
}

// Bytes of this many numbers on the wire; 0 for an unknown type.
size_t PackedBytes(const GradientRounding& rounding, size_t numbers);
// Rounds the node's numbers to what the wire can represent.
void RoundGradient(const GradientRounding& rounding, const TreeNode& node, absl::Span<float> numbers);
// Rounds and packs; out.size() == PackedBytes(rounding, numbers.size()), at any address.
void PackRounded(const GradientRounding& rounding, const TreeNode& node, absl::Span<const float> numbers,
                 absl::Span<uint8_t> out);
// The same for values: each number to the nearest that the type has.
void PackNearest(const GradientRounding& rounding, absl::Span<const float> numbers, absl::Span<uint8_t> out);
void RoundNearest(const GradientRounding& rounding, absl::Span<float> numbers);
void UnpackRounded(const GradientRounding& rounding, absl::Span<const uint8_t> bytes, absl::Span<float> numbers);
// Whether received bytes hold rounded numbers: not all bytes of blocks do.
bool IsRounded(const GradientRounding& rounding, absl::Span<const uint8_t> bytes, size_t numbers);

// into[i] += from[i]. The spans have the same size and do not overlap.
void SumInto(absl::Span<float> into, absl::Span<const float> from);
// into = the sum of the node's two rounded children, rounded for the node, in one pass.
void SumInto(const GradientRounding& rounding, const TreeNode& node, absl::Span<float> into,
             absl::Span<const float> from);

}  // namespace cairn
