// The layer within a TimeDistributed as a node of its own: what computes it, writes it, and finds its variables, is
// what does so for that kind of layers anywhere.
//
// A layer that works on the last axis, or number by number, takes the input as it is. For others the steps are folded
// into the batch: [examples, steps, ...] is [examples * steps, ...] to the layer within (FoldsSteps, StepGraph).
//
// Pure functions; any thread.
#pragma once

#include "common/model/graph.h"

namespace cairn {

// outer: a time_distributed. The same id, inputs, output and variables; the name is "outer/layer".
Node InnerNode(const Node& outer);

// Of the layer within: whether the steps are folded into the batch.
bool FoldsSteps(const v1::Layer& inner);
// The same of a checked node; false if it is no time_distributed.
bool FoldsSteps(const Node& node);

// The layer within as a model of one step: an input and the layer. Its variables are those of `outer`, in the same
// order, from offset 0 on; frozen where those are. outer: a checked time_distributed that FoldsSteps.
Graph StepGraph(const Graph& graph, const Node& outer);

}  // namespace cairn
