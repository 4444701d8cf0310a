// Writes and reads a model's weights in the .weights.h5 layout of Keras 3.
//
//   file      := group "vars", and for each layer of model.layers, in Keras' order, a group
//   layer     := "layers/" CLASS ["_" n]   CLASS in snake case; n counts the layers of a class from 1; the first has
//             no suffix
//   variables := layer "/vars/" i          i counts the layer's variables: trainable ones first, in order
//   those of a MultiHeadAttention are one group deeper: layer "/query_dense/vars/0", ...
//
// (keras/src/saving/saving_lib.py; each "vars" has the layer's name as an attribute.) Free functions, blocking; any
// thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/formats/safetensors.h"
#include "common/model/graph.h"

namespace cairn {

class Hdf5Reader;

// The variable's numbers at `path`. A depthwise kernel of one pixel may be a list there: a LayerScale's numbers.
absl::Status ReadKerasVariable(const Hdf5Reader& reader, const std::string& path, const Variable& variable,
                               absl::Span<float> out);

// Layers in the order of Keras' model.layers (keras_order.h), including operations, by the ids of their first nodes.
// The groups in files are numbered by it, so it must equal Keras'.
std::vector<int> KerasOrder(const Graph& graph);

// By node: "layers/conv2d_1"; empty: the layer has no group (the input of a Sequential model).
// layer_scales: as KerasScopes::Groups.
std::vector<std::string> KerasLayerPaths(const Graph& graph, bool layer_scales = false);

// Errors: INTERNAL names the file.
absl::Status WriteKerasWeights(const std::string& path, const Graph& graph, absl::Span<const float> space);

// Reads the bytes of such a file as tensors under the names of `graph`, whose layers are at `layer_paths`. Errors:
// DATA_LOSS: damaged; FAILED_PRECONDITION names a variable that is missing or has another shape; those of ReadHdf5.
absl::StatusOr<SafetensorsFile> ReadKerasWeights(const Buffer& bytes, const std::string& where, const Graph& graph,
                                                 const std::vector<std::string>& layer_paths);

}  // namespace cairn
