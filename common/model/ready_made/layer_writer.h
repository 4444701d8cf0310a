// LayerWriter: writes a model layer by layer. Each call appends a layer whose input is the previous layer and returns
// it, so that the caller can set more fields or name other inputs.
//
// Used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cairn/v1/model.pb.h"

namespace cairn {

class LayerWriter {
 public:
  LayerWriter(const std::string& name, const std::vector<int32_t>& input_shape);

  // The name of the last appended layer. REQUIRED: it has a name.
  const std::string& last() const { return model_.layers(model_.layers_size() - 1).name(); }
  v1::Model Take() { return std::move(model_); }

  v1::Layer& Append(const std::string& name);  // a layer without a kind
  v1::Layer& Rescaling(float scale, float offset = 0);
  v1::Conv2D& Conv2D(const std::string& name, int32_t filters, int32_t kernel, int32_t strides = 1,
                     v1::Padding padding = v1::VALID);
  v1::DepthwiseConv2D& DepthwiseConv2D(const std::string& name, int32_t kernel, int32_t strides, v1::Padding padding);
  void BatchNormalization(const std::string& name, float epsilon, float momentum);
  void Activation(const std::string& name, v1::Activation activation);
  void MaxPooling2D(const std::string& name, int32_t size, int32_t strides, v1::Padding padding = v1::VALID);
  void AveragePooling2D(const std::string& name, int32_t size);
  void ZeroPadding2D(const std::string& name, const std::vector<int32_t>& padding);
  void GlobalAveragePooling2D(const std::string& name);
  void Add(const std::string& name, const std::string& first, const std::string& second);
  void Multiply(const std::string& name, const std::string& first, const std::string& second);
  v1::Concatenate& Concatenate(const std::string& name, const std::string& first, const std::string& second);
  // An operation on the last layer's output and a constant.
  v1::Layer& Operation(const std::string& name, v1::Operation::Kind kind, float constant);
  void Flatten(const std::string& name);
  void Reshape(const std::string& name, const std::vector<int32_t>& shape);
  void LayerNormalization(const std::string& name, float epsilon);
  void Dropout(const std::string& name, float rate);
  void DropPath(const std::string& name, float rate);  // leaves out a whole picture's part of a sum
  v1::Dense& Dense(const std::string& name, int32_t units, v1::Activation activation);
  // Makes the last layers a Sequential inside the model, which is called with `input`'s output.
  void Enclose(const std::string& name, const std::string& input, int layers);
  // Makes `input` the input of the last appended layer, instead of the layer before it.
  void From(const std::string& input);
  v1::Layer* Find(const std::string& name);  // an appended layer
  // The name that Keras makes for the next nameless layer of a class: "add", "add_1", ...
  std::string Numbered(const std::string& kind);

 private:
  v1::Model model_;
  std::map<std::string, int> numbers_;
};

}  // namespace cairn
