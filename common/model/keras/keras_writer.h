// KerasWriter: builds the config of one Keras layer, as layer.get_config() returns it. Keys are in Keras' order,
// beginning with name, trainable and dtype.
//
// Used by one thread; the node must outlive this object. The first error is kept and returned by Take().
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

using OrderedJson = nlohmann::ordered_json;

// Converts a name to one that Keras 3 accepts: names contain no '/', unlike in Keras 2.
std::string KerasLayerName(std::string name);

// {"module": ..., "class_name": ..., "config": ..., "registered_name": null}
OrderedJson KerasObject(const char* module, const std::string& class_name, OrderedJson config);

class KerasWriter {
 public:
  explicit KerasWriter(const Node& node) : node_(node) {
    json_["name"] = KerasLayerName(node.name);
    json_["trainable"] = node.trainable;
    json_["dtype"] = "float32";
  }

  // The shortest decimal number that rounds to this float32, as Keras writes it.
  static double Rounded(float number);

  OrderedJson& operator[](const char* key) { return json_[key]; }
  void Without(const char* key) { json_.erase(key); }
  void Clear() { json_ = OrderedJson::object(); }
  // Keras' format cannot say it. what: without the layer's name.
  void Refuse(const std::string& what);

  void Ints(const char* key, absl::Span<const int32_t> numbers) {
    json_[key] = OrderedJson::array();
    for (const int32_t number : numbers) json_[key].push_back(number);
  }
  void Ints(const char* key, int32_t number) { Ints(key, absl::MakeConstSpan(&number, 1)); }
  void Padding(v1::Padding padding) { json_["padding"] = padding == v1::SAME ? "same" : "valid"; }
  template <typename Layer>
  void Window(const Layer& layer) {
    Ints("kernel_size", layer.kernel_size());
    Ints("strides", layer.strides());
    Padding(layer.padding());
  }
  void ChannelsLast() { json_["data_format"] = "channels_last"; }
  void Nulls(std::initializer_list<const char*> keys) {
    for (const char* key : keys) json_[key] = nullptr;
  }
  void Initializer(const char* key, const v1::Initializer& initializer);
  void Initializer(const char* key, v1::Initializer::Kind kind);
  void Regularizer(const char* key, bool given, const v1::Regularizer& regularizer);
  // Writes the activation's name for use in a field. Errors: Keras' format has no name for it.
  void Activation(const char* key, v1::Activation activation);
  // Writes the regularizers of the bias and of the outputs, which follow that of the kernel.
  template <typename Layer>
  void BiasRegularizer(const Layer& layer) {
    Regularizer("bias_regularizer", layer.has_bias_regularizer(), layer.bias_regularizer());
    json_["activity_regularizer"] = nullptr;
  }
  template <typename Layer>
  void ActivationAndBias(const Layer& layer) {
    Activation("activation", layer.activation());
    json_["use_bias"] = layer.use_bias();
  }
  template <typename Layer>
  void KernelAndBias(const Layer& layer) {
    Initializer("kernel_initializer", layer.kernel_initializer());
    Initializer("bias_initializer", layer.bias_initializer());
    Regularizer("kernel_regularizer", layer.has_kernel_regularizer(), layer.kernel_regularizer());
    BiasRegularizer(layer);
    Nulls({"kernel_constraint", "bias_constraint"});
  }
  template <typename Layer>
  void ScaleAndCenter(const Layer& layer) {
    json_["epsilon"] = Rounded(layer.epsilon());
    json_["center"] = layer.center();
    json_["scale"] = layer.scale();
    Initializer("beta_initializer", v1::Initializer::ZEROS);
    Initializer("gamma_initializer", v1::Initializer::ONES);
    Regularizer("beta_regularizer", layer.has_beta_regularizer(), layer.beta_regularizer());
    Regularizer("gamma_regularizer", layer.has_gamma_regularizer(), layer.gamma_regularizer());
    Nulls({"beta_constraint", "gamma_constraint"});
  }

  absl::StatusOr<OrderedJson> Take() {
    if (!status_.ok()) return status_;
    return std::move(json_);
  }

 private:
  const Node& node_;
  OrderedJson json_ = OrderedJson::object();
  absl::Status status_;
};

}  // namespace cairn
