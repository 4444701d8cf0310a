#include "common/model/graph_shapes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"

namespace cairn {
namespace {

// Kernel sizes, strides, dilations and pads: far beyond any use, and small enough that window arithmetic stays within
// int64_t.
constexpr int64_t kWindowMax = int64_t{1} << 20;

constexpr float kLeakyReluSlope = 0.2f;       // keras.activations.leaky_relu
constexpr float kLeakyReluLayerSlope = 0.3f;  // keras.layers.LeakyReLU

using Numbers = google::protobuf::RepeatedField<int32_t>;

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

// A pair (height, width) given as none, one or two numbers; `fallback` 0: it is required. Writes the pair back to the
// field.
absl::Status ReadPair(const char* field, int64_t fallback, Numbers* numbers, int64_t pair[2]) {
  if (numbers->size() > 2) return Bad(field, " has ", numbers->size(), " numbers; give one, or height and width");
  if (numbers->empty()) {
    if (fallback == 0) return Bad(field, " is missing; give one number, or height and width");
    numbers->Add(static_cast<int32_t>(fallback));
  }
  if (numbers->size() == 1) {
    const int32_t both = numbers->Get(0);
    numbers->Add(both);
  }
  for (int i = 0; i < 2; ++i) {
    pair[i] = numbers->Get(i);
    if (pair[i] <= 0) return Bad(field, " ", pair[i], " is not positive; use 1 or more");
    if (pair[i] > kWindowMax) return Bad(field, " ", pair[i], " is too large; the limit is ", kWindowMax);
  }
  return absl::OkStatus();
}

absl::Status ResolveActivation(v1::Activation* activation) {
  if (!v1::Activation_IsValid(*activation)) {
    return Bad("activation ", static_cast<int>(*activation),
               " is not known; use LINEAR, RELU, LEAKY_RELU, SIGMOID, TANH or SOFTMAX");
  }
  if (*activation == v1::ACTIVATION_UNSPECIFIED) *activation = v1::LINEAR;
  return absl::OkStatus();
}

absl::Status ResolvePadding(v1::Padding* padding) {
  if (!v1::Padding_IsValid(*padding)) {
    return Bad("padding ", static_cast<int>(*padding), " is not known; use VALID or SAME");
  }
  if (*padding == v1::PADDING_UNSPECIFIED) *padding = v1::VALID;
  return absl::OkStatus();
}

absl::Status ResolveInitializer(const char* field, v1::Initializer::Kind fallback, v1::Initializer* initializer) {
  if (!v1::Initializer::Kind_IsValid(initializer->kind())) {
    return Bad(field, ".kind ", static_cast<int>(initializer->kind()), " is not known; use GLOROT_UNIFORM, say");
  }
  if (initializer->value() != 0 && initializer->kind() != v1::Initializer::CONSTANT) {
    return Bad(field, ".value is only for kind CONSTANT; set kind: CONSTANT or leave the value away");
  }
  if (!std::isfinite(initializer->value())) return Bad(field, ".value is not finite; use a number");
  if (initializer->kind() == v1::Initializer::INITIALIZER_UNSPECIFIED) initializer->set_kind(fallback);
  return absl::OkStatus();
}

v1::Initializer OfKind(v1::Initializer::Kind kind) {
  v1::Initializer initializer;
  initializer.set_kind(kind);
  return initializer;
}

// keras.initializers.compute_fans.
void ComputeFans(const Shape& shape, int64_t* fan_in, int64_t* fan_out) {
  if (shape.size() < 2) {
    *fan_in = *fan_out = NumElements(shape);
    return;
  }
  int64_t receptive_field = 1;
  for (size_t i = 0; i + 2 < shape.size(); ++i) receptive_field *= shape[i];
  *fan_in = shape[shape.size() - 2] * receptive_field;
  *fan_out = shape.back() * receptive_field;
}

absl::Status AddVariable(const Node& node, const char* name, Shape shape, const v1::Initializer& initializer,
                         std::vector<Variable>* variables) {
  int64_t size = 1;
  for (int64_t dim : shape) size = SaturatingMultiply(size, dim);
  if (size > kParametersMax) {
    return Bad(name, " ", ToString(shape), " has too many parameters; a model may have ", kParametersMax);
  }
  Variable& variable = variables->emplace_back();
  variable.name = absl::StrCat(node.name, "/", name);
  variable.shape = std::move(shape);
  variable.size = size;
  variable.initializer = initializer;
  ComputeFans(variable.shape, &variable.fan_in, &variable.fan_out);
  return absl::OkStatus();
}

absl::Status NeedImage(const Shape& input) {
  if (input.size() == 3) return absl::OkStatus();
  return Bad(
      "its input is ", ToString(input),
      "; it needs [height, width, channels], so place it before the Flatten or GlobalAveragePooling2D and give the "
      "input layer a shape such as [28,28,1]");
}

// Output height and width of a window over an image, and its pads, by TensorFlow's rules for VALID and SAME.
absl::Status SlideWindow(const char* what, const Shape& input, v1::Padding padding, Window* window, Shape* output) {
  int64_t extent[2];
  for (int i = 0; i < 2; ++i) {
    extent[i] = (window->kernel[i] - 1) * window->dilation[i] + 1;
    if (padding == v1::SAME) {
      (*output)[i] = (input[i] + window->strides[i] - 1) / window->strides[i];
      const int64_t pads = std::max<int64_t>(0, ((*output)[i] - 1) * window->strides[i] + extent[i] - input[i]);
      window->pad_begin[i] = pads / 2;
      window->pad_end[i] = pads - pads / 2;
    }
  }
  if (padding == v1::SAME) return absl::OkStatus();
  if (extent[0] > input[0] || extent[1] > input[1]) {
    const bool dilated = window->dilation[0] > 1 || window->dilation[1] > 1;
    return Bad(what, " [", extent[0], ",", extent[1], "]", dilated ? " (dilated)" : "", " is larger than its input ",
               ToString(input), "; use a smaller one, padding: SAME, or fewer poolings before it");
  }
  for (int i = 0; i < 2; ++i) (*output)[i] = (input[i] - extent[i]) / window->strides[i] + 1;
  return absl::OkStatus();
}

// kernel_size, strides, dilation_rate and padding of the two convolutions.
template <typename Conv>
absl::Status ReadConvWindow(const Shape& input, Conv* conv, Node* node) {
  CAIRN_RETURN_IF_ERROR(NeedImage(input));
  CAIRN_RETURN_IF_ERROR(ReadPair("kernel_size", 0, conv->mutable_kernel_size(), node->window.kernel));
  CAIRN_RETURN_IF_ERROR(ReadPair("strides", 1, conv->mutable_strides(), node->window.strides));
  CAIRN_RETURN_IF_ERROR(ReadPair("dilation_rate", 1, conv->mutable_dilation_rate(), node->window.dilation));
  const Window& w = node->window;
  if ((w.strides[0] > 1 || w.strides[1] > 1) && (w.dilation[0] > 1 || w.dilation[1] > 1)) {
    return Bad("strides and dilation_rate are both above 1; set one of them to 1");
  }
  v1::Padding padding = conv->padding();
  CAIRN_RETURN_IF_ERROR(ResolvePadding(&padding));
  conv->set_padding(padding);
  return SlideWindow("kernel", input, padding, &node->window, &node->output);
}

template <typename Layer>
absl::Status ReadActivation(Layer* layer, Node* node) {
  v1::Activation activation = layer->activation();
  CAIRN_RETURN_IF_ERROR(ResolveActivation(&activation));
  layer->set_activation(activation);
  node->activation = activation;
  if (activation == v1::LEAKY_RELU) node->negative_slope = kLeakyReluSlope;
  return absl::OkStatus();
}

template <typename Layer>
absl::Status AddBias(const Node& node, int64_t size, Layer* layer, std::vector<Variable>* variables) {
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("bias_initializer", v1::Initializer::ZEROS, layer->mutable_bias_initializer()));
  if (!layer->has_use_bias()) layer->set_use_bias(true);
  if (!layer->use_bias()) return absl::OkStatus();
  return AddVariable(node, "bias", {size}, layer->bias_initializer(), variables);
}

absl::Status InferInput(Node* node) {
  const Numbers& shape = node->layer.input().shape();
  if (shape.empty()) return Bad("shape is missing; give it without the batch dimension, such as [28,28,1] or [64]");
  if (shape.size() > 3) {
    return Bad("shape has ", shape.size(), " dimensions; give it without the batch dimension: [features], or ",
               "[height, width, channels]");
  }
  node->output.assign(shape.begin(), shape.end());
  for (int64_t dim : node->output) {
    if (dim <= 0) return Bad("shape ", ToString(node->output), " has a dimension that is not positive");
  }
  return absl::OkStatus();
}

absl::Status InferRescaling(Node* node) {
  const v1::Rescaling& rescaling = node->layer.rescaling();
  if (rescaling.scale() == 0 || !std::isfinite(rescaling.scale())) {
    return Bad("scale is missing, 0 or not finite; use a number such as 0.00392157 (1/255)");
  }
  if (!std::isfinite(rescaling.offset())) return Bad("offset is not finite; use a number");
  return absl::OkStatus();
}

absl::Status InferConv2D(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::Conv2D* conv = node->layer.mutable_conv2d();
  CAIRN_RETURN_IF_ERROR(ReadConvWindow(input, conv, node));
  if (conv->filters() <= 0) return Bad("filters ", conv->filters(), " is not positive; use a number such as 32");
  node->output[2] = conv->filters();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("kernel_initializer", v1::Initializer::GLOROT_UNIFORM, conv->mutable_kernel_initializer()));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "kernel",
                                    {node->window.kernel[0], node->window.kernel[1], input[2], conv->filters()},
                                    conv->kernel_initializer(), variables));
  return AddBias(*node, conv->filters(), conv, variables);
}

