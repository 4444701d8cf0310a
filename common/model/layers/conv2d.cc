// Conv2D. Its operator of ONNX is that of Conv1D and DepthwiseConv2D, too.
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/layers/windows.h"
#include "common/model/onnx/axis_order.h"

namespace cairn::layers {
namespace {

absl::Status InferConv2D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
  v1::Conv2D* conv = node->layer.mutable_conv2d();
  CAIRN_RETURN_IF_ERROR(ReadConvWindow(input, conv, node));
  CAIRN_RETURN_IF_ERROR(NeedPositive("filters", conv->filters(), "32"));
  node->output[2] = conv->filters();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  const int64_t* kernel = node->window.kernel;
  CAIRN_RETURN_IF_ERROR(AddKernel(*node, {kernel[0], kernel[1], input[2], conv->filters()}, conv, variables));
  return AddBias(*node, conv->filters(), conv, variables);
}

void ReadConv2D(KerasConfig& c, v1::Layer* layer) {
  v1::Conv2D* conv = layer->mutable_conv2d();
  Filters(c, conv);
  Windowed(c, conv);
  c.Ints("dilation_rate", conv->mutable_dilation_rate());
  keras::Kernel(c, conv);
  keras::BiasAndActivation(c, conv);
}

struct ReadConvolution {
  LayerKind kind;
  v1::Layer layer;
  std::vector<OnnxVariable> variables;
};

// The layer of a Conv, without padding and bias. weight: [out, in of a group, height, width] or [out, in, width].
ReadConvolution Describe(const OnnxTensor& weight, const Window& w, int64_t in, int64_t groups) {
  ReadConvolution conv;
  const int64_t out = weight.dims[0];
  const Shape kernel(weight.dims.begin() + 2, weight.dims.end());
  const auto set_window = [&](auto* layer) {
    SetPair(w.kernel, layer->mutable_kernel_size());
    SetPair(w.strides, layer->mutable_strides());
    SetPair(w.dilation, layer->mutable_dilation_rate());
  };
  if (groups > 1) {
    conv.kind = LayerKind::kDepthwiseConv2D;
    set_window(conv.layer.mutable_depthwise_conv2d());
    conv.layer.mutable_depthwise_conv2d()->set_depth_multiplier(static_cast<int32_t>(out / in));
    conv.variables.push_back({"kernel",
                              {kernel[0], kernel[1], in, out / in},
                              InOrder(weight.floats, {in, out / in, kernel[0], kernel[1]}, {2, 3, 0, 1})});
  } else if (kernel.size() == 2) {
    conv.kind = LayerKind::kConv2D;
    set_window(conv.layer.mutable_conv2d());
    conv.layer.mutable_conv2d()->set_filters(static_cast<int32_t>(out));
    conv.variables.push_back(
        {"kernel", {kernel[0], kernel[1], in, out}, InOrder(weight.floats, weight.dims, {2, 3, 1, 0})});
  } else {
    conv.kind = LayerKind::kConv1D;
    v1::Conv1D* layer = conv.layer.mutable_conv1d();
    layer->set_filters(static_cast<int32_t>(out));
    layer->set_kernel_size(static_cast<int32_t>(w.kernel[1]));
    layer->set_strides(static_cast<int32_t>(w.strides[1]));
    layer->set_dilation_rate(static_cast<int32_t>(w.dilation[1]));
    conv.variables.push_back({"kernel", {kernel[0], in, out}, InOrder(weight.floats, weight.dims, {2, 1, 0})});
  }
  return conv;
}

absl::Status ImportConv(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor weight, importer.ConstantOf(1, "weight"));
  const size_t rank = weight.dims.size();
  if (weight.whole || (rank != 3 && rank != 4) || x.dims.size() != rank - 1) {
    return Lacks("weight ", ToString(weight.dims), " on an input ", ToString(x.dims),
                 "; weights [out,in,h,w] on pictures and [out,in,w] on sequences are read");
  }
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
  const bool depthwise = groups == in && in > 1;
  if (groups != 1 && !(depthwise && rank == 4))
    return Lacks("group ", groups, " of ", in, " channels; 1, and for pictures one for each channel, are read");
  std::vector<float> bias;
  if (importer.HasInput(2)) {
    CAIRN_ASSIGN_OR_RETURN(bias, importer.FloatsOf(2, "bias", out));
  }
  CAIRN_ASSIGN_OR_RETURN(int from, importer.layers().PlaceChannelsLast(x));
  CAIRN_ASSIGN_OR_RETURN(const v1::Padding padding, PadFor(importer, w, x, /*zeros_do=*/true, &from));
  ReadConvolution conv = Describe(weight, w, in, groups);
  const auto finish = [&](auto* layer) {
    layer->set_padding(padding);
    layer->set_use_bias(!bias.empty());
  };
  if (conv.kind == LayerKind::kConv1D) finish(conv.layer.mutable_conv1d());
  if (conv.kind == LayerKind::kConv2D) finish(conv.layer.mutable_conv2d());
  if (conv.kind == LayerKind::kDepthwiseConv2D) finish(conv.layer.mutable_depthwise_conv2d());
  if (!bias.empty()) conv.variables.push_back({"bias", {out}, std::move(bias)});
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(conv.kind, conv.layer, {from}, std::move(conv.variables), 1));
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
