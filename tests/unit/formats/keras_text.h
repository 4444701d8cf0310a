// Models of the tests as Keras writes them, in both dialects.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace cairn {

inline std::string KerasLayerText(const std::string& type, const std::string& config) {
  return absl::StrCat(R"({"class_name": ")", type, R"(", "config": {)", config, "}}");
}

// A Sequential model of Keras 2: an input layer of [28, 28, 1], then `layers` (JSON objects with commas between).
inline std::string Keras2Sequential(const std::string& layers) {
  return absl::StrCat(R"({"class_name": "Sequential", "config": {"name": "net", "layers": [
    {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 28, 28, 1], "dtype": "float32", "sparse": false,
     "ragged": false, "name": "input_1"}})",
                      layers.empty() ? "" : ", ", layers, R"(]}, "keras_version": "2.15.0", "backend": "tensorflow"})");
}

inline std::string Keras3Initializer(const std::string& type, const std::string& config = "") {
  return absl::StrCat(R"({"module": "keras.initializers", "class_name": ")", type, R"(", "config": {)", config,
                      R"(}, "registered_name": null})");
}

// What Keras 3 writes into every layer's config: the policy of its dtype.
inline std::string Keras3Common(const std::string& name) {
  return absl::StrCat(R"("name": ")", name, R"(", "trainable": true, "dtype": {"module": "keras", "class_name":
    "DTypePolicy", "config": {"name": "float32"}, "registered_name": null, "shared_object_id": 1})");
}

inline std::string Keras3Layer(const std::string& type, const std::string& name, const std::string& config,
                               const std::string& more = "") {
  return absl::StrCat(R"({"module": "keras.layers", "class_name": ")", type, R"(", "config": {)", Keras3Common(name),
                      config.empty() ? "" : ", ", config, R"(}, "registered_name": null, "build_config":
    {"input_shape": [null, 8, 8, 3]})",
                      more, "}");
}

inline std::string Keras3Tensor(const std::string& layer) {
  return absl::StrCat(R"({"class_name": "__keras_tensor__", "config": {"shape": [null, 8, 8, 3], "dtype": "float32",
    "keras_history": [")",
                      layer, R"(", 0, 0]}})");
}

// A layer of a Functional model. args: JSON values with commas between.
inline std::string Keras3Node(const std::string& type, const std::string& name, const std::string& config,
                              const std::string& args, const std::string& kwargs = "") {
  return Keras3Layer(type, name, config,
                     absl::StrCat(R"(, "name": ")", name, R"(", "inbound_nodes": [{"args": [)", args,
                                  R"(], "kwargs": {)", kwargs, "}}]"));
}

inline std::string Keras3Input(const std::string& name, const std::string& batch_shape) {
  return absl::StrCat(R"({"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": )",
                      batch_shape, R"(, "dtype": "float32", "sparse": false, "ragged": false, "name": ")", name,
                      R"("}, "registered_name": null, "name": ")", name, R"(", "inbound_nodes": []})");
}

inline std::string Keras3Functional(const std::string& layers, const std::string& output,
                                    const std::string& inputs = R"([["image", 0, 0]])") {
  return absl::StrCat(R"({"module": "keras.src.models.functional", "class_name": "Functional", "config":
    {"name": "net", "trainable": true, "layers": [)",
                      layers, R"(], "input_layers": )", inputs, R"(, "output_layers": [[")", output,
                      R"(", 0, 0]]}, "registered_name": "Functional", "build_config": {"input_shape": null}})");
}

}  // namespace cairn