absl::Status InferDepthwiseConv2D(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::DepthwiseConv2D* conv = node->layer.mutable_depthwise_conv2d();
  CAIRN_RETURN_IF_ERROR(ReadConvWindow(input, conv, node));
  if (conv->depth_multiplier() == 0) conv->set_depth_multiplier(1);
  if (conv->depth_multiplier() < 0) {
    return Bad("depth_multiplier ", conv->depth_multiplier(), " is not positive; use 1 or more");
  }
  node->output[2] = input[2] * conv->depth_multiplier();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  CAIRN_RETURN_IF_ERROR(ResolveInitializer("depthwise_initializer", v1::Initializer::GLOROT_UNIFORM,
                                           conv->mutable_depthwise_initializer()));
  CAIRN_RETURN_IF_ERROR(
      AddVariable(*node, "kernel", {node->window.kernel[0], node->window.kernel[1], input[2], conv->depth_multiplier()},
                  conv->depthwise_initializer(), variables));
  return AddBias(*node, node->output[2], conv, variables);
}

absl::Status InferBatchNormalization(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::BatchNormalization* bn = node->layer.mutable_batch_normalization();
  if (!bn->has_momentum()) bn->set_momentum(0.99f);
  if (!bn->has_epsilon()) bn->set_epsilon(0.001f);
  if (!bn->has_center()) bn->set_center(true);
  if (!bn->has_scale()) bn->set_scale(true);
  if (!(bn->momentum() >= 0 && bn->momentum() <= 1)) {
    return Bad("momentum ", bn->momentum(), " is outside [0, 1]; use a number such as 0.99");
  }
  if (!(bn->epsilon() > 0) || !std::isfinite(bn->epsilon())) {
    return Bad("epsilon ", bn->epsilon(), " is not positive; use a number such as 0.001");
  }
  const Shape shape = {input.back()};
  const v1::Initializer zeros = OfKind(v1::Initializer::ZEROS);
  const v1::Initializer ones = OfKind(v1::Initializer::ONES);
  if (bn->scale()) CAIRN_RETURN_IF_ERROR(AddVariable(*node, "gamma", shape, ones, variables));
  if (bn->center()) CAIRN_RETURN_IF_ERROR(AddVariable(*node, "beta", shape, zeros, variables));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "moving_mean", shape, zeros, variables));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "moving_variance", shape, ones, variables));
  for (size_t i = variables->size() - 2; i < variables->size(); ++i) {
    (*variables)[i].kind = VariableKind::kMovingAverage;
    (*variables)[i].momentum = bn->momentum();
  }
  return absl::OkStatus();
}

