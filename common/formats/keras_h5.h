// Legacy .h5 files of Keras: what model.save("m.h5") and model.save_weights("m.h5") of Keras 2 write (Keras 3 the
// former too), and any of them under the names .hdf5 and .keras.
//
//   model    := attribute "model_config" (model.to_json()), "keras_version"; group "model_weights" := weights
//   weights  := attribute "layer_names"; for each layer a group LAYER
//   LAYER    := attribute "weight_names"; for each name ("dense/kernel:0") an array of that path
//   A list that is too long for one attribute stands in "layer_names0", "layer_names1", ...
//   The weights of a model within the model stand in one group, its trainable ones first.
//
// (tf_keras/src/saving/legacy/hdf5_format.py.) A layer's weights are found by its name, in a group or in the weights'
// names; within the layer by the variables' names, else by their order. Where a layer is not found so, all of them are
// taken by the order of the layers, as Keras does.
//
// Free functions, blocking; any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/formats/safetensors.h"
#include "common/model/graph.h"

namespace cairn {

// Whether bytes or a file's beginning are those of an HDF5 file.
bool IsHdf5(absl::string_view bytes);
absl::StatusOr<bool> IsHdf5File(const std::string& path);

// Whether its weights are arranged as above, rather than as Keras 3 does (keras_weights.h).
absl::StatusOr<bool> IsLegacyKerasH5(const Buffer& bytes, const std::string& where);

// model_config, with the keras_version beside it. Errors: INVALID_ARGUMENT the file holds weights without a model;
// DATA_LOSS; those of ReadHdf5.
absl::StatusOr<std::string> ReadKerasH5Config(const std::string& path);

// Tensors under the names of `graph`. Errors: FAILED_PRECONDITION names a layer or variable that is not there or has
// another shape; UNIMPLEMENTED the file is one of Keras 1; those of ReadHdf5.
absl::StatusOr<SafetensorsFile> ReadKerasH5Weights(const Buffer& bytes, const std::string& where, const Graph& graph);

}  // namespace cairn
