// Conv1DTranspose, Conv2DTranspose and Conv3DTranspose.
#include <algorithm>

#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"
#include "common/model/onnx/axis_order.h"

namespace cairn::layers {
namespace {

// The gradient of a convolution with respect to its input. With SAME the output has input * strides positions, with
// VALID at least as many, and all that the windows cover. With output_padding it has (input - 1) * strides positions
// plus the window's extent (VALID) or plus 1 if that is odd (SAME), plus output_padding. What SAME cuts off is cut at
// both ends, an odd position at the end (keras.src.backend.common.backend_utils).
template <typename Conv>
absl::Status InferTransposed(int rank, const Shape& input, Conv* conv, Node* node, std::vector<Variable>* variables) {
  int64_t kernel[kWindowAxesMax], strides[kWindowAxesMax], dilation[kWindowAxesMax];
  CAIRN_RETURN_IF_ERROR(NeedAxes(input, rank));
  CAIRN_RETURN_IF_ERROR(ReadAxes("kernel_size", rank, 0, conv->mutable_kernel_size(), kernel));
  CAIRN_RETURN_IF_ERROR(ReadAxes("strides", rank, 1, conv->mutable_strides(), strides));
  CAIRN_RETURN_IF_ERROR(ReadAxes("dilation_rate", rank, 1, conv->mutable_dilation_rate(), dilation));
  CAIRN_RETURN_IF_ERROR(ReadPadding(conv));
  CAIRN_RETURN_IF_ERROR(NeedPositive("filters", conv->filters(), "32"));
  Numbers* const more = conv->mutable_output_padding();
  if (!more->empty() && more->size() != 1 && more->size() != rank)
    return Bad("output_padding has ", more->size(), " numbers; give one, or one for each of the ", rank, " axes");
  while (!more->empty() && more->size() < rank) more->Add(int32_t{more->Get(0)});
  for (int i = 0; i < rank; ++i) {
    WindowAxis axis{kernel[i], strides[i], dilation[i]};
    const int64_t size = input[static_cast<size_t>(i)], reach = ReachOf(axis), whole = (size - 1) * axis.stride + reach;
    int64_t& output = node->output[static_cast<size_t>(i)];
    if (!more->empty() && (more->Get(i) < 0 || more->Get(i) >= axis.stride)) {
      return Bad("output_padding ", more->Get(i), " is not below its stride ", axis.stride,
                 "; use a number from 0 to one less than the stride, or leave it out");
    }
    if (conv->padding() == v1::SAME) {
      output = more->empty() ? size * axis.stride : (size - 1) * axis.stride + reach % 2 + more->Get(i);
      const int64_t cut = std::max<int64_t>(0, whole - output);
      axis.pad_begin = cut / 2;
      axis.pad_end = cut - cut / 2;
    } else {
      output = more->empty() ? whole + std::max<int64_t>(0, axis.stride - reach) : whole + more->Get(i);
    }
    if (output < 1) return Bad("output_padding ", more->Get(i), " leaves nothing of the output; leave it out");
    SetAxis(axis, rank, i, &node->window);
  }
  CAIRN_RETURN_IF_ERROR(CheckAxes(node->window, rank));
  node->output.back() = conv->filters();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  CAIRN_RETURN_IF_ERROR(
      AddKernel(*node, KernelShape(node->window, rank, conv->filters(), input.back()), conv, variables));
  return AddBias(*node, conv->filters(), conv, variables);
}

template <typename Conv>
void ReadTransposed(KerasConfig& c, Conv* conv) {
  Filters(c, conv);
  c.Ints("kernel_size", conv->mutable_kernel_size());
  c.Ints("strides", conv->mutable_strides());
  c.Ints("dilation_rate", conv->mutable_dilation_rate());
  c.Ints("output_padding", conv->mutable_output_padding());
  PaddingAndChannels(c, conv);
  c.Only("groups", 1, "use 1");
  keras::Kernel(c, conv);
  keras::BiasAndActivation(c, conv);
}

template <typename Conv>
void WriteTransposed(const Conv& conv, KerasWriter& c) {
  c["filters"] = conv.filters();
  c.Window(conv);
  if (conv.output_padding().empty()) {
    c["output_padding"] = nullptr;
  } else {
    c.Ints("output_padding", conv.output_padding());
  }
  c.ChannelsLast();
  c.Ints("dilation_rate", conv.dilation_rate());
  c.ActivationAndBias(conv);
  c.KernelAndBias(conv);
}

// Keras' [axes..., out, in] to the [in, out, axes...] of ONNX and PyTorch: the same permutation as for other kernels.
void WriteOnnx(const Node& node, OnnxWriter& w) {
  const int rank = static_cast<int>(node.output.size()) - 1;
  const Shape& input = w.ShapeOf(node, 0);
  Shape dims = {input.back(), node.output.back()};
  std::vector<int64_t> beyond;
  for (int i = 0; i < rank; ++i) {
    const WindowAxis axis = AxisOf(node.window, rank, i);
    const size_t at = static_cast<size_t>(i);
    dims.push_back(axis.kernel);
    // The part of the output beyond the last window.
    beyond.push_back(node.output[at] - ((input[at] - 1) * axis.stride + ReachOf(axis) - axis.pad_begin - axis.pad_end));
  }
  OnnxWriter::Names inputs = {w.In(node, 0, Channels::kFirst), w.VariableOf(node, "kernel", KernelToFront(rank), dims)};
  if (const std::string bias = w.VariableOf(node, "bias"); !bias.empty()) inputs.push_back(bias);
  const std::string y = w.Op("ConvTranspose", inputs);
  WriteOnnxWindow(w, node, /*dilations=*/true);
  w.Ints("output_padding", beyond);
  w.Finish(node, y, Channels::kFirst);
}

// Whether Keras' rule gives the same output with this padding and output_padding, cropped at the same places.
bool IsKeras(const WindowAxis& axis, int64_t beyond, v1::Padding padding, int64_t output_padding) {
  const int64_t reach = ReachOf(axis), cut = axis.pad_begin + axis.pad_end;
  if (output_padding < 0 || output_padding >= axis.stride) return false;
  if (padding == v1::VALID) return cut == 0 && output_padding == beyond;
  // The operator's size is (size - 1) * stride + reach - cut + beyond; Keras cuts `less`, or nothing if it is negative.
  const int64_t less = reach - reach % 2 - output_padding;
  return cut - beyond == less && axis.pad_begin == std::max<int64_t>(0, less) / 2;
}

struct KerasPads {
  v1::Padding padding = v1::VALID;
  std::vector<int32_t> output_padding;  // empty: Keras' rule without it
};

// Finds the padding that gives the operator's output. Errors: there is none.
absl::StatusOr<KerasPads> PadsOf(const Window& w, int rank, const std::vector<int64_t>& beyond) {
  for (const v1::Padding padding : {v1::VALID, v1::SAME}) {
    KerasPads pads{padding, {}};
    bool by_default = true, given = true;
    for (int i = 0; i < rank; ++i) {
      const WindowAxis axis = AxisOf(w, rank, i);
      const int64_t over = ReachOf(axis) - axis.stride, more = beyond[static_cast<size_t>(i)];
      const int64_t cut = padding == v1::SAME ? std::max<int64_t>(0, over) : 0;
      by_default = by_default && more == std::max<int64_t>(0, -over) && axis.pad_begin == cut / 2 &&
                   axis.pad_end == cut - cut / 2;
      const int64_t reach = ReachOf(axis);
      const int64_t output_padding =
          padding == v1::VALID ? more : reach - reach % 2 - axis.pad_begin - axis.pad_end + more;
      given = given && IsKeras(axis, more, padding, output_padding);
      pads.output_padding.push_back(static_cast<int32_t>(output_padding));
    }
    if (by_default) return KerasPads{padding, {}};
    if (given) return pads;
  }
  return Lacks("its pads, output_padding or dilations are not those of Keras' VALID or SAME");
}

template <typename Conv>
void Describe(const Window& w, int rank, int64_t out, bool bias, const KerasPads& pads, Conv* conv) {
  conv->set_filters(static_cast<int32_t>(out));
  conv->set_padding(pads.padding);
  conv->set_use_bias(bias);
  for (int i = 0; i < rank; ++i) {
    const WindowAxis axis = AxisOf(w, rank, i);
    conv->add_kernel_size(static_cast<int32_t>(axis.kernel));
    conv->add_strides(static_cast<int32_t>(axis.stride));
    conv->add_dilation_rate(static_cast<int32_t>(axis.dilation));
  }
  conv->mutable_output_padding()->Assign(pads.output_padding.begin(), pads.output_padding.end());
}

absl::Status ImportConvTranspose(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor weight, importer.ConstantOf(1, "weight"));
  if (weight.whole || weight.dims.size() < 3 || weight.dims.size() > 5 || x.dims.size() != weight.dims.size() - 1 ||
      weight.dims[0] != x.dims[0] || weight.dims[1] < 1) {
    return Lacks("weight ", ToString(weight.dims), " on an input ", ToString(x.dims),
                 "; weights [in,out,h,w] on pictures, [in,out,d,h,w] on volumes and [in,out,w] on sequences are read");
  }
  const int rank = static_cast<int>(weight.dims.size()) - 2;
  OnnxAttributes attributes(importer.node());
  attributes.Only("group", 1, "Cairn's have one group");
  const Shape kernel(weight.dims.begin() + 2, weight.dims.end());
  const std::vector<int64_t> given = attributes.Ints("kernel_shape");
  std::vector<int64_t> beyond = attributes.Ints("output_padding");
  if (!given.empty() && given != kernel)
    return Bad("kernel_shape is ", ToString(given), ", its weight ", ToString(weight.dims));
  if (!beyond.empty() && beyond.size() != static_cast<size_t>(rank))
    return Bad("attribute \"output_padding\" has ", beyond.size(), " numbers; ", rank, " are needed");
  beyond.resize(static_cast<size_t>(rank), 0);
  Window w;
  CAIRN_RETURN_IF_ERROR(ReadOnnxWindow(&attributes, kernel, x, &w));
  if (attributes.Text("auto_pad", "NOTSET") != "NOTSET") return Lacks("attribute \"auto_pad\"; give pads");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  CAIRN_ASSIGN_OR_RETURN(const KerasPads pads, PadsOf(w, rank, beyond));
  std::vector<float> bias;
  const int64_t out = weight.dims[1];
  if (importer.HasInput(2)) {
    CAIRN_ASSIGN_OR_RETURN(bias, importer.FloatsOf(2, "bias", out));
  }
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceChannelsLast(x));
  v1::Layer layer;
  LayerKind kind = LayerKind::kConv2DTranspose;
  if (rank == 1) {
    kind = LayerKind::kConv1DTranspose;
    Describe(w, rank, out, !bias.empty(), pads, layer.mutable_conv1d_transpose());
  } else if (rank == 2) {
    Describe(w, rank, out, !bias.empty(), pads, layer.mutable_conv2d_transpose());
  } else {
    kind = LayerKind::kConv3DTranspose;
    Describe(w, rank, out, !bias.empty(), pads, layer.mutable_conv3d_transpose());
  }
  std::vector<int> to_keras;
  for (int i = 0; i < rank; ++i) to_keras.push_back(i + 2);
  to_keras.insert(to_keras.end(), {1, 0});
  std::vector<OnnxVariable> variables = {
      {"kernel", ShapeInOrder(weight.dims, to_keras), InOrder(weight.floats, weight.dims, to_keras)}};
  if (!bias.empty()) variables.push_back({"bias", {out}, std::move(bias)});
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(kind, layer, {from}, std::move(variables), 1));
  importer.MarkFoldable(id);
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), ChannelsLast(x.dims.size())));
  return absl::OkStatus();
}

