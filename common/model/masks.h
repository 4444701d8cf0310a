// Step masks: which steps of a layer's output later layers ignore, by Keras' rules. Masking, and Embedding with
// mask_zero, create a mask. Recurrent layers and layers that treat each step separately propagate it; all others drop
// it.
//
// A pure function; any thread.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Returns Node.mask of `node`, whose inputs and output must be set. nodes: the nodes before it. Errors:
// INVALID_ARGUMENT, without the layer's name: what Keras does with the mask there is not supported.
absl::StatusOr<int> OutputMask(const std::vector<Node>& nodes, const Node& node);

}  // namespace cairn
