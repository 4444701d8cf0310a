// How the layers of a graph call one another, as Keras 3 describes it: `inbound_nodes`.
//
// Free functions; any thread.
#pragma once

#include <vector>

#include "common/formats/keras_class.h"
#include "common/model/graph.h"

namespace cairn {

// Whether it is an operation on tensors: Keras does not count it among the layers.
bool IsOperation(const Node& node);

// [null, shape...]
OrderedJson KerasBatchShape(const Shape& shape);

// ["conv2d", 0, 0]: the layer and the number of its call.
OrderedJson KerasHistory(const Graph& graph, const Node& node);

// Every call of the layer, whose first one is `node`.
OrderedJson KerasInboundNodes(const Graph& graph, const Node& node);

}  // namespace cairn