std::optional<TorchPlace> PlaceKernel(const Graph&, const Variable& v, absl::string_view name) {
  if (name != "kernel") return std::nullopt;
  const std::vector<int> axes = KernelToFront(static_cast<int>(v.shape.size()) - 2);
  return TorchPlace{"weight", v.shape, axes, ShapeInOrder(v.shape, axes)};
}

constexpr KerasClass kConv1DTransposeKeras[] = {{"Conv1DTranspose", [](KerasConfig& c, v1::Layer* layer) {
                                                   ReadTransposed(c, layer->mutable_conv1d_transpose());
                                                 }}};
constexpr KerasClass kConv2DTransposeKeras[] = {{"Conv2DTranspose", [](KerasConfig& c, v1::Layer* layer) {
                                                   ReadTransposed(c, layer->mutable_conv2d_transpose());
                                                 }}};
constexpr KerasClass kConv3DTransposeKeras[] = {{"Conv3DTranspose", [](KerasConfig& c, v1::Layer* layer) {
                                                   ReadTransposed(c, layer->mutable_conv3d_transpose());
                                                 }}};
constexpr OnnxOperator kOnnx[] = {{"ConvTranspose", ImportConvTranspose}};

}  // namespace

constinit const LayerType kConv1DTransposeLayer = {
    .kind = LayerKind::kConv1DTranspose,
    .field = v1::Layer::kConv1DTranspose,
    .name = "conv1d_transpose",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
          return InferTransposed(1, inputs[0], node->layer.mutable_conv1d_transpose(), node, variables);
        },
    .keras = kConv1DTransposeKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteTransposed(node.layer.conv1d_transpose(), c); },
    .write_onnx = WriteOnnx,
    .torch = PlaceKernel,
};

constinit const LayerType kConv2DTransposeLayer = {
    .kind = LayerKind::kConv2DTranspose,
    .field = v1::Layer::kConv2DTranspose,
    .name = "conv2d_transpose",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
          return InferTransposed(2, inputs[0], node->layer.mutable_conv2d_transpose(), node, variables);
        },
    .keras = kConv2DTransposeKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteTransposed(node.layer.conv2d_transpose(), c); },
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
    .torch = PlaceKernel,
};

constinit const LayerType kConv3DTransposeLayer = {
    .kind = LayerKind::kConv3DTranspose,
    .field = v1::Layer::kConv3DTranspose,
    .name = "conv3d_transpose",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
          return InferTransposed(3, inputs[0], node->layer.mutable_conv3d_transpose(), node, variables);
        },
    .keras = kConv3DTransposeKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteTransposed(node.layer.conv3d_transpose(), c); },
    .write_onnx = WriteOnnx,
    .torch = PlaceKernel,
};

}  // namespace cairn::layers
