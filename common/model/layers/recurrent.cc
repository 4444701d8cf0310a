#include "common/model/layers/recurrent.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/recurrent_fields.h"
#include "common/model/recurrent.h"

namespace cairn::layers {
namespace {

// Calls fn with the message of the layer's kind.
template <typename Layer, typename Fn>
auto WithMessage(Layer* layer, Fn fn) {
  switch (layer->kind_case()) {
    case v1::Layer::kSimpleRnn: return fn(layer->mutable_simple_rnn());
    case v1::Layer::kLstm: return fn(layer->mutable_lstm());
    default: break;
  }
  CAIRN_CHECK(layer->kind_case() == v1::Layer::kGru, "the caller has looked");
  return fn(layer->mutable_gru());
}

template <typename Message>
constexpr int64_t kGates = std::is_same_v<Message, v1::LSTM>  ? 4
                           : std::is_same_v<Message, v1::GRU> ? 3
                                                              : 1;
template <typename Message>
constexpr size_t kStates = std::is_same_v<Message, v1::LSTM> ? 2 : 1;

template <typename Message>
absl::Status CheckStates(absl::Span<const Shape> inputs, int64_t units) {
  if (inputs.size() == 1) return absl::OkStatus();
  if (inputs.size() != 1 + kStates<Message>) {
    return Bad("it has ", inputs.size(), " inputs; it takes a sequence, and none or all of its first states (",
               kStates<Message>, kStates<Message> == 2 ? ": h and c" : "", ")");
  }
  for (const Shape& state : inputs.subspan(1)) {
    if (state == Shape{units}) continue;
    return Bad("its first state is ", ToString(state), "; it needs [", units, "], one number for each unit");
  }
  return absl::OkStatus();
}

template <typename Message>
absl::Status Infer(absl::Span<const Shape> inputs, const Node& node, const std::string& cell, Message* m, Shape* output,
                   std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
  CAIRN_RETURN_IF_ERROR(NeedSequence(input));
  CAIRN_RETURN_IF_ERROR(NeedPositive("units", m->units(), "64"));
  CAIRN_RETURN_IF_ERROR(CheckStates<Message>(inputs, m->units()));
  CAIRN_RETURN_IF_ERROR(ResolveRecurrentFields(m));
  const int64_t units = m->units(), width = kGates<Message> * units;
  Shape bias = {width};
  if constexpr (std::is_same_v<Message, v1::GRU>) {
    if (!m->has_reset_after()) m->set_reset_after(true);
    if (m->reset_after()) bias = {2, width};
  }
  CAIRN_RETURN_IF_ERROR(
      AddRecurrentVariables(node, cell, {{input[1], width}, {units, width}, std::move(bias)}, *m, variables));
  int64_t each = units;
  if constexpr (std::is_same_v<Message, v1::LSTM>) each = m->return_cell() ? 3 * units : units;
  *output = m->return_sequences() ? Shape{input[0], each} : Shape{each};
  return absl::OkStatus();
}

// ---- Keras ----

template <typename Message>
void Read(KerasConfig& c, Message* m) {
  int32_t units = 0;
  c.Int("units", &units);
  m->set_units(units);
  ReadRecurrentOptions(c, m);
}

template <typename Message>
void Write(const Message& m, KerasWriter& c) {
  WriteRecurrentBase(m, c);
  c["units"] = m.units();
  WriteRecurrentOptions(m, c);
}

}  // namespace

const char* CellNameOf(const v1::Layer& layer) {
  if (ConvLstmAxes(layer) > 0) return "conv_lstm_cell";
  switch (layer.kind_case()) {
    case v1::Layer::kSimpleRnn: return "simple_rnn_cell";
    case v1::Layer::kLstm: return "lstm_cell";
    default: return "gru_cell";
  }
}

absl::Status InferRecurrent(absl::Span<const Shape> inputs, const Node& node, const std::string& prefix,
                            v1::Layer* layer, Shape* output, std::vector<Variable>* variables) {
  const std::string cell = absl::StrCat(prefix, CellNameOf(*layer));
  if (ConvLstmAxes(*layer) > 0) return InferConvLstm(inputs, node, cell, layer, output, variables);
  return WithMessage(layer, [&](auto* m) { return Infer(inputs, node, cell, m, output, variables); });
}

void ReadSimpleRnn(KerasConfig& c, v1::Layer* layer) { Read(c, layer->mutable_simple_rnn()); }

void ReadLstm(KerasConfig& c, v1::Layer* layer) { Read(c, layer->mutable_lstm()); }

void ReadGru(KerasConfig& c, v1::Layer* layer) {
  v1::GRU* gru = layer->mutable_gru();
  Read(c, gru);
  bool reset_after = true;
  c.Bool("reset_after", &reset_after);
  gru->set_reset_after(reset_after);
}

void WriteRecurrentKeras(const Node& node, KerasWriter& c) {
  v1::Layer layer = node.layer;
  WithMessage(&layer, [&](const auto* m) { Write(*m, c); });
}

}  // namespace cairn::layers
