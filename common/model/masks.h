// Masks of steps: which steps of a layer's output later layers leave out, by Keras' rules. Masking and Embedding with
// mask_zero make one; layers that work on each step by itself, or are recurrent, pass it on; others drop it.
//
// A pure function; any thread.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Node.mask of `node`, whose inputs and output are set. nodes: those before it. Errors: INVALID_ARGUMENT, without the
// layer's name: what Keras does with the mask is not supported there.
absl::StatusOr<int> OutputMask(const std::vector<Node>& nodes, const Node& node);

}  // namespace cairn
