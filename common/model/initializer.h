// Initial values as a pure function of (seed, variable, element): a ps computes those of its partitions without
// contacting another node.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/model/graph.h"

namespace cairn {

// Fills `out` with the numbers [begin, begin + out.size()) of the parameter space. Formulas: keras.initializers.
void InitializeRange(const Graph& graph, uint64_t seed, int64_t begin, absl::Span<float> out);

}  // namespace cairn
