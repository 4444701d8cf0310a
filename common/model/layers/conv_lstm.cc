// ConvLSTM1D, ConvLSTM2D and ConvLSTM3D: an LSTM whose products are convolutions (Shi et al. 2015).
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/layers/recurrent.h"
#include "common/model/layers/recurrent_fields.h"
#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"

namespace cairn::layers {
namespace {

constexpr const char* kInputs[] = {"", "[steps, width, channels]", "[steps, height, width, channels]",
                                   "[steps, depth, height, width, channels]"};

// Checks kernel_size, strides, dilation_rate and padding on a step of the input. Returns the shape of a state.
absl::StatusOr<Shape> ReadStep(int axes, const Shape& step, v1::ConvLSTM* m) {
  if (m->padding() == v1::CAUSAL) return Bad("padding CAUSAL is not one that it has; use VALID or SAME");
  Node slid;
  slid.output = step;
  CAIRN_RETURN_IF_ERROR(ReadConvAxes(axes, step, m, &slid));
  slid.output.back() = m->filters();
  return slid.output;
}

absl::Status CheckStates(absl::Span<const Shape> inputs, const Shape& state) {
  if (inputs.size() == 1) return absl::OkStatus();
  if (inputs.size() != 3) {
    return Bad("it has ", inputs.size(), " inputs; it takes a sequence, and none or both of its first states h and c");
  }
  for (const Shape& given : inputs.subspan(1)) {
    if (given == state) continue;
    return Bad("its first state is ", ToString(given), "; it needs ", ToString(state),
               ", what its output of a step is");
  }
  return absl::OkStatus();
}

absl::Status InferConv(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  return InferRecurrent(inputs, *node, "", &node->layer, &node->output, variables);
}

void ReadConvLstm(KerasConfig& c, int axes, v1::ConvLSTM* m) {
  int32_t filters = 0;
  c.Int("filters", &filters);
  m->set_filters(filters);
  c.Ints("kernel_size", m->mutable_kernel_size());
  c.Ints("strides", m->mutable_strides());
  c.Ints("dilation_rate", m->mutable_dilation_rate());
  PaddingAndChannels(c, m);
  ReadRecurrentOptions(c, m);
  for (const auto& [key, numbers] :
       {std::pair("kernel_size", m->kernel_size_size()), std::pair("strides", m->strides_size()),
        std::pair("dilation_rate", m->dilation_rate_size())}) {
    if (numbers > 1 && numbers != axes) c.Refuse(absl::StrCat(key, ": ", numbers, " numbers; give ", axes));
  }
}

void WriteConvLstmKeras(const Node& node, KerasWriter& c) {
  const v1::ConvLSTM& m = *ConvLstmOf(node.layer);
  WriteRecurrentBase(m, c);
  c["filters"] = m.filters();
  c.Window(m);
  c.ChannelsLast();
  c.Ints("dilation_rate", m.dilation_rate());
  WriteRecurrentOptions(m, c);
}

template <int kAxes>
void Read(KerasConfig& c, v1::Layer* layer) {
  ReadConvLstm(c, kAxes,
               kAxes == 1   ? layer->mutable_conv_lstm1d()
               : kAxes == 2 ? layer->mutable_conv_lstm2d()
                            : layer->mutable_conv_lstm3d());
}

constexpr KerasClass kKeras1D[] = {{"ConvLSTM1D", Read<1>, kRecurrentCall}};
constexpr KerasClass kKeras2D[] = {{"ConvLSTM2D", Read<2>, kRecurrentCall}};
constexpr KerasClass kKeras3D[] = {{"ConvLSTM3D", Read<3>, kRecurrentCall}};
constexpr KerasSublayer kSublayers[] = {{"conv_lstm_cell", "cell"}};

}  // namespace

absl::Status InferConvLstm(absl::Span<const Shape> inputs, const Node& node, const std::string& cell, v1::Layer* layer,
                           Shape* output, std::vector<Variable>* variables) {
  v1::ConvLSTM* const m = MutableConvLstmOf(layer);
  const int axes = ConvLstmAxes(*layer);
  const Shape& input = inputs[0];
  if (input.size() != static_cast<size_t>(axes) + 2) {
    return Bad("its input is ", ToString(input), "; it needs ", kInputs[axes]);
  }
  CAIRN_RETURN_IF_ERROR(NeedPositive("filters", m->filters(), "32"));
  CAIRN_ASSIGN_OR_RETURN(Shape state, ReadStep(axes, Shape(input.begin() + 1, input.end()), m));
  CAIRN_RETURN_IF_ERROR(CheckStates(inputs, state));
  CAIRN_RETURN_IF_ERROR(ResolveRecurrentFields(m));
  const int64_t filters = m->filters(), width = 4 * filters;
  Shape kernel(m->kernel_size().begin(), m->kernel_size().end());
  kernel.insert(kernel.end(), {input.back(), width});
  Shape recurrent = kernel;
  recurrent[static_cast<size_t>(axes)] = filters;
  CAIRN_RETURN_IF_ERROR(
      AddRecurrentVariables(node, cell, {std::move(kernel), std::move(recurrent), {width}}, *m, variables));
  *output = std::move(state);
  if (m->return_cell()) output->back() = 3 * filters;
  if (m->return_sequences()) output->insert(output->begin(), input[0]);
  return absl::OkStatus();
}

constinit const LayerType kConvLSTM1DLayer = {
    .kind = LayerKind::kConvLSTM1D,
    .field = v1::Layer::kConvLstm1D,
    .name = "conv_lstm1d",
    .inputs_max = 3,
    .infer = InferConv,
    .keras = kKeras1D,
    .write_keras = WriteConvLstmKeras,
    .sublayers = kSublayers,
    .write_onnx = WriteRecurrentOnnx,
};

constinit const LayerType kConvLSTM2DLayer = {
    .kind = LayerKind::kConvLSTM2D,
    .field = v1::Layer::kConvLstm2D,
    .name = "conv_lstm2d",
    .inputs_max = 3,
    .infer = InferConv,
    .keras = kKeras2D,
    .write_keras = WriteConvLstmKeras,
    .sublayers = kSublayers,
    .write_onnx = WriteRecurrentOnnx,
};

constinit const LayerType kConvLSTM3DLayer = {
    .kind = LayerKind::kConvLSTM3D,
    .field = v1::Layer::kConvLstm3D,
    .name = "conv_lstm3d",
    .inputs_max = 3,
    .infer = InferConv,
    .keras = kKeras3D,
    .write_keras = WriteConvLstmKeras,
    .sublayers = kSublayers,
    .write_onnx = WriteRecurrentOnnx,
};

}  // namespace cairn::layers
