#include "common/model/recurrent.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "common/base/check.h"
#include "common/model/activation_numbers.h"

namespace cairn {
namespace {

// The fields that all three messages have.
template <typename Message>
Recurrence ReadCommon(const Message& m, RecurrentCell cell) {
  Recurrence r;
  r.cell = cell;
  r.units = m.units();
  r.activation = m.activation();
  r.dropout = m.dropout();
  r.recurrent_dropout = m.recurrent_dropout();
  r.return_sequences = m.return_sequences();
  r.go_backwards = m.go_backwards();
  r.has_bias = m.use_bias();
  return r;
}

Recurrence ReadLayer(const v1::Layer& layer) {
  switch (layer.kind_case()) {
    case v1::Layer::kSimpleRnn: return ReadCommon(layer.simple_rnn(), RecurrentCell::kSimple);
    case v1::Layer::kLstm: {
      Recurrence r = ReadCommon(layer.lstm(), RecurrentCell::kLstm);
      r.recurrent_activation = layer.lstm().recurrent_activation();
      r.return_cell = layer.lstm().return_cell();
      return r;
    }
    case v1::Layer::kGru: {
      Recurrence r = ReadCommon(layer.gru(), RecurrentCell::kGru);
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
  return kind == LayerKind::kSimpleRNN || kind == LayerKind::kLSTM || kind == LayerKind::kGRU ||
         kind == LayerKind::kBidirectional;
}

std::vector<Recurrence> RecurrencesOf(const v1::Layer& layer) {
  if (!layer.has_bidirectional()) return {ReadLayer(layer)};
  std::vector<Recurrence> both = {ReadLayer(layer.bidirectional().layer()),
                                  ReadLayer(layer.bidirectional().backward_layer())};
  both[1].turned = true;
  both[1].units_before = both[0].units;
  for (Recurrence& r : both) r.zero_masked = r.return_sequences;  // Keras sets it in this way
  return both;
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
  result.recurrences = RecurrencesOf(node.layer);
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
  const int64_t before = r.units_before > 0 ? input + whole(examples * r.units_before) : 0;
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
  if (!layer->has_lstm() || !layer->lstm().unit_forget_bias() || !absl::EndsWith(variable.name, "/bias")) return false;
  *begin = layer->lstm().units();
  *end = 2 * *begin;
  return true;
}

}  // namespace cairn
