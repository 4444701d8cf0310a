// DepthwiseConv1D.
#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"

namespace cairn::layers {
namespace {

absl::Status InferDepthwiseConv1D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
  v1::DepthwiseConv1D* conv = node->layer.mutable_depthwise_conv1d();
  CAIRN_RETURN_IF_ERROR(ReadConvAxes(1, input, conv, node));
  CAIRN_RETURN_IF_ERROR(ReadMultiplier(conv));
  node->output[1] = input[1] * conv->depth_multiplier();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  CAIRN_RETURN_IF_ERROR(ResolveInitializer("depthwise_initializer", v1::Initializer::GLOROT_UNIFORM,
                                           conv->mutable_depthwise_initializer()));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "kernel", KernelShape(node->window, 1, input[1], conv->depth_multiplier()),
                                    conv->depthwise_initializer(), variables));
  CAIRN_RETURN_IF_ERROR(RegularizeDepthwise(*conv, variables));
  return AddBias(*node, node->output[1], conv, variables);
}

void ReadDepthwiseConv1D(KerasConfig& c, v1::Layer* layer) {
  v1::DepthwiseConv1D* conv = layer->mutable_depthwise_conv1d();
  WindowedAxes(c, 1, conv);
  c.Only("groups", 1, "use 1");
  DepthMultiplier(c, conv);
  keras::BiasAndActivation(c, conv);
}

void WriteDepthwiseConv1D(const Node& node, KerasWriter& c) {
  const v1::DepthwiseConv1D& conv = node.layer.depthwise_conv1d();
  c.Window(conv);
  WritePaddingOrCausal(conv.padding(), &c);
  WriteDepthwise(conv, &c);
}

std::optional<TorchPlace> PlaceKernel(const Graph&, const Variable& v, absl::string_view name) {
  const Shape& s = v.shape;
  if (name != "kernel") return std::nullopt;
  return TorchPlace{"weight", s, {1, 2, 0}, {s[1] * s[2], 1, s[0]}};
}

constexpr KerasClass kKeras[] = {{"DepthwiseConv1D", ReadDepthwiseConv1D}};

}  // namespace

constinit const LayerType kDepthwiseConv1DLayer = {
    .kind = LayerKind::kDepthwiseConv1D,
    .field = v1::Layer::kDepthwiseConv1D,
    .name = "depthwise_conv1d",
    .infer = InferDepthwiseConv1D,
    .keras = kKeras,
    .write_keras = WriteDepthwiseConv1D,
    .write_onnx = WriteOnnxConvolution,
    .torch = PlaceKernel,
};

}  // namespace cairn::layers
