// Converts one layer of Keras, from its config, to Cairn's layer.
//
// Free functions; any thread.
#pragma once

#include <string>
#include <variant>

#include "cairn/v1/data.pb.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

struct KerasLayer {
  // A preprocessing layer such as RandomFlip becomes an augmentation of the data.
  std::variant<v1::Layer, v1::Augmentation> value;
  int axis = -1;  // the axis of a BatchNormalization, Concatenate, ..., counted with the batch; -1: the last one
  bool moves_pixels_only = false;  // an augmentation that commutes with a Rescaling
};

// Checks that a layer's class is one of Keras, not the user's own. Errors: INVALID_ARGUMENT names
// the layer.
absl::Status CheckIsKerasLayer(const Json& entry, const std::string& name, const std::string& type);

// `type`: Keras' class_name. The returned layer has its name but no inputs. Errors: INVALID_ARGUMENT names the layer
// and the option, or the type.
absl::StatusOr<KerasLayer> ReadKerasLayer(const std::string& type, const std::string& name, const Json& config);

}  // namespace cairn
