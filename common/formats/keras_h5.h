// Legacy .h5 files of Keras, written by model.save("m.h5") and model.save_weights("m.h5") of Keras 2 (Keras 3: the
// former), also under the extensions .hdf5 and .keras.
//
//   model    := attribute "model_config" (model.to_json()), "keras_version"; group "model_weights" := weights
//   weights  := attribute "layer_names"; for each layer a group LAYER
//   LAYER    := attribute "weight_names"; for each name ("dense/kernel:0") an array of that path
//   A list that is too long for one attribute is split over "layer_names0", "layer_names1", ...
//   The weights of a nested model are in one group, its trainable ones first.
//
// (tf_keras/src/saving/legacy/hdf5_format.py.) A layer's weights are found by its name, in a group or in the weights'
// names; within the layer by the variables' names, else by their order. If a layer is not found by name, all layers are
// matched by their order, as Keras does.
//
// Free functions, blocking; any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/formats/safetensors.h"
#include "common/model/graph.h"

namespace cairn {

// Whether the bytes, or the beginning of the file, are those of an HDF5 file.
bool IsHdf5(absl::string_view bytes);
absl::StatusOr<bool> IsHdf5File(const std::string& path);

// Whether the weights have the layout above, not Keras 3's (keras_weights.h).
absl::StatusOr<bool> IsLegacyKerasH5(const Buffer& bytes, const std::string& where);

// model_config, with its keras_version. Errors: INVALID_ARGUMENT: the file has weights without a model;
// DATA_LOSS; those of ReadHdf5.
absl::StatusOr<std::string> ReadKerasH5Config(const std::string& path);

// Tensors under the names of `graph`. Errors: FAILED_PRECONDITION names a layer or variable that is missing or has
// another shape; UNIMPLEMENTED: the file is of Keras 1; those of ReadHdf5.
absl::StatusOr<SafetensorsFile> ReadKerasH5Weights(const Buffer& bytes, const std::string& where, const Graph& graph);

}  // namespace cairn
