// Conv3D.
#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"
#include "common/model/onnx/axis_order.h"

namespace cairn::layers {
namespace {

absl::Status InferConv3D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
  v1::Conv3D* conv = node->layer.mutable_conv3d();
  CAIRN_RETURN_IF_ERROR(ReadConvAxes(3, input, conv, node));
  CAIRN_RETURN_IF_ERROR(NeedPositive("filters", conv->filters(), "32"));
  CAIRN_RETURN_IF_ERROR(ReadGroups(input[3], conv, node));
  node->output[3] = conv->filters();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  CAIRN_RETURN_IF_ERROR(
      AddKernel(*node, KernelShape(node->window, 3, input[3] / conv->groups(), conv->filters()), conv, variables));
  return AddBias(*node, conv->filters(), conv, variables);
}

void ReadConv3D(KerasConfig& c, v1::Layer* layer) {
  v1::Conv3D* conv = layer->mutable_conv3d();
  Filters(c, conv);
  WindowedAxes(c, 3, conv);
  Groups(c, conv);
  keras::Kernel(c, conv);
  keras::BiasAndActivation(c, conv);
}

std::optional<TorchPlace> PlaceKernel(const Graph&, const Variable& v, absl::string_view name) {
  if (name != "kernel") return std::nullopt;
  return TorchPlace{"weight", v.shape, KernelToFront(3), ShapeInOrder(v.shape, KernelToFront(3))};
}

constexpr KerasClass kKeras[] = {{"Conv3D", ReadConv3D}, {"Convolution3D", ReadConv3D}};

}  // namespace

constinit const LayerType kConv3DLayer = {
    .kind = LayerKind::kConv3D,
    .field = v1::Layer::kConv3D,
    .name = "conv3d",
    .infer = InferConv3D,
    .keras = kKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteConvolution(node.layer.conv3d(), &c); },
    .write_onnx = WriteOnnxConvolution,
    .torch = PlaceKernel,
};

}  // namespace cairn::layers
