// What the layers of categories share: the field output_mode, Keras' names of it, how codes are written in ONNX.
//
// Free functions; any thread. Errors: INVALID_ARGUMENT, which field; the caller adds the layer's name.
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

// In [1, kEmbeddingIdsMax]: indices are float32.
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

// "int", "one_hot", ...; sparse is refused.
v1::EncodingMode ReadMode(KerasConfig& c);
void WriteMode(v1::EncodingMode mode, KerasWriter& c);

// `indices`: INT64, of the shape of the node's input. Sets the node's output.
void WriteOnnxCode(const Node& node, const std::string& indices, OnnxWriter& w);

// Whether ONNX's operators can say what the layer does.
absl::Status CheckCategoriesOnnx(const Node& node);

}  // namespace cairn::layers
