// The layer within a TimeDistributed as a node of its own: what computes it, writes it, and finds its variables, is
// what does so for that kind of layers anywhere.
//
// A pure function; any thread.
#pragma once

#include "common/model/graph.h"

namespace cairn {

// outer: a time_distributed. The same id, inputs, output and variables; the name is "outer/layer".
Node InnerNode(const Node& outer);

}  // namespace cairn
