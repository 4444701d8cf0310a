// Keras' layers that slide a window over a picture or a sequence: convolutions, poolings, padding, up-sampling.
//
// Free functions; any thread.
#pragma once

#include <string>

#include "cairn/v1/model.pb.h"
#include "common/formats/keras_config.h"

namespace cairn {

// False: `type` is no such layer, and nothing was read.
bool ReadWindowLayer(const std::string& type, KerasConfig& c, v1::Layer* out);

}  // namespace cairn
