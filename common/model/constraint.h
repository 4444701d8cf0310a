// Projections that are applied to variables after each update (Constraint in layer_fields.proto), with the formulas of
// keras.constraints. With n = sqrt(sum of w^2 along the axis), e = 1e-7:
//   NON_NEG       max(w, 0)
//   MAX_NORM      w * (min(n, max_value) / (e + n))
//   UNIT_NORM     w / (e + n)
//   MIN_MAX_NORM  w * ((rate * clip(n, min_value, max_value) + (1 - rate) * n) / (e + n))
//   RADIAL        a kernel [side, side, inputs, outputs] becomes constant along the squares around its centre
// The ps applies them to the result of an update: after the rule, the moving average and its overwriting of the
// weights.
//
// Pure functions; any thread. Invariants:
//   1. The bits are the same on every x86-64 machine: sums of squares are accumulated in float64 in the order of the
//      numbers; the rest is float32 in the order above.
//   2. A variable with another constraint than NON_NEG lies in one partition (common/model/partition_cut.h), so
//      partitioning changes no bit.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Checks the layer's constraints and fills in their defaults. variables: those of this layer alone. Errors:
// INVALID_ARGUMENT, `kernel_constraint.rate 2 is outside [0, 1]; ...`.
absl::Status ResolveConstraints(v1::Layer* layer, absl::Span<const Variable> variables);

struct ConstraintRange {
  int64_t begin = 0, end = 0;  // relative to the beginning of the requested part of the space
  Shape shape;                 // the variable's; the variable is whole unless the kind is NON_NEG
  v1::Constraint constraint;   // resolved
};
// The constraints of the trainable variables within the numbers [begin, end) of the parameter space, in order. A
// variable with a norm constraint that is not whole in that range is left out: CheckWholeVariables
// (common/model/partition_cut.h) rejects such a partition.
std::vector<ConstraintRange> ConstraintRangesOf(const Graph& graph, int64_t begin, int64_t end);

// `values`: the part of the space that the ranges were requested for.
void ApplyConstraints(absl::Span<const ConstraintRange> ranges, absl::Span<float> values);

}  // namespace cairn