absl::Status InferActivation(Node* node) {
  v1::ActivationLayer* layer = node->layer.mutable_activation();
  if (layer->activation() == v1::ACTIVATION_UNSPECIFIED) return Bad("activation is missing; use RELU, say");
  CAIRN_RETURN_IF_ERROR(ReadActivation(layer, node));
  if (node->activation != v1::LEAKY_RELU) {
    if (layer->has_negative_slope()) return Bad("negative_slope is only for LEAKY_RELU; leave it away");
    return absl::OkStatus();
  }
  if (!layer->has_negative_slope()) layer->set_negative_slope(kLeakyReluLayerSlope);
  if (!(layer->negative_slope() >= 0) || !std::isfinite(layer->negative_slope())) {
    return Bad("negative_slope ", layer->negative_slope(), " is negative or not finite; use a number such as 0.3");
  }
  node->negative_slope = layer->negative_slope();
  return absl::OkStatus();
}

absl::Status InferPooling(const Shape& input, v1::Pooling2D* pooling, Node* node) {
  CAIRN_RETURN_IF_ERROR(NeedImage(input));
  CAIRN_RETURN_IF_ERROR(ReadPair("pool_size", 2, pooling->mutable_pool_size(), node->window.kernel));
  if (pooling->strides().empty()) *pooling->mutable_strides() = pooling->pool_size();
  CAIRN_RETURN_IF_ERROR(ReadPair("strides", 1, pooling->mutable_strides(), node->window.strides));
  v1::Padding padding = pooling->padding();
  CAIRN_RETURN_IF_ERROR(ResolvePadding(&padding));
  pooling->set_padding(padding);
  return SlideWindow("pool", input, padding, &node->window, &node->output);
}

