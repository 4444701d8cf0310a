// The penalty of a model's regularizers (Regularizer in model.proto), with Keras' formulas:
//   penalty(w) = l1 * sum(|w|) + l2 * sum(w^2)      with gradient l1 * sign(w) + 2 * l2 * w, sign(0) = 0
// and of the orthogonal regularizer of a matrix with rows (or columns) r_i, where c_ij is the cosine of two of them:
//   penalty(w) = factor * mean over the pairs i < j of |c_ij|      c_ij = u_i * u_j, u_i = r_i / max(|r_i|, 1e-7)
// The gradient is added where the complete gradient of an update is available: at the ps before clipping, or at the
// worker if the worker clips (asynchronous jobs). The penalty itself is part of the loss that workers report.
//
// Pure functions. Invariant: penalty and gradient have the same bits however the parameter space is partitioned, and on
// every x86-64 machine.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph.h"

namespace cairn {

// A contiguous range of numbers of one trainable variable.
struct PenaltyRange {
  int64_t begin = 0, end = 0;  // relative to the beginning of the requested part of the space
  double l1 = 0, l2 = 0;
  double orthogonal = 0;          // the factor; the variable is then whole
  int64_t rows = 0, columns = 0;  // orthogonal: the shape of the matrix
  bool of_columns = false;        // orthogonal: its vectors are the columns, not the rows
};
// The ranges of the numbers [begin, end) of the parameter space, in order. Empty if nothing is regularized.
std::vector<PenaltyRange> PenaltyRangesOf(const Graph& graph, int64_t begin, int64_t end);

// `values`: the part of the space that the range belongs to, as in AddPenaltyGradient. Summed in float64.
double PenaltyOf(const PenaltyRange& range, absl::Span<const float> values);

// `gradient` is a sum over `examples`, so `examples` times the penalty's gradient is added.
void AddPenaltyGradient(absl::Span<const PenaltyRange> ranges, uint64_t examples, absl::Span<const float> values,
                        absl::Span<float> gradient);

}  // namespace cairn
