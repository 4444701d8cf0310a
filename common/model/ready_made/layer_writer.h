// LayerWriter: writes a model layer by layer. Each call appends a layer whose input is the previous layer and returns
// it, so that the caller can set more fields or name other inputs.
//
// Used by one thread.
#pragma once

#include <cstdint>
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
  void Concatenate(const std::string& name, const std::string& first, const std::string& second);
  void Flatten(const std::string& name);
  void Dropout(const std::string& name, float rate);
  v1::Dense& Dense(const std::string& name, int32_t units, v1::Activation activation);
  // Makes `input` the input of the last appended layer, instead of the layer before it.
  void From(const std::string& input);
  v1::Layer* Find(const std::string& name);  // an appended layer

 private:
  v1::Model model_;
};

}  // namespace cairn
