// Shared by the category layers: the field output_mode, Keras' names for it, and the encoding in ONNX.
//
// Free functions; any thread. Errors: INVALID_ARGUMENT names the field; the caller adds the layer's name.
#pragma once

#include <initializer_list>
#include <string>

#include "common/base/status.h"
#include "common/model/category_function.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {

// The value must be in [1, kEmbeddingIdsMax]: indices are float32.
absl::Status NeedCategories(const char* field, int64_t value, const char* example);

// Fills in the mode, and checks that it is one of `allowed`, the first of which is the default.
template <typename Layer>
absl::Status ResolveMode(std::initializer_list<v1::EncodingMode> allowed, Layer* layer) {
  CAIRN_ASSIGN_OR_RETURN(
      const v1::EncodingMode mode,
      EncodingModeOf(layer->output_mode(), *allowed.begin(), absl::MakeConstSpan(allowed.begin(), allowed.size())));
  layer->set_output_mode(mode);
  return absl::OkStatus();
}

// Accepts "int", "one_hot", ...; rejects sparse.
v1::EncodingMode ReadMode(KerasConfig& c);
void WriteMode(v1::EncodingMode mode, KerasWriter& c);

// `indices`: INT64, with the shape of the node's input. Sets the node's output.
void WriteOnnxCode(const Node& node, const std::string& indices, OnnxWriter& w);

// Whether the layer can be expressed in ONNX's operators.
absl::Status CheckCategoriesOnnx(const Node& node);

}  // namespace cairn::layers
