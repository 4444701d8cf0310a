// Keras' preprocessing layers at a model's head (RandomFlip and the like), which become augmentation of the data.
//
// Free functions; any thread.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "cairn/v1/data.pb.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

// Whether the class is one of those, as far as its name tells.
bool IsKerasAugmentation(absl::string_view type);

// Whether it commutes with a Rescaling; nullopt: no such layer.
std::optional<bool> ReadAugmentation(const std::string& type, KerasConfig& c, v1::Augmentation* out);

}  // namespace cairn
