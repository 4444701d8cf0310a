// Conv2D. It also imports ONNX's operator Conv for the other convolutions.
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"
#include "common/model/layers/windows.h"
#include "common/model/onnx/axis_order.h"

namespace cairn::layers {
namespace {

absl::Status InferConv2D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
  v1::Conv2D* conv = node->layer.mutable_conv2d();
  CAIRN_RETURN_IF_ERROR(ReadConvWindow(input, conv, node));
  CAIRN_RETURN_IF_ERROR(NeedPositive("filters", conv->filters(), "32"));
  CAIRN_RETURN_IF_ERROR(ReadGroups(input[2], conv, node));
  node->output[2] = conv->filters();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  const int64_t* kernel = node->window.kernel;
  CAIRN_RETURN_IF_ERROR(
      AddKernel(*node, {kernel[0], kernel[1], input[2] / conv->groups(), conv->filters()}, conv, variables));
  return AddBias(*node, conv->filters(), conv, variables);
}

void ReadConv2D(KerasConfig& c, v1::Layer* layer) {
  v1::Conv2D* conv = layer->mutable_conv2d();
  Filters(c, conv);
  Windowed(c, conv);
  c.Ints("dilation_rate", conv->mutable_dilation_rate());
  Groups(c, conv);
  keras::Kernel(c, conv);
  keras::BiasAndActivation(c, conv);
}

// Fills in the fields that the messages of all convolutions have.
template <typename Conv>
void SetConvolution(const Window& w, int rank, v1::Padding padding, bool bias, Conv* conv) {
  for (int i = 0; i < rank; ++i) {
    const WindowAxis axis = AxisOf(w, rank, i);
    conv->add_kernel_size(static_cast<int32_t>(axis.kernel));
    conv->add_strides(static_cast<int32_t>(axis.stride));
    conv->add_dilation_rate(static_cast<int32_t>(axis.dilation));
  }
  conv->set_padding(padding);
  conv->set_use_bias(bias);
}

struct Described {
  LayerKind kind;
  v1::Layer layer;
};

// Of the operator. Depthwise: one group per channel, with several outputs each.
struct ConvChannels {
  int64_t in = 0, out = 0, groups = 1;
};

Described Describe(const Window& w, int rank, const ConvChannels& channels, v1::Padding padding, bool bias) {
  const int64_t in = channels.in, out = channels.out, groups = channels.groups;
  Described d;
  const auto plain = [&](LayerKind kind, auto* conv) {
    d.kind = kind;
    SetConvolution(w, rank, padding, bias, conv);
    conv->set_filters(static_cast<int32_t>(out));
    conv->set_groups(static_cast<int32_t>(groups));
  };
  const auto depthwise = [&](LayerKind kind, auto* conv) {
    d.kind = kind;
    SetConvolution(w, rank, padding, bias, conv);
    conv->set_depth_multiplier(static_cast<int32_t>(out / in));
  };
  const bool by_channel = groups == in && in > 1;
  if (rank == 3) {
    plain(LayerKind::kConv3D, d.layer.mutable_conv3d());
  } else if (rank == 2) {
    by_channel ? depthwise(LayerKind::kDepthwiseConv2D, d.layer.mutable_depthwise_conv2d())
               : plain(LayerKind::kConv2D, d.layer.mutable_conv2d());
  } else if (by_channel) {
    depthwise(LayerKind::kDepthwiseConv1D, d.layer.mutable_depthwise_conv1d());
  } else {
    d.kind = LayerKind::kConv1D;
    v1::Conv1D* conv = d.layer.mutable_conv1d();
    conv->set_filters(static_cast<int32_t>(out));
    conv->set_groups(static_cast<int32_t>(groups));
    conv->set_kernel_size(static_cast<int32_t>(w.kernel[1]));
    conv->set_strides(static_cast<int32_t>(w.strides[1]));
    conv->set_dilation_rate(static_cast<int32_t>(w.dilation[1]));
    conv->set_padding(padding);
    conv->set_use_bias(bias);
  }
  return d;
}

// Converts a weight [out, in of a group, axes...] to Keras' kernel.
OnnxVariable KernelOf(const OnnxTensor& weight, int rank, int64_t in, bool depthwise) {
  Shape grid = weight.dims;
  if (depthwise) {
    grid[0] = in;
    grid[1] = weight.dims[0] / in;
  }
  std::vector<int> axes;
  for (int i = 0; i < rank; ++i) axes.push_back(i + 2);
  axes.push_back(depthwise ? 0 : 1);
  axes.push_back(depthwise ? 1 : 0);
  return {"kernel", ShapeInOrder(grid, axes), InOrder(weight.floats, grid, axes)};
}

absl::Status ImportConv(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor weight, importer.ConstantOf(1, "weight"));
  if (weight.whole || weight.dims.size() < 3 || weight.dims.size() > 5 || x.dims.size() != weight.dims.size() - 1) {
    return Lacks("weight ", ToString(weight.dims), " on an input ", ToString(x.dims),
                 "; weights [out,in,h,w] on pictures, [out,in,d,h,w] on volumes and [out,in,w] on sequences are read");
  }
  const int rank = static_cast<int>(weight.dims.size()) - 2;
  OnnxAttributes attributes(importer.node());
  const int64_t groups = attributes.Int("group", 1), out = weight.dims[0], in = x.dims[0];
  const Shape kernel(weight.dims.begin() + 2, weight.dims.end());
  const std::vector<int64_t> given = attributes.Ints("kernel_shape");
  if (!given.empty() && given != kernel)
    return Bad("kernel_shape is ", ToString(given), ", its weight ", ToString(weight.dims));
  Window w;
  CAIRN_RETURN_IF_ERROR(ReadOnnxWindow(&attributes, kernel, x, &w));
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (groups < 1 || groups > in || out < 1 || weight.dims[1] < 1 || weight.dims[1] * groups != in ||
      out % groups != 0) {
    return Bad("weight ", ToString(weight.dims), " and group ", groups, " do not fit an input of ", in, " channels");
  }
  std::vector<float> bias;
  if (importer.HasInput(2)) {
    CAIRN_ASSIGN_OR_RETURN(bias, importer.FloatsOf(2, "bias", out));
  }
  CAIRN_ASSIGN_OR_RETURN(int from, importer.layers().PlaceChannelsLast(x));
  CAIRN_ASSIGN_OR_RETURN(const v1::Padding padding, PadFor(importer, w, x, /*zeros_do=*/true, &from));
  const Described conv = Describe(w, rank, {.in = in, .out = out, .groups = groups}, padding, !bias.empty());
  const bool depthwise = conv.kind == LayerKind::kDepthwiseConv2D || conv.kind == LayerKind::kDepthwiseConv1D;
  std::vector<OnnxVariable> variables = {KernelOf(weight, rank, in, depthwise)};
  if (!bias.empty()) variables.push_back({"bias", {out}, std::move(bias)});
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(conv.kind, conv.layer, {from}, std::move(variables), 1));
  importer.MarkFoldable(id);
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), ChannelsLast(x.dims.size())));
  return absl::OkStatus();
}

std::optional<TorchPlace> PlaceKernel(const Graph&, const Variable& v, absl::string_view name) {
  const Shape& s = v.shape;
  if (name != "kernel") return std::nullopt;
  return TorchPlace{"weight", s, {3, 2, 0, 1}, {s[3], s[2], s[0], s[1]}};
}

constexpr KerasClass kKeras[] = {{"Conv2D", ReadConv2D}, {"Convolution2D", ReadConv2D}};
constexpr OnnxOperator kOnnx[] = {{"Conv", ImportConv}};

}  // namespace

constinit const LayerType kConv2DLayer = {
    .kind = LayerKind::kConv2D,
    .field = v1::Layer::kConv2D,
    .name = "conv2d",
    .infer = InferConv2D,
    .keras = kKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteConvolution(node.layer.conv2d(), &c); },
    .write_onnx = WriteOnnxConvolution,
    .onnx = kOnnx,
    .torch = PlaceKernel,
};

}  // namespace cairn::layers
