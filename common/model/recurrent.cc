#include "common/model/recurrent.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "common/base/check.h"
#include "common/model/activation_numbers.h"
#include "common/model/window.h"

namespace cairn {
namespace {

// The fields that all four messages have.
template <typename Message>
Recurrence ReadCommon(const Message& m, RecurrentCell cell) {
  Recurrence r;
  r.cell = cell;
  r.activation = m.activation();
  r.dropout = m.dropout();
  r.recurrent_dropout = m.recurrent_dropout();
  r.return_sequences = m.return_sequences();
  r.go_backwards = m.go_backwards();
  r.has_bias = m.use_bias();
  return r;
}

Recurrence ReadLayer(const v1::Layer& layer) {
  if (const v1::ConvLSTM* const conv = ConvLstmOf(layer)) {
    Recurrence r = ReadCommon(*conv, RecurrentCell::kLstm);
    r.units = conv->filters();
    r.recurrent_activation = conv->recurrent_activation();
    r.return_cell = conv->return_cell();
    r.windows.axes = ConvLstmAxes(layer);
    return r;
  }
  switch (layer.kind_case()) {
    case v1::Layer::kSimpleRnn: {
      Recurrence r = ReadCommon(layer.simple_rnn(), RecurrentCell::kSimple);
      r.units = layer.simple_rnn().units();
      return r;
    }
    case v1::Layer::kLstm: {
      Recurrence r = ReadCommon(layer.lstm(), RecurrentCell::kLstm);
      r.units = layer.lstm().units();
      r.recurrent_activation = layer.lstm().recurrent_activation();
      r.return_cell = layer.lstm().return_cell();
      return r;
    }
    case v1::Layer::kGru: {
      Recurrence r = ReadCommon(layer.gru(), RecurrentCell::kGru);
      r.units = layer.gru().units();
      r.recurrent_activation = layer.gru().recurrent_activation();
      r.reset_after = layer.gru().reset_after();
      return r;
    }
    default: break;
  }
  CAIRN_CHECK(false, "Graph::Build takes recurrent layers alone here");
  return {};
}

RecurrentMerge MergeOf(v1::Bidirectional::MergeMode mode) {
  switch (mode) {
    case v1::Bidirectional::SUM: return RecurrentMerge::kSum;
    case v1::Bidirectional::MUL: return RecurrentMerge::kMultiply;
    case v1::Bidirectional::AVE: return RecurrentMerge::kAverage;
    default: return RecurrentMerge::kConcat;
  }
}

}  // namespace

bool IsRecurrent(LayerKind kind) {
  switch (kind) {
    case LayerKind::kSimpleRNN:
    case LayerKind::kLSTM:
    case LayerKind::kGRU:
    case LayerKind::kConvLSTM1D:
    case LayerKind::kConvLSTM2D:
    case LayerKind::kConvLSTM3D:
    case LayerKind::kBidirectional: return true;
    default: return false;
  }
}

int ConvLstmAxes(const v1::Layer& layer) {
  return layer.has_conv_lstm1d() ? 1 : layer.has_conv_lstm2d() ? 2 : layer.has_conv_lstm3d() ? 3 : 0;
}

const v1::ConvLSTM* ConvLstmOf(const v1::Layer& layer) {
  switch (ConvLstmAxes(layer)) {
    case 1: return &layer.conv_lstm1d();
    case 2: return &layer.conv_lstm2d();
    case 3: return &layer.conv_lstm3d();
    default: return nullptr;
  }
}

v1::ConvLSTM* MutableConvLstmOf(v1::Layer* layer) {
  switch (ConvLstmAxes(*layer)) {
    case 1: return layer->mutable_conv_lstm1d();
    case 2: return layer->mutable_conv_lstm2d();
    case 3: return layer->mutable_conv_lstm3d();
    default: return nullptr;
  }
}

RecurrentWindows ConvLstmWindows(const v1::ConvLSTM& layer, int axes, const Shape& step) {
  RecurrentWindows windows{.axes = axes, .input = {}, .state = {}, .sides = {}};
  for (int i = 0; i < axes; ++i) {
    WindowAxis input{layer.kernel_size(i), layer.strides(i), layer.dilation_rate(i)}, state{layer.kernel_size(i)};
    const int64_t side = SlideAxis(step[static_cast<size_t>(i)], layer.padding(), &input);
    CAIRN_CHECK(side > 0, "the layer was checked on this input");
    SlideAxis(side, v1::SAME, &state);
    SetAxis(input, axes, i, &windows.input);
    SetAxis(state, axes, i, &windows.state);
    windows.sides.push_back(side);
  }
  return windows;
}

std::vector<Recurrence> RecurrencesOf(const v1::Layer& layer) {
  if (!layer.has_bidirectional()) return {ReadLayer(layer)};
  std::vector<Recurrence> both = {ReadLayer(layer.bidirectional().layer()),
                                  ReadLayer(layer.bidirectional().backward_layer())};
  both[1].turned = true;
  both[1].state_before = both[0].state_numbers();
  for (Recurrence& r : both) r.zero_masked = r.return_sequences;  // Keras sets it in this way
  return both;
}

std::vector<Recurrence> RecurrencesOn(const Shape& input, const v1::Layer& layer) {
  std::vector<Recurrence> all = RecurrencesOf(layer);
  for (size_t i = 0; i < all.size(); ++i) {
    const v1::Layer& own = !layer.has_bidirectional() ? layer
                           : i == 0                   ? layer.bidirectional().layer()
                                                      : layer.bidirectional().backward_layer();
    if (const v1::ConvLSTM* const conv = ConvLstmOf(own)) {
      all[i].windows = ConvLstmWindows(*conv, ConvLstmAxes(own), Shape(input.begin() + 1, input.end()));
    }
    if (i > 0) all[i].state_before = all[0].state_numbers();
  }
  return all;
}

bool GivesCells(const Node& node) {
  if (!IsRecurrent(node.kind)) return false;
  const std::vector<Recurrence> all = RecurrencesOf(node.layer);
  return std::any_of(all.begin(), all.end(), [](const Recurrence& r) { return r.return_cell; });
}

RecurrentLayer RecurrentLayerOf(const Graph& graph, const Node& node) {
  // A repeated call of a layer uses the variables of the first call.
  const Node& owner = node.shares >= 0 ? graph.nodes()[static_cast<size_t>(node.shares)] : node;
  RecurrentLayer result;
  result.recurrences = RecurrencesOn(graph.nodes()[static_cast<size_t>(node.inputs[0])].output, node.layer);
  if (result.recurrences.size() > 1) result.merge = MergeOf(node.layer.bidirectional().merge_mode());
  size_t next = 0;
  int input = 1;
  for (Recurrence& r : result.recurrences) {
    r.kernel = owner.variables[next++];
    r.recurrent_kernel = owner.variables[next++];
    if (r.has_bias) r.bias = owner.variables[next++];
    if (node.inputs.size() == 1) continue;
    r.state_input = input;
    input += static_cast<int>(r.states());
  }
  return result;
}

bool IsElementwise(v1::Activation activation) {
  switch (activation) {
    case v1::ACTIVATION_UNSPECIFIED:
    case v1::SOFTMAX:
    case v1::LOG_SOFTMAX:
    case v1::SPARSEMAX:
    case v1::GLU: return false;
    default: return v1::Activation_IsValid(activation);
  }
}

float RecurrentAlpha(v1::Activation activation) {
  return DefaultAlpha(activation);  // Keras' defaults
}

int64_t RecurrentMaskBegin(const Recurrence& r, bool of_state, int64_t examples, int64_t features) {
  const auto whole = [](int64_t n) { return (n + 3) / 4 * 4; };
  const int64_t input = whole(examples * features);
  const int64_t before = r.state_before > 0 ? input + whole(examples * r.state_before) : 0;
  return before + (of_state ? input : 0);
}

bool FindForgetBias(const Graph& graph, const Variable& variable, int64_t* begin, int64_t* end) {
  const Node& node = graph.nodes()[static_cast<size_t>(variable.node)];
  const v1::Layer* layer = &node.layer;
  if (node.kind == LayerKind::kBidirectional) {
    // The forward layer's variables come first.
    const bool backward =
        !absl::StartsWith(variable.name, node.name + "/" + layer->bidirectional().layer().name() + "/");
    layer = backward ? &layer->bidirectional().backward_layer() : &layer->bidirectional().layer();
  }
  if (!absl::EndsWith(variable.name, "/bias")) return false;
  const v1::ConvLSTM* const conv = ConvLstmOf(*layer);
  if (conv != nullptr ? !conv->unit_forget_bias() : !layer->lstm().unit_forget_bias()) return false;
  *begin = conv != nullptr ? conv->filters() : layer->lstm().units();
  *end = 2 * *begin;
  return true;
}

}  // namespace cairn
