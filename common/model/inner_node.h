// The layer inside a TimeDistributed or a SpectralNormalization as a node of its own, so that the code for that kind of
// layer computes it, writes it and finds its variables.
//
// A layer that works on the last axis, or elementwise, takes the input as it is, if the layer takes as many axes. For
// others the steps of a TimeDistributed are folded into the batch: the inner layer sees [examples, steps, ...] as
// [examples * steps, ...] (FoldsSteps, StepGraph).
//
// Pure functions; any thread.
#pragma once

#include "common/model/graph.h"

namespace cairn {

// outer: a time_distributed or a spectral_normalization. The result has its id, inputs, output and variables; its name
// is "outer/layer".
Node InnerNode(const Node& outer);

// Whether this inner layer of a time_distributed whose input has so many axes, that of the steps among them, needs the
// steps folded into the batch.
bool FoldsSteps(const v1::Layer& inner, size_t input_axes);
// The same for a checked node; false if it is not a time_distributed.
bool FoldsSteps(const Node& node);

// The inner layer as a model of one step: an input and the layer. Its variables are those of `outer`, in the same
// order, from offset 0 on, and frozen where those are. outer: a checked time_distributed for which FoldsSteps is true.
Graph StepGraph(const Graph& graph, const Node& outer);

}  // namespace cairn
