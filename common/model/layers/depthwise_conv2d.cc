// DepthwiseConv2D.
#include "common/model/layers/table.h"
#include "common/model/layers/windows.h"

namespace cairn::layers {
namespace {

absl::Status InferDepthwiseConv2D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
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

void ReadDepthwiseConv2D(KerasConfig& c, v1::Layer* layer) {
  v1::DepthwiseConv2D* conv = layer->mutable_depthwise_conv2d();
  Windowed(c, conv);
  c.Only("groups", 1, "use 1");
  c.Ints("dilation_rate", conv->mutable_dilation_rate());
  DepthMultiplier(c, conv);
  keras::BiasAndActivation(c, conv);
}

// LayerScale of keras.applications.ConvNeXt: y = x * gamma, with one gamma per channel. It becomes a depthwise kernel
// of one pixel.
void ReadLayerScale(KerasConfig& c, v1::Layer* layer) {
  v1::DepthwiseConv2D* conv = layer->mutable_depthwise_conv2d();
  conv->add_kernel_size(1);
  conv->set_use_bias(false);
  float value = 0;
  c.Float("init_values", &value);
  if (!c.Has("init_values")) c.Refuse("init_values is missing; give a number such as 1e-6");
  conv->mutable_depthwise_initializer()->set_kind(v1::Initializer::CONSTANT);
  conv->mutable_depthwise_initializer()->set_value(value);
  c.Ignore("projection_dim");  // the model reader compares it with the input's channels
}

void WriteDepthwiseConv2D(const Node& node, KerasWriter& c) {
  const v1::DepthwiseConv2D& conv = node.layer.depthwise_conv2d();
  c.Window(conv);
  WriteDepthwise(conv, &c);
}

std::optional<TorchPlace> PlaceKernel(const Graph&, const Variable& v, absl::string_view name) {
  const Shape& s = v.shape;
  if (name != "kernel") return std::nullopt;
  return TorchPlace{"weight", s, {2, 3, 0, 1}, {s[2] * s[3], 1, s[0], s[1]}};
}

constexpr KerasClass kKeras[] = {{"DepthwiseConv2D", ReadDepthwiseConv2D}, {"LayerScale", ReadLayerScale}};

}  // namespace

constinit const LayerType kDepthwiseConv2DLayer = {
    .kind = LayerKind::kDepthwiseConv2D,
    .field = v1::Layer::kDepthwiseConv2D,
    .name = "depthwise_conv2d",
    .infer = InferDepthwiseConv2D,
    .keras = kKeras,
    .write_keras = WriteDepthwiseConv2D,
    .write_onnx = WriteOnnxConvolution,
    .torch = PlaceKernel,
};

}  // namespace cairn::layers
