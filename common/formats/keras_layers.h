// One layer of Keras, from its config to Cairn's layer.
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
  int axis = -1;  // that a BatchNormalization, Concatenate, ... names, batch included; -1: the last one
  bool moves_pixels_only = false;  // an augmentation that may as well come before a Rescaling
};

// That a layer's entry in its model is of a class of Keras, and not of the user's own. Errors: INVALID_ARGUMENT names
// the layer.
absl::Status CheckIsKerasLayer(const Json& entry, const std::string& name, const std::string& type);

// `type`: Keras' class_name. The layer has its name and no inputs. Errors: INVALID_ARGUMENT names the layer and the
// option, or the type.
absl::StatusOr<KerasLayer> ReadKerasLayer(const std::string& type, const std::string& name, const Json& config);

}  // namespace cairn
