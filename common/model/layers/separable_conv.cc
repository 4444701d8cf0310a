// SeparableConv2D and SeparableConv1D: a depthwise convolution, then a pointwise one.
#include <utility>

#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"
#include "common/model/onnx/axis_order.h"

namespace cairn::layers {
namespace {

template <typename Conv>
absl::Status InferSeparable(int rank, const Shape& input, Conv* conv, Node* node, std::vector<Variable>* variables) {
  CAIRN_RETURN_IF_ERROR(ReadConvAxes(rank, input, conv, node));
  CAIRN_RETURN_IF_ERROR(ReadMultiplier(conv));
  CAIRN_RETURN_IF_ERROR(NeedPositive("filters", conv->filters(), "32"));
  node->output.back() = conv->filters();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  CAIRN_RETURN_IF_ERROR(ResolveInitializer("depthwise_initializer", v1::Initializer::GLOROT_UNIFORM,
                                           conv->mutable_depthwise_initializer()));
  CAIRN_RETURN_IF_ERROR(ResolveInitializer("pointwise_initializer", v1::Initializer::GLOROT_UNIFORM,
                                           conv->mutable_pointwise_initializer()));
  const int64_t multiplier = conv->depth_multiplier();
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "depthwise_kernel",
                                    KernelShape(node->window, rank, input.back(), multiplier),
                                    conv->depthwise_initializer(), variables));
  CAIRN_RETURN_IF_ERROR(RegularizeDepthwise(*conv, variables));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "pointwise_kernel",
                                    KernelShape(Window{}, rank, input.back() * multiplier, conv->filters()),
                                    conv->pointwise_initializer(), variables));
  CAIRN_RETURN_IF_ERROR(
      Regularize("pointwise_regularizer", conv->has_pointwise_regularizer(), conv->pointwise_regularizer(), variables));
  return AddBias(*node, conv->filters(), conv, variables);
}

absl::Status InferSeparableConv2D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  return InferSeparable(2, inputs[0], node->layer.mutable_separable_conv2d(), node, variables);
}

absl::Status InferSeparableConv1D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  return InferSeparable(1, inputs[0], node->layer.mutable_separable_conv1d(), node, variables);
}

template <typename Conv>
void ReadSeparable(KerasConfig& c, int rank, Conv* conv) {
  Filters(c, conv);
  WindowedAxes(c, rank, conv);
  c.Only("groups", 1, "use 1");
  DepthMultiplier(c, conv);
  if (c.Has("pointwise_initializer")) c.Initializer("pointwise_initializer", conv->mutable_pointwise_initializer());
  keras::Regularizer(c, "pointwise_regularizer", [&] { return conv->mutable_pointwise_regularizer(); });
  keras::BiasAndActivation(c, conv);
}

template <typename Conv>
void WriteSeparable(const Conv& conv, KerasWriter& c) {
  c["filters"] = conv.filters();
  c.Window(conv);
  WritePaddingOrCausal(conv.padding(), &c);
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

// Keras' [axes..., channels, multiplier] to ONNX' and PyTorch's [channels * multiplier, 1, axes...].
std::vector<int> DepthwiseToFront(int rank) {
  std::vector<int> axes = KernelToFront(rank);
  std::swap(axes[0], axes[1]);
  return axes;
}

Shape DepthwiseDims(const Shape& kernel) {
  Shape dims = {kernel[kernel.size() - 2] * kernel.back(), 1};
  dims.insert(dims.end(), kernel.begin(), kernel.end() - 2);
  return dims;
}

const Variable& VariableAt(const Graph& graph, const Node& node, size_t i) {
  return graph.variables()[static_cast<size_t>(node.variables[i])];
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const int rank = static_cast<int>(node.output.size()) - 1;
  const Shape &depthwise = VariableAt(w.graph(), node, 0).shape, &pointwise = VariableAt(w.graph(), node, 1).shape;
  const std::string x = w.In(node, 0, Channels::kFirst);
  const std::string between =
      w.Op("Conv", {x, w.VariableOf(node, "depthwise_kernel", DepthwiseToFront(rank), DepthwiseDims(depthwise))});
  w.Int("group", w.ShapeOf(node, 0).back());
  WriteOnnxWindow(w, node, /*dilations=*/true);
  OnnxWriter::Names inputs = {between, w.VariableOf(node, "pointwise_kernel", KernelToFront(rank),
                                                    ShapeInOrder(pointwise, KernelToFront(rank)))};
  if (const std::string bias = w.VariableOf(node, "bias"); !bias.empty()) inputs.push_back(bias);
  w.Finish(node, w.Op("Conv", inputs), Channels::kFirst);
}

std::optional<TorchPlace> PlaceVariable(const Graph&, const Variable& v, absl::string_view name) {
  const int rank = static_cast<int>(v.shape.size()) - 2;
  if (name == "depthwise_kernel")
    return TorchPlace{"depthwise.weight", v.shape, DepthwiseToFront(rank), DepthwiseDims(v.shape)};
  if (name == "pointwise_kernel")
    return TorchPlace{"pointwise.weight", v.shape, KernelToFront(rank), ShapeInOrder(v.shape, KernelToFront(rank))};
  return TorchPlace{"pointwise.bias", v.shape, {0}, v.shape};
}

constexpr KerasClass kSeparableConv2DKeras[] = {{"SeparableConv2D", [](KerasConfig& c, v1::Layer* layer) {
                                                   ReadSeparable(c, 2, layer->mutable_separable_conv2d());
                                                 }}};
constexpr KerasClass kSeparableConv1DKeras[] = {{"SeparableConv1D", [](KerasConfig& c, v1::Layer* layer) {
                                                   ReadSeparable(c, 1, layer->mutable_separable_conv1d());
                                                 }}};

}  // namespace

constinit const LayerType kSeparableConv2DLayer = {
    .kind = LayerKind::kSeparableConv2D,
    .field = v1::Layer::kSeparableConv2D,
    .name = "separable_conv2d",
    .infer = InferSeparableConv2D,
    .keras = kSeparableConv2DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteSeparable(node.layer.separable_conv2d(), c); },
    .write_onnx = WriteOnnx,
    .torch = PlaceVariable,
};

constinit const LayerType kSeparableConv1DLayer = {
    .kind = LayerKind::kSeparableConv1D,
    .field = v1::Layer::kSeparableConv1D,
    .name = "separable_conv1d",
    .infer = InferSeparableConv1D,
    .keras = kSeparableConv1DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteSeparable(node.layer.separable_conv1d(), c); },
    .write_onnx = WriteOnnx,
    .torch = PlaceVariable,
};

}  // namespace cairn::layers
