// How the gradients of a job travel: which number in which type, how sums of them are rounded, and what their bytes
// are.
//
// Pure functions; any thread. A function of the JobSpec and its model alone, known to workers, ps and devices alike
// (common/model/gradient_layout.h).
// Invariants:
//   1. What is rounded stays as it is when it is rounded again, packed and unpacked, whatever the node.
//   2. FLOAT16 holds numbers times 2^-shift, so that the sum over all examples of a step has the size of the mean
//      gradient: 65504 is the largest FLOAT16. In memory numbers are float32 and not shifted.
//   3. Moving averages travel as BFLOAT16 where the rest is FLOAT16 or INT8: a variance may be above 65504, and is not
//      to be rounded in the steps of a larger one beside it. FLOAT32 and BFLOAT16 have one type for all.
//   4. Bytes are the runs of one type, one after the other. Runs are of whole 16 numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/types.pb.h"
#include "common/base/limits.h"

namespace cairn {

struct TreeNode;  // summation_tree.h

struct GradientLayout {
  int shift = 0;                                      // of FLOAT16; 0 to kFloat16ShiftMax
  std::vector<std::pair<int64_t, int64_t>> averages;  // [begin, end) of the space, in order, of whole 16 numbers
};

// Of the numbers of the parameter space from `begin` on, in one update.
struct GradientRounding {
  v1::DataType type = v1::FLOAT32;  // JobSpec.wire_dtype; FLOAT32: nothing is rounded
  // INT8 rounds at random: which update of which job it is.
  uint64_t seed = 0;                       // JobSpec.seed
  uint64_t sequence = 0;                   // of the update: its step + 1
  int64_t begin = 0;                       // a multiple of 16
  const GradientLayout* layout = nullptr;  // outlives this; null: no shift, no averages

  bool exact() const { return type == v1::FLOAT32; }
  int shift() const { return layout == nullptr ? 0 : layout->shift; }
  GradientRounding From(int64_t numbers) const { return {type, seed, sequence, begin + numbers, layout}; }
  GradientRounding As(v1::DataType other) const { return {other, seed, sequence, begin, layout}; }
};

// each(type, first, last) of the numbers [0, numbers) from rounding.begin on, in order: those that travel in one type.
template <typename Each>
void EachRun(const GradientRounding& rounding, int64_t numbers, const Each& each) {
  int64_t from = 0;
  if (rounding.layout != nullptr && (rounding.type == v1::FLOAT16 || rounding.type == v1::INT8)) {
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

// Bytes of so many numbers as they travel; 0 for a type that is not known.
size_t PackedBytes(const GradientRounding& rounding, size_t numbers);
// The numbers of the node become such as travel.
void RoundGradient(const GradientRounding& rounding, const TreeNode& node, absl::Span<float> numbers);
// Rounded, as bytes; out.size() == PackedBytes(rounding, numbers.size()), at any address.
void PackRounded(const GradientRounding& rounding, const TreeNode& node, absl::Span<const float> numbers,
                 absl::Span<uint8_t> out);
void UnpackRounded(const GradientRounding& rounding, absl::Span<const uint8_t> bytes, absl::Span<float> numbers);
// Whether bytes that came hold numbers that are rounded: not all of INT8 do.
bool IsRounded(const GradientRounding& rounding, absl::Span<const uint8_t> bytes, size_t numbers);

// into[i] += from[i]. Of one size; they do not overlap.
void SumInto(absl::Span<float> into, absl::Span<const float> from);
// The sum of the node's children, which are rounded, and rounded as the node's: in one pass.
void SumInto(const GradientRounding& rounding, const TreeNode& node, absl::Span<float> into,
             absl::Span<const float> from);

}  // namespace cairn
