// Keras 3's description of the calls between the layers of a graph: `inbound_nodes`.
//
// Free functions; any thread.
#pragma once

#include <vector>

#include "common/formats/keras_class.h"
#include "common/formats/keras_scopes.h"
#include "common/model/graph.h"

namespace cairn {

// Whether the node is an operation on tensors, which Keras does not count among the layers.
bool IsOperation(const Node& node);

// [null, shape...]
OrderedJson KerasBatchShape(const Shape& shape);

// ["conv2d", 0, 0]: the layer, the number of its call and that of its output, as `output_layers` names it.
OrderedJson KerasHistory(const KerasScopes& scopes, int node, int scope);

// All calls of the layer whose first call is `node`.
OrderedJson KerasInboundNodes(const KerasScopes& scopes, const Node& node);

// All calls of a model inside a model.
OrderedJson KerasSubmodelNodes(const KerasScopes& scopes, int submodel);

}  // namespace cairn
