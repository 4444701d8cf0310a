// Convolutions, poolings, pads and up-sampling: layers that keep an image or a sequence.
#include <algorithm>

#include "common/model/layer_fields.h"

namespace cairn::layers {
namespace {

absl::Status CheckStridesAndDilation(const Window& w) {
  if ((w.strides[0] > 1 || w.strides[1] > 1) && (w.dilation[0] > 1 || w.dilation[1] > 1)) {
    return Bad("strides and dilation_rate are both above 1; set one of them to 1");
  }
  return absl::OkStatus();
}

// kernel_size, strides, dilation_rate and padding of the convolutions over images.
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

// A sequence is an image of height 1.
absl::Status SlideAlong(const char* what, const Shape& input, v1::Padding padding, Node* node) {
  const Shape image = {1, input[0], input[1]};
  Shape output = image;
  const absl::Status status = SlideWindow(what, image, padding, &node->window, &output);
  if (!status.ok()) {
    return Bad(what, " of ", (node->window.kernel[1] - 1) * node->window.dilation[1] + 1,
               " steps is larger than its input ", ToString(input), "; use a smaller one or padding: SAME");
  }
  node->output[0] = output[1];
  return absl::OkStatus();
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

}  // namespace

absl::Status InferConv2D(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::Conv2D* conv = node->layer.mutable_conv2d();
  CAIRN_RETURN_IF_ERROR(ReadConvWindow(input, conv, node));
  CAIRN_RETURN_IF_ERROR(NeedPositive("filters", conv->filters(), "32"));
  node->output[2] = conv->filters();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  const int64_t* kernel = node->window.kernel;
  CAIRN_RETURN_IF_ERROR(AddKernel(*node, {kernel[0], kernel[1], input[2], conv->filters()}, conv, variables));
  return AddBias(*node, conv->filters(), conv, variables);
}

absl::Status InferConv1D(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::Conv1D* conv = node->layer.mutable_conv1d();
  CAIRN_RETURN_IF_ERROR(NeedSequence(input));
  CAIRN_ASSIGN_OR_RETURN(const int32_t kernel,
                         ReadOne("kernel_size", 0, conv->kernel_size() != 0, conv->kernel_size()));
  CAIRN_ASSIGN_OR_RETURN(const int32_t strides, ReadOne("strides", 1, conv->has_strides(), conv->strides()));
  CAIRN_ASSIGN_OR_RETURN(const int32_t dilation,
                         ReadOne("dilation_rate", 1, conv->has_dilation_rate(), conv->dilation_rate()));
  conv->set_strides(strides);
  conv->set_dilation_rate(dilation);
  node->window.kernel[1] = kernel;
  node->window.strides[1] = strides;
  node->window.dilation[1] = dilation;
  CAIRN_RETURN_IF_ERROR(CheckStridesAndDilation(node->window));
  CAIRN_RETURN_IF_ERROR(ReadPadding(conv));
  CAIRN_RETURN_IF_ERROR(SlideAlong("kernel", input, conv->padding(), node));
  CAIRN_RETURN_IF_ERROR(NeedPositive("filters", conv->filters(), "32"));
  node->output[1] = conv->filters();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  CAIRN_RETURN_IF_ERROR(AddKernel(*node, {kernel, input[1], conv->filters()}, conv, variables));
  return AddBias(*node, conv->filters(), conv, variables);
}

absl::Status InferDepthwiseConv2D(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::DepthwiseConv2D* conv = node->layer.mutable_depthwise_conv2d();
  CAIRN_RETURN_IF_ERROR(ReadConvWindow(input, conv, node));
  CAIRN_RETURN_IF_ERROR(ReadMultiplier(conv));
  node->output[2] = input[2] * conv->depth_multiplier();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  CAIRN_RETURN_IF_ERROR(ResolveInitializer("depthwise_initializer", v1::Initializer::GLOROT_UNIFORM,
                                           conv->mutable_depthwise_initializer()));
  CAIRN_RETURN_IF_ERROR(
      AddVariable(*node, "kernel", {node->window.kernel[0], node->window.kernel[1], input[2], conv->depth_multiplier()},
                  conv->depthwise_initializer(), variables));
  CAIRN_RETURN_IF_ERROR(RegularizeDepthwise(*conv, variables));
  return AddBias(*node, node->output[2], conv, variables);
}

absl::Status InferSeparableConv2D(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::SeparableConv2D* conv = node->layer.mutable_separable_conv2d();
  CAIRN_RETURN_IF_ERROR(ReadConvWindow(input, conv, node));
  CAIRN_RETURN_IF_ERROR(ReadMultiplier(conv));
  CAIRN_RETURN_IF_ERROR(NeedPositive("filters", conv->filters(), "32"));
  node->output[2] = conv->filters();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  CAIRN_RETURN_IF_ERROR(ResolveInitializer("depthwise_initializer", v1::Initializer::GLOROT_UNIFORM,
                                           conv->mutable_depthwise_initializer()));
  CAIRN_RETURN_IF_ERROR(ResolveInitializer("pointwise_initializer", v1::Initializer::GLOROT_UNIFORM,
                                           conv->mutable_pointwise_initializer()));
  const int64_t multiplier = conv->depth_multiplier();
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "depthwise_kernel",
                                    {node->window.kernel[0], node->window.kernel[1], input[2], multiplier},
                                    conv->depthwise_initializer(), variables));
  CAIRN_RETURN_IF_ERROR(RegularizeDepthwise(*conv, variables));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "pointwise_kernel", {1, 1, input[2] * multiplier, conv->filters()},
                                    conv->pointwise_initializer(), variables));
  CAIRN_RETURN_IF_ERROR(
      Regularize("pointwise_regularizer", conv->has_pointwise_regularizer(), conv->pointwise_regularizer(), variables));
  return AddBias(*node, conv->filters(), conv, variables);
}

