// Converts Keras' description of a model (model.to_json(), config.json of a .keras archive) to Cairn's: Sequential and
// Functional, in the dialects of Keras 2 and 3, including nested models.
//
// Free functions; any thread. Invariants:
//   1. Nothing that changes what the model computes is ignored: a layer or an option that Cairn does not support is an
//      error that names the layer and the option.
//   2. Layers keep their names. Inputs precede the layers that use them; the model's output is the last layer.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cairn/v1/data.pb.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"

namespace cairn {

struct KerasModel {
  v1::Model model;
  // Data settings from the model's head: `augmentation`, from RandomFlip and the like, which precede all layers
  // except a Rescaling; and with a RandomCrop image_height and image_width, the size of the examples. The model's input
  // has the size after the crop.
  v1::Data data;
  // By layer of `model`: the path of its weights in model.weights.h5, "layers/conv2d_1". "layers/conv2d_1/" of a
  // TimeDistributed: that of the layer in it (keras_step_models.h).
  std::vector<std::string> weight_paths;
};

// Errors: INVALID_ARGUMENT `layer "conv2d" (Conv2D): data_format: "channels_first" is not supported; ...`, without the
// source's name.
absl::StatusOr<KerasModel> ReadKerasModel(absl::string_view json);

}  // namespace cairn
