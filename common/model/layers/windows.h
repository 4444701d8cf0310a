// Shared by the layers with windows: convolutions, pooling, padding, up-sampling.
//
// Free functions; any thread. Errors are as those of LayerType's functions.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {

// ---- shapes ----

absl::Status CheckStridesAndDilation(const Window& w);
// A sequence is treated as an image of height 1.
absl::Status SlideAlong(const char* what, const Shape& input, v1::Padding padding, Node* node);
// Reads one number (all sides), two (height, width) or four (top, bottom, left, right), all at least 0; none:
// `fallback` for all. Writes the four numbers back to the field.
absl::Status ReadSides(const char* field, int32_t fallback, Numbers* numbers, int32_t sides[4]);

// Reads kernel_size, strides, dilation_rate and padding of convolutions over images.
template <typename Conv>
absl::Status ReadConvWindow(const Shape& input, Conv* conv, Node* node) {
  CAIRN_RETURN_IF_ERROR(NeedImage(input));
  CAIRN_RETURN_IF_ERROR(ReadPair("kernel_size", 0, conv->mutable_kernel_size(), node->window.kernel));
  CAIRN_RETURN_IF_ERROR(ReadPair("strides", 1, conv->mutable_strides(), node->window.strides));
  CAIRN_RETURN_IF_ERROR(ReadPair("dilation_rate", 1, conv->mutable_dilation_rate(), node->window.dilation));
  CAIRN_RETURN_IF_ERROR(CheckStridesAndDilation(node->window));
  CAIRN_RETURN_IF_ERROR(ReadPadding(conv));
  return SlideWindow("kernel", input, conv->padding(), &node->window, &node->output);
}

template <typename Conv>
absl::Status ReadMultiplier(Conv* conv) {
  if (!conv->has_depth_multiplier()) conv->set_depth_multiplier(1);
  if (conv->depth_multiplier() < 1) {
    return Bad("depth_multiplier ", conv->depth_multiplier(), " is not positive; use 1 or more");
  }
  return absl::OkStatus();
}

template <typename Conv>
absl::Status RegularizeDepthwise(const Conv& conv, std::vector<Variable>* variables) {
  return Regularize("depthwise_regularizer", conv.has_depthwise_regularizer(), conv.depthwise_regularizer(), variables);
}

// ---- Keras ----

template <typename Layer>
void PaddingAndChannels(KerasConfig& c, Layer* layer) {
  v1::Padding padding = v1::VALID;
  c.Padding(&padding);
  layer->set_padding(padding);
  keras::ChannelsLast(c);
}

template <typename Layer>
void Windowed(KerasConfig& c, Layer* layer) {
  c.Ints("kernel_size", layer->mutable_kernel_size());
  c.Ints("strides", layer->mutable_strides());
  PaddingAndChannels(c, layer);
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
  keras::Regularizer(c, "depthwise_regularizer", [&] { return layer->mutable_depthwise_regularizer(); });
  c.Ignore("kernel_initializer");  // an option of the base class in Keras
}

// Reads one number, or a list of one: how Keras writes options of a single axis.
int32_t OneInt(KerasConfig& c, const char* key, int32_t otherwise);
// Reads padding or cropping: 1, [1, 2] or [[1, 2], [3, 4]].
void ReadSides(KerasConfig& c, const char* key, Numbers* out);
void WriteSides(const char* key, const Numbers& sides, KerasWriter* c);

template <typename Convolution>
void WriteConvolution(const Convolution& conv, KerasWriter* c) {
  (*c)["filters"] = conv.filters();
  c->Window(conv);
  c->ChannelsLast();
  c->Ints("dilation_rate", conv.dilation_rate());
  (*c)["groups"] = conv.groups();
  c->ActivationAndBias(conv);
  c->KernelAndBias(conv);
}

// Writes what follows the window and the padding of a depthwise convolution.
template <typename Convolution>
void WriteDepthwise(const Convolution& conv, KerasWriter* c) {
  (*c)["depth_multiplier"] = conv.depth_multiplier();
  c->ChannelsLast();
  c->Ints("dilation_rate", conv.dilation_rate());
  c->ActivationAndBias(conv);
  c->Initializer("depthwise_initializer", conv.depthwise_initializer());
  c->Initializer("bias_initializer", conv.bias_initializer());
  c->Regularizer("depthwise_regularizer", conv.has_depthwise_regularizer(), conv.depthwise_regularizer());
  c->BiasRegularizer(conv);
  c->Nulls({"depthwise_constraint", "bias_constraint"});
}

// ---- ONNX ----

void WriteOnnxWindow(OnnxWriter& w, const Node& node, bool dilations);
// Writes Conv1D, Conv2D, Conv3D, DepthwiseConv1D and DepthwiseConv2D.
void WriteOnnxConvolution(const Node& node, OnnxWriter& w);

template <typename Field>
void SetPair(const int64_t (&pair)[2], Field* field) {
  field->Clear();
  for (const int64_t n : pair) field->Add(static_cast<int32_t>(n));
}

// Reads the window of an operator on x, [channels, axes...]: kernel, strides, dilations and pads.
absl::Status ReadOnnxWindow(OnnxAttributes* attributes, absl::Span<const int64_t> kernel, const OnnxView& x,
                            Window* window);
// Adds a layer that pads the output of layer `from` with zeros by the window's pads.
absl::StatusOr<int> AddPadding(OnnxImporter& importer, const Window& window, int rank, int from);
// Returns VALID or SAME if the window's pads are TensorFlow's. Otherwise inserts a padding layer after *layer and
// updates *layer. zeros_do: zeros as padding do not change the result; if false, other pads are an error.
absl::StatusOr<v1::Padding> PadFor(OnnxImporter& importer, const Window& window, const OnnxView& x, bool zeros_do,
                                   int* layer);

}  // namespace cairn::layers
