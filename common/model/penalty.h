// The penalty of a model's regularizers (Regularizer in model.proto), with Keras' formulas:
//   penalty(w) = l1 * sum(|w|) + l2 * sum(w^2)      its gradient: l1 * sign(w) + 2 * l2 * w, with sign(0) = 0
// and of the orthogonal regularizer of a matrix, whose rows (or columns) are r_i, with c_ij the cosine of two of them:
//   penalty(w) = factor * mean over the pairs i < j of |c_ij|      c_ij = u_i * u_j, u_i = r_i / max(|r_i|, 1e-7)
// The gradient is added where the complete gradient of an update is: at the ps, before clipping, and at the worker
// where that one clips (asynchronous jobs). The penalty itself is part of the loss that workers report.
//
// Pure functions. Invariant: both have the same bits however the parameter space is cut, and on every x86-64.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph.h"

namespace cairn {

// A run of numbers of one trainable variable.
struct PenaltyRange {
  int64_t begin = 0, end = 0;  // from the beginning of the part of the space that was asked about
  double l1 = 0, l2 = 0;
  double orthogonal = 0;          // factor; the variable is whole
  int64_t rows = 0, columns = 0;  // orthogonal: the matrix
  bool of_columns = false;        // orthogonal: its vectors are the columns
};
// Of the numbers [begin, end) of the parameter space, in order; none where nothing is regularized.
std::vector<PenaltyRange> PenaltyRangesOf(const Graph& graph, int64_t begin, int64_t end);

// `values` are the range's part of the space, as in AddPenaltyGradient. Added up in float64.
double PenaltyOf(const PenaltyRange& range, absl::Span<const float> values);

// To a gradient that is a sum over `examples`: that many times the penalty's.
void AddPenaltyGradient(absl::Span<const PenaltyRange> ranges, uint64_t examples, absl::Span<const float> values,
                        absl::Span<float> gradient);

}  // namespace cairn
