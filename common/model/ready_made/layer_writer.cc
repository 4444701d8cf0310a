#include "common/model/ready_made/layer_writer.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace cairn {

LayerWriter::LayerWriter(const std::string& name, const std::vector<int32_t>& input_shape) {
  model_.set_name(name);
  Append("input_layer").mutable_input()->mutable_shape()->Assign(input_shape.begin(), input_shape.end());
}

v1::Layer& LayerWriter::Append(const std::string& name) {
  v1::Layer& layer = *model_.add_layers();
  layer.set_name(name);
  return layer;
}

void LayerWriter::From(const std::string& input) { model_.mutable_layers(model_.layers_size() - 1)->add_inputs(input); }

v1::Layer& LayerWriter::Rescaling(float scale, float offset) {
  v1::Layer& layer = Append("rescaling");
  layer.mutable_rescaling()->set_scale(scale);
  layer.mutable_rescaling()->set_offset(offset);
  return layer;
}

v1::Conv2D& LayerWriter::Conv2D(const std::string& name, int32_t filters, int32_t kernel, int32_t strides,
                                v1::Padding padding) {
  v1::Conv2D& conv = *Append(name).mutable_conv2d();
  conv.set_filters(filters);
  conv.add_kernel_size(kernel);
  conv.add_strides(strides);
  conv.set_padding(padding);
  return conv;
}

v1::DepthwiseConv2D& LayerWriter::DepthwiseConv2D(const std::string& name, int32_t kernel, int32_t strides,
                                                  v1::Padding padding) {
  v1::DepthwiseConv2D& conv = *Append(name).mutable_depthwise_conv2d();
  conv.add_kernel_size(kernel);
  conv.add_strides(strides);
  conv.set_padding(padding);
  return conv;
}

void LayerWriter::BatchNormalization(const std::string& name, float epsilon, float momentum) {
  v1::BatchNormalization& bn = *Append(name).mutable_batch_normalization();
  bn.set_epsilon(epsilon);
  bn.set_momentum(momentum);
}

void LayerWriter::Activation(const std::string& name, v1::Activation activation) {
  Append(name).mutable_activation()->set_activation(activation);
}

void LayerWriter::MaxPooling2D(const std::string& name, int32_t size, int32_t strides, v1::Padding padding) {
  v1::Pooling2D& pooling = *Append(name).mutable_max_pooling2d();
  pooling.add_pool_size(size);
  pooling.add_strides(strides);
  pooling.set_padding(padding);
}

void LayerWriter::AveragePooling2D(const std::string& name, int32_t size) {
  Append(name).mutable_average_pooling2d()->add_pool_size(size);
}

void LayerWriter::ZeroPadding2D(const std::string& name, const std::vector<int32_t>& padding) {
  Append(name).mutable_zero_padding2d()->mutable_padding()->Assign(padding.begin(), padding.end());
}

void LayerWriter::GlobalAveragePooling2D(const std::string& name) { Append(name).mutable_global_average_pooling2d(); }

void LayerWriter::Add(const std::string& name, const std::string& first, const std::string& second) {
  v1::Layer& layer = Append(name);
  layer.mutable_add();
  layer.add_inputs(first);
  layer.add_inputs(second);
}

void LayerWriter::Multiply(const std::string& name, const std::string& first, const std::string& second) {
  v1::Layer& layer = Append(name);
  layer.mutable_multiply();
  layer.add_inputs(first);
  layer.add_inputs(second);
}

v1::Concatenate& LayerWriter::Concatenate(const std::string& name, const std::string& first,
                                          const std::string& second) {
  v1::Layer& layer = Append(name);
  layer.add_inputs(first);
  layer.add_inputs(second);
  return *layer.mutable_concatenate();
}

v1::Layer& LayerWriter::Operation(const std::string& name, v1::Operation::Kind kind, float constant) {
  v1::Layer& layer = Append(name);
  layer.mutable_operation()->set_kind(kind);
  layer.mutable_operation()->add_constant(constant);
  return layer;
}

void LayerWriter::Enclose(const std::string& name, const std::string& input, int layers) {
  v1::Submodel& submodel = *model_.add_submodels();
  submodel.set_name(name);
  submodel.set_sequential(true);
  v1::Submodel::Call& call = *submodel.add_calls();
  call.add_inputs(input);
  call.add_outputs(last());
  for (int i = 1; i <= layers; ++i) model_.mutable_layers(model_.layers_size() - i)->set_submodel(name);
}

v1::Layer* LayerWriter::Find(const std::string& name) {
  for (v1::Layer& layer : *model_.mutable_layers()) {
    if (layer.name() == name) return &layer;
  }
  CAIRN_CHECK(false, "no layer " + name);
}

void LayerWriter::Flatten(const std::string& name) { Append(name).mutable_flatten(); }

void LayerWriter::Reshape(const std::string& name, const std::vector<int32_t>& shape) {
  Append(name).mutable_reshape()->mutable_target_shape()->Assign(shape.begin(), shape.end());
}

void LayerWriter::LayerNormalization(const std::string& name, float epsilon) {
  Append(name).mutable_layer_normalization()->set_epsilon(epsilon);
}

void LayerWriter::DropPath(const std::string& name, float rate) {
  v1::Dropout& dropout = *Append(name).mutable_dropout();
  dropout.set_rate(rate);
  for (int axis = 0; axis < 3; ++axis) dropout.add_noise_shape(1);
}

std::string LayerWriter::Numbered(const std::string& kind) {
  const int number = numbers_[kind]++;
  return number == 0 ? kind : absl::StrCat(kind, "_", number);
}

void LayerWriter::Dropout(const std::string& name, float rate) { Append(name).mutable_dropout()->set_rate(rate); }

v1::Dense& LayerWriter::Dense(const std::string& name, int32_t units, v1::Activation activation) {
  v1::Dense& dense = *Append(name).mutable_dense();
  dense.set_units(units);
  dense.set_activation(activation);
  return dense;
}

}  // namespace cairn
