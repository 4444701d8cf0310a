// A layer of a graph as Keras 3 describes it: its class and its config.
//
// Free functions; any thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/keras/keras_writer.h"

namespace cairn {

// "Conv2D"; of an Activation layer the class that has its argument, such as "LeakyReLU".
std::string KerasClassOf(const Node& node);

// What layer.get_config() would give, beginning with name, trainable and dtype. Errors: UNIMPLEMENTED names the layer
// and what Keras' format cannot say of it.
absl::StatusOr<OrderedJson> KerasLayerConfig(const Node& node);

}  // namespace cairn
