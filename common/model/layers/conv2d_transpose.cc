// Conv2DTranspose.
#include <algorithm>

#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/layers/windows.h"
#include "common/model/onnx/axis_order.h"

namespace cairn::layers {
namespace {

// The gradient of a convolution from the output to the input: VALID gives the whole reach of every window, SAME gives
// input * strides.
absl::Status InferConv2DTranspose(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
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

void ReadConv2DTranspose(KerasConfig& c, v1::Layer* layer) {
  v1::Conv2DTranspose* conv = layer->mutable_conv2d_transpose();
  Filters(c, conv);
  Windowed(c, conv);
  Int32Field dilation;
  c.Ints("dilation_rate", &dilation);
  for (const int32_t rate : dilation) {
    if (rate != 1) c.Refuse("dilation_rate: above 1 is not supported; use 1");
  }
  c.Only("output_padding", nullptr, keras::kLeaveAway);
  keras::Kernel(c, conv);
  keras::BiasAndActivation(c, conv);
}

void WriteConv2DTranspose(const Node& node, KerasWriter& c) {
  const v1::Conv2DTranspose& conv = node.layer.conv2d_transpose();
  c["filters"] = conv.filters();
  c.Window(conv);
  c["output_padding"] = nullptr;
  c.ChannelsLast();
  c.Ints("dilation_rate", {1, 1});
  c.ActivationAndBias(conv);
  c.KernelAndBias(conv);
}

// The window is that of the convolution from the output to the input. Where the strides are larger than the kernel, the
// output goes on behind the last window.
void WriteOnnx(const Node& node, OnnxWriter& w) {
  const Window& window = node.window;
  OnnxWriter::Names inputs = {w.In(node, 0, Channels::kFirst), w.VariableOf(node, "kernel", {3, 2, 0, 1},
                                                                            {w.ShapeOf(node, 0).back(), node.output[2],
                                                                             window.kernel[0], window.kernel[1]})};
  if (const std::string bias = w.VariableOf(node, "bias"); !bias.empty()) inputs.push_back(bias);
  const std::string y = w.Op("ConvTranspose", inputs);
  WriteOnnxWindow(w, node, /*dilations=*/false);
  w.Ints("output_padding", {std::max<int64_t>(0, window.strides[0] - window.kernel[0]),
                            std::max<int64_t>(0, window.strides[1] - window.kernel[1])});
  w.Finish(node, y, Channels::kFirst);
}

absl::Status ImportConvTranspose(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor weight, importer.ConstantOf(1, "weight"));
  if (weight.whole || weight.dims.size() != 4 || x.dims.size() != 3 || weight.dims[0] != x.dims[0] ||
      weight.dims[1] < 1) {
    return Lacks("weight ", ToString(weight.dims), " on an input ", ToString(x.dims),
                 "; weights [in,out,h,w] on pictures are read");
  }
  OnnxAttributes attributes(importer.node());
  attributes.Only("group", 1, "Cairn's have one group");
  const Shape kernel(weight.dims.begin() + 2, weight.dims.end());
  const std::vector<int64_t> given = attributes.Ints("kernel_shape"), beyond = attributes.Ints("output_padding");
  if (!given.empty() && given != kernel)
    return Bad("kernel_shape is ", ToString(given), ", its weight ", ToString(weight.dims));
  if (!beyond.empty() && beyond.size() != 2)
    return Bad("attribute \"output_padding\" has ", beyond.size(), " numbers; 2 are needed");
  Window w;
  CAIRN_RETURN_IF_ERROR(ReadOnnxWindow(&attributes, kernel, x, &w));
  if (attributes.Text("auto_pad", "NOTSET") != "NOTSET") return Lacks("attribute \"auto_pad\"; give pads");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  // Keras cuts nothing (VALID), or so much that the output is as large as the strides say (SAME).
  bool valid = true, same = true;
  for (int i = 0; i < 2; ++i) {
    const int64_t over = w.kernel[i] - w.strides[i], more = beyond.empty() ? 0 : beyond[static_cast<size_t>(i)];
    const int64_t cut = std::max<int64_t>(0, over);
    const bool long_enough = more == std::max<int64_t>(0, -over);
    valid = valid && w.dilation[i] == 1 && long_enough && w.pad_begin[i] == 0 && w.pad_end[i] == 0;
    same = same && w.dilation[i] == 1 && long_enough && w.pad_begin[i] == cut / 2 && w.pad_end[i] == cut - cut / 2;
  }
  if (!valid && !same) return Lacks("its pads, output_padding or dilations are not those of Keras' VALID or SAME");
  std::vector<float> bias;
  const int64_t out = weight.dims[1];
  if (importer.HasInput(2)) {
    CAIRN_ASSIGN_OR_RETURN(bias, importer.FloatsOf(2, "bias", out));
  }
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceChannelsLast(x));
  v1::Layer layer;
  v1::Conv2DTranspose* conv = layer.mutable_conv2d_transpose();
  conv->set_filters(static_cast<int32_t>(out));
  conv->set_padding(valid ? v1::VALID : v1::SAME);
  conv->set_use_bias(!bias.empty());
  SetPair(w.kernel, conv->mutable_kernel_size());
  SetPair(w.strides, conv->mutable_strides());
  std::vector<OnnxVariable> variables = {
      {"kernel", {kernel[0], kernel[1], out, x.dims[0]}, InOrder(weight.floats, weight.dims, {2, 3, 1, 0})}};
  if (!bias.empty()) variables.push_back({"bias", {out}, std::move(bias)});
  CAIRN_ASSIGN_OR_RETURN(const int id,
                         importer.AddLayer(LayerKind::kConv2DTranspose, layer, {from}, std::move(variables), 1));
  importer.MarkFoldable(id);
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), ChannelsLast(3)));
  return absl::OkStatus();
}

std::optional<TorchPlace> PlaceKernel(const Graph&, const Variable& v, absl::string_view name) {
  const Shape& s = v.shape;
  if (name != "kernel") return std::nullopt;
  return TorchPlace{"weight", s, {3, 2, 0, 1}, {s[3], s[2], s[0], s[1]}};
}

constexpr KerasClass kKeras[] = {{"Conv2DTranspose", ReadConv2DTranspose}};
constexpr OnnxOperator kOnnx[] = {{"ConvTranspose", ImportConvTranspose}};

}  // namespace

constinit const LayerType kConv2DTransposeLayer = {
    .kind = LayerKind::kConv2DTranspose,
    .field = v1::Layer::kConv2DTranspose,
    .name = "conv2d_transpose",
    .infer = InferConv2DTranspose,
    .keras = kKeras,
    .write_keras = WriteConv2DTranspose,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
    .torch = PlaceKernel,
};

}  // namespace cairn::layers
