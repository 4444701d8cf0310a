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
#include "common/model/limits.h"
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

// A lookup's idf_weights: a list of numbers.
template <typename Layer>
void ReadIdfWeights(KerasConfig& c, Layer* layer) {
  const Json* weights = c.Take("idf_weights");
  if (weights == nullptr) return;
  if (!weights->is_array() || weights->size() > static_cast<size_t>(kEmbeddingIdsMax)) {
    return c.Refuse(absl::StrCat("idf_weights: ", ShownJson(*weights), " is not a list of numbers"));
  }
  for (const Json& weight : *weights) {
    if (!weight.is_number()) return c.Refuse(absl::StrCat("idf_weights: ", ShownJson(weight), " is not a number"));
    layer->add_idf_weights(static_cast<float>(weight.get<double>()));
  }
}

template <typename Layer>
void WriteIdfWeights(const Layer& layer, KerasWriter& c) {
  c["idf_weights"] = nullptr;
  if (!layer.idf_weights().empty()) c["idf_weights"] = OrderedJson::array();
  for (const float weight : layer.idf_weights()) c["idf_weights"].push_back(KerasWriter::Rounded(weight));
}

// A vocabulary of texts: a list, and not the path of a file, which is not here.
template <typename Layer>
void ReadTextVocabulary(KerasConfig& c, Layer* layer) {
  const Json* tokens = c.Take("vocabulary");
  if (tokens == nullptr) return;
  if (!tokens->is_array() || tokens->size() > static_cast<size_t>(kEmbeddingIdsMax)) {
    return c.Refuse(absl::StrCat("vocabulary: ", ShownJson(*tokens), " is not a list of texts; give the tokens"));
  }
  for (const Json& token : *tokens) {
    if (!token.is_string()) return c.Refuse(absl::StrCat("vocabulary: ", ShownJson(token), " is not a text"));
    layer->add_vocabulary(token.get<std::string>());
  }
}

template <typename Layer>
void WriteVocabulary(const Layer& layer, KerasWriter& c) {
  c["vocabulary"] = OrderedJson::array();
  for (const auto& token : layer.vocabulary()) c["vocabulary"].push_back(token);
}

// `indices`: INT64, with the shape of the node's input. Sets the node's output.
void WriteOnnxCode(const Node& node, const std::string& indices, OnnxWriter& w);

// Whether the layer can be expressed in ONNX's operators.
absl::Status CheckCategoriesOnnx(const Node& node);

}  // namespace cairn::layers
