#include "common/formats/keras_windows.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/formats/keras_layer_parts.h"

namespace cairn {
namespace {

using keras::BiasAndActivation;
using keras::ChannelsLast;
using keras::Kernel;
using keras::kLeaveAway;
using keras::Regularizer;

template <typename Layer>
void PaddingAndChannels(KerasConfig& c, Layer* layer) {
  v1::Padding padding = v1::VALID;
  c.Padding(&padding);
  layer->set_padding(padding);
  ChannelsLast(c);
}

template <typename Layer>
void Windowed(KerasConfig& c, Layer* layer) {
  c.Ints("kernel_size", layer->mutable_kernel_size());
  c.Ints("strides", layer->mutable_strides());
  PaddingAndChannels(c, layer);
  c.Only("groups", 1, "use 1, or a DepthwiseConv2D");
}

template <typename Layer>
void Filters(KerasConfig& c, Layer* layer) {
  int32_t filters = 0;
  c.Int("filters", &filters);
  layer->set_filters(filters);
}

template <typename Layer>
void DepthMultiplier(KerasConfig& c, Layer* layer) {
  int32_t multiplier = 1;
  c.Int("depth_multiplier", &multiplier);
  layer->set_depth_multiplier(multiplier);
  if (c.Has("depthwise_initializer")) c.Initializer("depthwise_initializer", layer->mutable_depthwise_initializer());
  Regularizer(c, "depthwise_regularizer", [&] { return layer->mutable_depthwise_regularizer(); });
  c.Ignore("kernel_initializer");  // of the class that Keras derives from
}

void ReadConv2D(KerasConfig& c, v1::Conv2D* conv) {
  Filters(c, conv);
  Windowed(c, conv);
  c.Ints("dilation_rate", conv->mutable_dilation_rate());
  Kernel(c, conv);
  BiasAndActivation(c, conv);
}

void ReadDepthwiseConv2D(KerasConfig& c, v1::DepthwiseConv2D* conv) {
  Windowed(c, conv);
  c.Ints("dilation_rate", conv->mutable_dilation_rate());
  DepthMultiplier(c, conv);
  BiasAndActivation(c, conv);
}

void ReadSeparableConv2D(KerasConfig& c, v1::SeparableConv2D* conv) {
  Filters(c, conv);
  Windowed(c, conv);
  c.Ints("dilation_rate", conv->mutable_dilation_rate());
  DepthMultiplier(c, conv);
  if (c.Has("pointwise_initializer")) c.Initializer("pointwise_initializer", conv->mutable_pointwise_initializer());
  Regularizer(c, "pointwise_regularizer", [&] { return conv->mutable_pointwise_regularizer(); });
  BiasAndActivation(c, conv);
}

void ReadConv2DTranspose(KerasConfig& c, v1::Conv2DTranspose* conv) {
  Filters(c, conv);
  Windowed(c, conv);
  Int32Field dilation;
  c.Ints("dilation_rate", &dilation);
  for (const int32_t rate : dilation) {
    if (rate != 1) c.Refuse("dilation_rate: above 1 is not supported; use 1");
  }
  c.Only("output_padding", nullptr, kLeaveAway);
  Kernel(c, conv);
  BiasAndActivation(c, conv);
}

// One number, or a list of one: how Keras writes what is along a single axis.
int32_t OneInt(KerasConfig& c, const char* key, int32_t otherwise) {
  Int32Field numbers;
  c.Ints(key, &numbers);
  if (numbers.size() > 1) c.Refuse(absl::StrCat(key, ": more than one number"));
  return numbers.empty() ? otherwise : numbers[0];
}

void ReadConv1D(KerasConfig& c, v1::Conv1D* conv) {
  Filters(c, conv);
  conv->set_kernel_size(OneInt(c, "kernel_size", 0));
  conv->set_strides(OneInt(c, "strides", 1));
  conv->set_dilation_rate(OneInt(c, "dilation_rate", 1));
  PaddingAndChannels(c, conv);
  c.Only("groups", 1, "use 1");
  Kernel(c, conv);
  BiasAndActivation(c, conv);
}

void ReadPooling2D(KerasConfig& c, v1::Pooling2D* pooling) {
  c.Ints("pool_size", pooling->mutable_pool_size());
  c.Ints("strides", pooling->mutable_strides());
  PaddingAndChannels(c, pooling);
}

void ReadPooling1D(KerasConfig& c, v1::Pooling1D* pooling) {
  pooling->set_pool_size(OneInt(c, "pool_size", 2));
  if (const int32_t strides = OneInt(c, "strides", 0); strides != 0) pooling->set_strides(strides);
  PaddingAndChannels(c, pooling);
}

void ReadZeroPadding2D(KerasConfig& c, v1::ZeroPadding2D* layer) {
  ChannelsLast(c);
  const Json* padding = c.Take("padding");
  if (padding == nullptr) return;
  std::vector<Json> numbers;  // 1, [1, 2] or [[1, 2], [3, 4]]
  for (const Json& item : padding->is_array() ? *padding : Json::array({*padding})) {
    if (!item.is_array()) numbers.push_back(item);
    for (const Json& side : item.is_array() ? item : Json::array()) numbers.push_back(side);
  }
  for (const Json& number : numbers) {
    if (!number.is_number_integer() || number.get<double>() < 0 || number.get<double>() > kImageSideMax) {
      return c.Refuse(absl::StrCat("padding: ", ShownJson(*padding),
                                   " is not one number, [h, w] or [[top, bottom], [left, right]]"));
    }
    layer->add_padding(number.get<int32_t>());
  }
}

void ReadUpSampling2D(KerasConfig& c, v1::UpSampling2D* layer) {
  c.Ints("size", layer->mutable_size());
  ChannelsLast(c);
  std::string interpolation = "nearest";
  c.Text("interpolation", &interpolation);
  if (interpolation == "bilinear") layer->set_interpolation(v1::UpSampling2D::BILINEAR);
  if (interpolation != "bilinear" && interpolation != "nearest") {
    c.Refuse(
        absl::StrCat("interpolation: \"", ShownText(interpolation), "\" is not supported; use nearest or bilinear"));
  }
}

}  // namespace

bool ReadWindowLayer(const std::string& type, KerasConfig& c, v1::Layer* out) {
  if (type == "Conv2D" || type == "Convolution2D") return ReadConv2D(c, out->mutable_conv2d()), true;
  if (type == "DepthwiseConv2D") return ReadDepthwiseConv2D(c, out->mutable_depthwise_conv2d()), true;
  if (type == "SeparableConv2D") return ReadSeparableConv2D(c, out->mutable_separable_conv2d()), true;
  if (type == "Conv2DTranspose") return ReadConv2DTranspose(c, out->mutable_conv2d_transpose()), true;
  if (type == "Conv1D") return ReadConv1D(c, out->mutable_conv1d()), true;
  if (type == "MaxPooling2D") return ReadPooling2D(c, out->mutable_max_pooling2d()), true;
  if (type == "AveragePooling2D") return ReadPooling2D(c, out->mutable_average_pooling2d()), true;
  if (type == "MaxPooling1D") return ReadPooling1D(c, out->mutable_max_pooling1d()), true;
  if (type == "AveragePooling1D") return ReadPooling1D(c, out->mutable_average_pooling1d()), true;
  if (type == "ZeroPadding2D") return ReadZeroPadding2D(c, out->mutable_zero_padding2d()), true;
  if (type == "UpSampling2D") return ReadUpSampling2D(c, out->mutable_up_sampling2d()), true;
  return false;
}

}  // namespace cairn
