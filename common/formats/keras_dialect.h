// What Keras 3 up to 3.9 writes of the calls of a Functional model without being asked: the default that call() has for
// `training`, which is false for a Dropout and true for a RandomFlip and its like. It trains with the model's own mode
// all the same. Keras 3.10 and later write what the user gave.
//
// The description does not say by which it was written, but shows it. In this order:
//
//   seen in it                                      written by
//   "mask": null in a call                          3.0 to 3.9, which write that unasked too
//   a Dropout or RandomFlip without `training`      3.10 or later
//   a BatchNormalization or Softmax without `mask`  3.10 or later
//   "keras_version" beside the model                what it says (keras_archive.h takes it from metadata.json)
//   "quantization_config" in a layer                3.13 or later
//   none of these                                   taken for 3.0 to 3.9
//
// A free function; any thread.
#pragma once

#include "common/model/keras/keras_config.h"

namespace cairn {

// The model, its calls without the arguments that nobody gave. Keras 2's are left as they are.
Json WithoutUnaskedArguments(Json model);

// The model with Keras 2's hard_sigmoid under a name of its own (kOldHardSigmoid): it is not Keras 3's. Keras 2 wrote
// it where "keras_version" says so, or where neither that nor a "module" stands at the model. A Normalization's null
// for all axes becomes the empty list.
Json WithOldNamesApart(Json model);

}  // namespace cairn
