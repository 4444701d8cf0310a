// Keras 3 up to 3.9 writes an argument into the calls of a Functional model that the user did not give: the default of
// `training`, which is false for a Dropout and true for a RandomFlip and the like. In training the model's own mode
// applies all the same. Keras 3.10 and later write only what the user gave.
//
// The description does not name the version that wrote it, but shows it. In this order:
//
//   found in it                                     written by
//   "mask": null in a call                          3.0 to 3.9, which write this default too
//   a Dropout or RandomFlip without `training`      3.10 or later
//   a BatchNormalization or Softmax without `mask`  3.10 or later
//   "keras_version" next to the model               that version (keras_archive.h takes it from metadata.json)
//   "quantization_config" in a layer                3.13 or later
//   none of these                                   assumed to be 3.0 to 3.9
//
// A free function; any thread.
#pragma once

#include "common/model/keras/keras_config.h"

namespace cairn {

// The model without the arguments that the user did not give. Calls of Keras 2 are unchanged.
Json WithoutUnaskedArguments(Json model);

// The model with Keras 2's hard_sigmoid under a name of its own (kOldHardSigmoid), since it differs from Keras 3's.
// Keras 2 wrote the model if "keras_version" says so, or if it has neither that nor a "module". A Normalization's null
// for all axes becomes the empty list.
Json WithOldNamesApart(Json model);

}  // namespace cairn
