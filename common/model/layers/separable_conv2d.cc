// SeparableConv2D: a depthwise convolution, then a pointwise one.
#include "common/model/layers/table.h"
#include "common/model/layers/windows.h"

namespace cairn::layers {
namespace {

absl::Status InferSeparableConv2D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
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

void ReadSeparableConv2D(KerasConfig& c, v1::Layer* layer) {
  v1::SeparableConv2D* conv = layer->mutable_separable_conv2d();
  Filters(c, conv);
  Windowed(c, conv);
  c.Ints("dilation_rate", conv->mutable_dilation_rate());
  DepthMultiplier(c, conv);
  if (c.Has("pointwise_initializer")) c.Initializer("pointwise_initializer", conv->mutable_pointwise_initializer());
  keras::Regularizer(c, "pointwise_regularizer", [&] { return conv->mutable_pointwise_regularizer(); });
  keras::BiasAndActivation(c, conv);
}

void WriteSeparableConv2D(const Node& node, KerasWriter& c) {
  const v1::SeparableConv2D& conv = node.layer.separable_conv2d();
  c["filters"] = conv.filters();
  c.Window(conv);
  c.ChannelsLast();
  c.Ints("dilation_rate", conv.dilation_rate());
  c["depth_multiplier"] = conv.depth_multiplier();
  c.ActivationAndBias(conv);
  c.Initializer("depthwise_initializer", conv.depthwise_initializer());
  c.Initializer("pointwise_initializer", conv.pointwise_initializer());
  c.Initializer("bias_initializer", conv.bias_initializer());
  c.Regularizer("depthwise_regularizer", conv.has_depthwise_regularizer(), conv.depthwise_regularizer());
  c.Regularizer("pointwise_regularizer", conv.has_pointwise_regularizer(), conv.pointwise_regularizer());
  c.BiasRegularizer(conv);
  c.Nulls({"depthwise_constraint", "pointwise_constraint", "bias_constraint"});
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const int64_t *k = node.window.kernel, in = w.ShapeOf(node, 0).back();
  const int64_t between = in * node.layer.separable_conv2d().depth_multiplier();
  const std::string x = w.In(node, 0, Channels::kFirst);
  const std::string depthwise =
      w.Op("Conv", {x, w.VariableOf(node, "depthwise_kernel", {2, 3, 0, 1}, {between, 1, k[0], k[1]})});
  w.Int("group", in);
  WriteOnnxWindow(w, node, /*dilations=*/true);
  OnnxWriter::Names inputs = {depthwise,
                              w.VariableOf(node, "pointwise_kernel", {3, 2, 0, 1}, {node.output[2], between, 1, 1})};
  if (const std::string bias = w.VariableOf(node, "bias"); !bias.empty()) inputs.push_back(bias);
  w.Finish(node, w.Op("Conv", inputs), Channels::kFirst);
}

std::optional<TorchPlace> PlaceVariable(const Graph&, const Variable& v, absl::string_view name) {
  const Shape& s = v.shape;
  if (name == "depthwise_kernel") return TorchPlace{"depthwise.weight", s, {2, 3, 0, 1}, {s[2] * s[3], 1, s[0], s[1]}};
  if (name == "pointwise_kernel") return TorchPlace{"pointwise.weight", s, {3, 2, 0, 1}, {s[3], s[2], s[0], s[1]}};
  return TorchPlace{"pointwise.bias", s, {0}, s};
}

constexpr KerasClass kKeras[] = {{"SeparableConv2D", ReadSeparableConv2D}};

}  // namespace

constinit const LayerType kSeparableConv2DLayer = {
    .kind = LayerKind::kSeparableConv2D,
    .field = v1::Layer::kSeparableConv2D,
    .name = "separable_conv2d",
    .infer = InferSeparableConv2D,
    .keras = kKeras,
    .write_keras = WriteSeparableConv2D,
    .write_onnx = WriteOnnx,
    .torch = PlaceVariable,
};

}  // namespace cairn::layers
