// Reads Keras' preprocessing layers at a model's head (RandomFlip and the like) as augmentation of the data.
//
// Free functions; any thread.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "cairn/v1/data.pb.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

// Whether the class, by its name, is such a layer.
bool IsKerasAugmentation(absl::string_view type);

// Returns whether the layer commutes with a Rescaling; nullopt: it is not such a layer.
std::optional<bool> ReadAugmentation(const std::string& type, KerasConfig& c, v1::Augmentation* out);

}  // namespace cairn