absl::Status InferAdd(absl::Span<const Shape> inputs) {
  for (const Shape& input : inputs) {
    if (input != inputs[0]) {
      return Bad("its inputs have different shapes, ", ToString(inputs[0]), " and ", ToString(input),
                 "; make them equal, by a 1x1 Conv2D on one of them, say");
    }
  }
  return absl::OkStatus();
}

absl::Status InferConcatenate(absl::Span<const Shape> inputs, Node* node) {
  int64_t last = 0;
  for (const Shape& input : inputs) {
    if (input.size() != inputs[0].size() || !std::equal(input.begin(), input.end() - 1, inputs[0].begin())) {
      return Bad("its inputs ", ToString(inputs[0]), " and ", ToString(input),
                 " differ in more than the last axis, along which they are joined; make the other axes equal");
    }
    last += input.back();
  }
  node->output.back() = last;
  return absl::OkStatus();
}

absl::Status InferDense(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::Dense* dense = node->layer.mutable_dense();
  if (dense->units() <= 0) return Bad("units ", dense->units(), " is not positive; use a number such as 10");
  node->output.back() = dense->units();
  CAIRN_RETURN_IF_ERROR(ReadActivation(dense, node));
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("kernel_initializer", v1::Initializer::GLOROT_UNIFORM, dense->mutable_kernel_initializer()));
  CAIRN_RETURN_IF_ERROR(
      AddVariable(*node, "kernel", {input.back(), dense->units()}, dense->kernel_initializer(), variables));
  return AddBias(*node, dense->units(), dense, variables);
}

