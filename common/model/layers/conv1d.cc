// Conv1D.
#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"
#include "common/model/layers/windows.h"

namespace cairn::layers {
namespace {

absl::Status InferConv1D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
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
  CAIRN_RETURN_IF_ERROR(ReadPaddingOrCausal(conv));
  CAIRN_RETURN_IF_ERROR(SlideAxes("kernel", 1, input, conv->padding(), node));
  CAIRN_RETURN_IF_ERROR(NeedPositive("filters", conv->filters(), "32"));
  CAIRN_RETURN_IF_ERROR(ReadGroups(input[1], conv, node));
  node->output[1] = conv->filters();
  CAIRN_RETURN_IF_ERROR(ReadActivation(conv, node));
  CAIRN_RETURN_IF_ERROR(AddKernel(*node, {kernel, input[1] / conv->groups(), conv->filters()}, conv, variables));
  return AddBias(*node, conv->filters(), conv, variables);
}

void ReadConv1D(KerasConfig& c, v1::Layer* layer) {
  v1::Conv1D* conv = layer->mutable_conv1d();
  Filters(c, conv);
  conv->set_kernel_size(OneInt(c, "kernel_size", 0));
  conv->set_strides(OneInt(c, "strides", 1));
  conv->set_dilation_rate(OneInt(c, "dilation_rate", 1));
  conv->set_padding(PaddingOrCausal(c));
  keras::ChannelsLast(c);
  Groups(c, conv);
  keras::Kernel(c, conv);
  keras::BiasAndActivation(c, conv);
}

std::optional<TorchPlace> PlaceKernel(const Graph&, const Variable& v, absl::string_view name) {
  const Shape& s = v.shape;
  if (name != "kernel") return std::nullopt;
  return TorchPlace{"weight", s, {2, 1, 0}, {s[2], s[1], s[0]}};
}

constexpr KerasClass kKeras[] = {{"Conv1D", ReadConv1D}};

}  // namespace

constinit const LayerType kConv1DLayer = {
    .kind = LayerKind::kConv1D,
    .field = v1::Layer::kConv1D,
    .name = "conv1d",
    .infer = InferConv1D,
    .keras = kKeras,
    .write_keras =
        [](const Node& node, KerasWriter& c) {
          WriteConvolution(node.layer.conv1d(), &c);
          WritePaddingOrCausal(node.layer.conv1d().padding(), &c);
        },
    .write_onnx = WriteOnnxConvolution,
    .torch = PlaceKernel,
};

}  // namespace cairn::layers