// The gradient of a convolution from the output to the input: VALID gives the whole reach of every window, SAME gives
// input * strides.
absl::Status InferConv2DTranspose(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::Conv2DTranspose* conv = node->layer.mutable_conv2d_transpose();
  Window& w = node->window;
  CAIRN_RETURN_IF_ERROR(NeedImage(input));
  CAIRN_RETURN_IF_ERROR(ReadPair("kernel_size", 0, conv->mutable_kernel_size(), w.kernel));
  CAIRN_RETURN_IF_ERROR(ReadPair("strides", 1, conv->mutable_strides(), w.strides));
  CAIRN_RETURN_IF_ERROR(ReadPadding(conv));
  CAIRN_RETURN_IF_ERROR(NeedPositive("filters", conv->filters(), "32"));
  for (int i = 0; i < 2; ++i) {
    const int64_t beyond = std::max<int64_t>(0, w.kernel[i] - w.strides[i]);
    node->output[i] = input[i] * w.strides[i];
    if (conv->padding() == v1::SAME) {
      w.pad_begin[i] = beyond / 2;
      w.pad_end[i] = beyond - beyond / 2;
    } else {
      node->output[i] += beyond;
    }
  }
  node->output[2] = conv->filters();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  CAIRN_RETURN_IF_ERROR(AddKernel(*node, {w.kernel[0], w.kernel[1], conv->filters(), input[2]}, conv, variables));
  return AddBias(*node, conv->filters(), conv, variables);
}

absl::Status InferPooling2D(const Shape& input, v1::Pooling2D* pooling, Node* node) {
  CAIRN_RETURN_IF_ERROR(NeedImage(input));
  CAIRN_RETURN_IF_ERROR(ReadPair("pool_size", 2, pooling->mutable_pool_size(), node->window.kernel));
  if (pooling->strides().empty()) *pooling->mutable_strides() = pooling->pool_size();
  CAIRN_RETURN_IF_ERROR(ReadPair("strides", 1, pooling->mutable_strides(), node->window.strides));
  CAIRN_RETURN_IF_ERROR(ReadPadding(pooling));
  return SlideWindow("pool", input, pooling->padding(), &node->window, &node->output);
}

absl::Status InferPooling1D(const Shape& input, v1::Pooling1D* pooling, Node* node) {
  CAIRN_RETURN_IF_ERROR(NeedSequence(input));
  CAIRN_ASSIGN_OR_RETURN(const int32_t pool_size,
                         ReadOne("pool_size", 2, pooling->has_pool_size(), pooling->pool_size()));
  CAIRN_ASSIGN_OR_RETURN(const int32_t strides,
                         ReadOne("strides", pool_size, pooling->has_strides(), pooling->strides()));
  pooling->set_pool_size(pool_size);
  pooling->set_strides(strides);
  node->window.kernel[1] = pool_size;
  node->window.strides[1] = strides;
  CAIRN_RETURN_IF_ERROR(ReadPadding(pooling));
  return SlideAlong("pool", input, pooling->padding(), node);
}

absl::Status InferZeroPadding2D(const Shape& input, Node* node) {
  CAIRN_RETURN_IF_ERROR(NeedImage(input));
  Numbers* padding = node->layer.mutable_zero_padding2d()->mutable_padding();
  const Numbers given = *padding;
  int32_t top = 1, bottom = 1, left = 1, right = 1;
  switch (given.size()) {
    case 0: break;
    case 1: top = bottom = left = right = given[0]; break;
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

absl::Status InferUpSampling2D(const Shape& input, Node* node) {
  v1::UpSampling2D* layer = node->layer.mutable_up_sampling2d();
  CAIRN_RETURN_IF_ERROR(NeedImage(input));
  int64_t size[2];
  CAIRN_RETURN_IF_ERROR(ReadPair("size", 2, layer->mutable_size(), size));
  if (!v1::UpSampling2D::Interpolation_IsValid(layer->interpolation())) {
    return Bad("interpolation ", static_cast<int>(layer->interpolation()), " is not known; use NEAREST or BILINEAR");
  }
  if (layer->interpolation() == v1::UpSampling2D::INTERPOLATION_UNSPECIFIED)
    layer->set_interpolation(v1::UpSampling2D::NEAREST);
  for (int i = 0; i < 2; ++i) node->output[i] = input[i] * size[i];
  return absl::OkStatus();
}

}  // namespace cairn::layers
