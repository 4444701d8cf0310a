// Keras 3's description of a layer of a graph: its class and its config.
//
// Free functions; any thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/keras/keras_writer.h"

namespace cairn {

// "Conv2D"; for an Activation with an argument the class that has it, such as "LeakyReLU".
std::string KerasClassOf(const Node& node);

// The result of layer.get_config(), beginning with name, trainable and dtype. Errors: UNIMPLEMENTED names the layer
// and the option that Keras' format cannot express.
absl::StatusOr<OrderedJson> KerasLayerConfig(const Node& node);

}  // namespace cairn
