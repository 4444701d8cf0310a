// One layer's share of Graph::Build: its defaults, its output's shape and its variables, as the Keras layer of that
// name has them.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// inputs: the shapes of the node's inputs, none for the input layer. node: `kind`, `name` and `layer` are set; fills in
// the defaults of `layer`, and `output`, `activation`, `negative_slope` and `window`. Appends the layer's variables
// without their offset and node. Errors: INVALID_ARGUMENT, what is wrong and what to do; the caller adds the layer's
// name.
absl::Status InferLayer(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables);

// a * b for a, b >= 0, or the largest int64_t where that overflows.
int64_t SaturatingMultiply(int64_t a, int64_t b);

}  // namespace cairn
