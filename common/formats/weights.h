// LoadWeights: reads a model's variables from a file, in the format of its extension.
//
//   .safetensors   safetensors.h: Keras' names and shapes, or PyTorch's (torch_layout.h)
//   .keras         keras_archive.h: the archive's own model names them
//   .h5, .hdf5     keras_archive.h: .weights.h5 in the order of the layers; a legacy file by name (keras_h5.h)
//   .onnx          onnx_file.h: the names that its own model gives them
//
// A free function, blocking; any thread. For directories (checkpoints) see worker/node/weights_reader.h.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/formats/safetensors.h"
#include "common/model/graph.h"

namespace cairn {

// Tensors under Keras' names and with Keras' shapes; not necessarily those of `graph`, the model that they are for.
// Errors: INVALID_ARGUMENT: unknown file extension; those of the format's reader.
absl::StatusOr<SafetensorsFile> LoadWeights(const std::string& path, const Graph& graph);

}  // namespace cairn