absl::Status InferZeroPadding2D(const Shape& input, Node* node) {
  CAIRN_RETURN_IF_ERROR(NeedImage(input));
  Numbers* padding = node->layer.mutable_zero_padding2d()->mutable_padding();
  const Numbers given = *padding;
  int32_t top = 1, bottom = 1, left = 1, right = 1;
  switch (given.size()) {
    case 0:
      break;
    case 1:
      top = bottom = left = right = given[0];
      break;
    case 2:
      top = bottom = given[0];
      left = right = given[1];
      break;
    case 4:
      top = given[0];
      bottom = given[1];
      left = given[2];
      right = given[3];
      break;
    default:
      return Bad("padding has ", given.size(),
                 " numbers; give one, two (height, width) or four (top, bottom, left, right)");
  }
  padding->Clear();
  for (int32_t pad : {top, bottom, left, right}) {
    if (pad < 0 || pad > kWindowMax) return Bad("padding ", pad, " is outside 0 .. ", kWindowMax);
    padding->Add(pad);
  }
  node->window.pad_begin[0] = top;
  node->window.pad_end[0] = bottom;
  node->window.pad_begin[1] = left;
  node->window.pad_end[1] = right;
  node->output[0] += top + bottom;
  node->output[1] += left + right;
  return absl::OkStatus();
}

absl::Status InferKind(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::Layer* layer = &node->layer;
  switch (node->kind) {
    case LayerKind::kInput:
      return InferInput(node);
    case LayerKind::kRescaling:
      return InferRescaling(node);
    case LayerKind::kConv2D:
      return InferConv2D(inputs[0], node, variables);
    case LayerKind::kDepthwiseConv2D:
      return InferDepthwiseConv2D(inputs[0], node, variables);
    case LayerKind::kBatchNormalization:
      return InferBatchNormalization(inputs[0], node, variables);
    case LayerKind::kActivation:
      return InferActivation(node);
    case LayerKind::kMaxPooling2D:
      return InferPooling(inputs[0], layer->mutable_max_pooling2d(), node);
    case LayerKind::kAveragePooling2D:
      return InferPooling(inputs[0], layer->mutable_average_pooling2d(), node);
    case LayerKind::kGlobalAveragePooling2D:
      CAIRN_RETURN_IF_ERROR(NeedImage(inputs[0]));
      node->output = {inputs[0][2]};
      return absl::OkStatus();
    case LayerKind::kAdd:
      return InferAdd(inputs);
    case LayerKind::kConcatenate:
      return InferConcatenate(inputs, node);
    case LayerKind::kFlatten:
      node->output = {NumElements(inputs[0])};
      return absl::OkStatus();
    case LayerKind::kDense:
      return InferDense(inputs[0], node, variables);
    case LayerKind::kDropout: {
      const float rate = layer->dropout().rate();
      if (!(rate >= 0 && rate < 1)) return Bad("rate ", rate, " is outside [0, 1); use a number such as 0.5");
      return absl::OkStatus();
    }
    case LayerKind::kZeroPadding2D:
      return InferZeroPadding2D(inputs[0], node);
  }
  return absl::InternalError("a layer kind without inference");
}

}  // namespace

int64_t SaturatingMultiply(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

absl::Status InferLayer(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  if (!inputs.empty()) node->output = inputs[0];  // most layers keep it, or most of it
  CAIRN_RETURN_IF_ERROR(InferKind(inputs, node, variables));
  int64_t size = 1;
  for (int64_t dim : node->output) size = SaturatingMultiply(size, dim);
  if (size > kLayerOutputMax) {
    return Bad("its output ", ToString(node->output), " has too many numbers; the limit is ", kLayerOutputMax,
               " for one example");
  }
  return absl::OkStatus();
}

}  // namespace cairn
