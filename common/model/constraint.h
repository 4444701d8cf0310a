// What variables are made to after each update (Constraint in layer_fields.proto), with the formulas of
// keras.constraints. With n = sqrt(sum of w^2 along the axis), e = 1e-7:
//   NON_NEG       max(w, 0)
//   MAX_NORM      w * (min(n, max_value) / (e + n))
//   UNIT_NORM     w / (e + n)
//   MIN_MAX_NORM  w * ((rate * clip(n, min_value, max_value) + (1 - rate) * n) / (e + n))
// The ps applies them to the values that an update leaves: behind the rule, the moving average and what it overwrites.
//
// Pure functions; any thread. Invariants:
//   1. The bits are equal on every x86-64: sums of squares are added up in float64 in the order of the numbers, the
//      rest is float32 in the order above.
//   2. A variable with a norm lies in one partition (common/model/partition_cut.h), so that the cut changes no bit.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Checks the layer's constraints, and fills in their defaults. variables: the layer's own. Errors: INVALID_ARGUMENT,
// `kernel_constraint.rate 2 is outside [0, 1]; ...`.
absl::Status ResolveConstraints(v1::Layer* layer, absl::Span<const Variable> variables);

struct ConstraintRange {
  int64_t begin = 0, end = 0;  // from the beginning of the part of the space that was asked about
  Shape shape;                 // of the variable; it is whole unless the kind is NON_NEG
  v1::Constraint constraint;   // resolved
};
// Of the trainable variables within the numbers [begin, end) of the parameter space, in order. A variable with a norm
// that is not whole there is left out: CheckWholeVariables (common/model/partition_cut.h) refuses such a cut.
std::vector<ConstraintRange> ConstraintRangesOf(const Graph& graph, int64_t begin, int64_t end);

// `values` are the part of the space that was asked about.
void ApplyConstraints(absl::Span<const ConstraintRange> ranges, absl::Span<float> values);

}  // namespace cairn
