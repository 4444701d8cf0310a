#include "common/model/layers/recurrent.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
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
constexpr bool kHasGates = !std::is_same_v<Message, v1::SimpleRNN>;
template <typename Message>
constexpr int64_t kGates = std::is_same_v<Message, v1::LSTM>  ? 4
                           : std::is_same_v<Message, v1::GRU> ? 3
                                                              : 1;
template <typename Message>
constexpr size_t kStates = std::is_same_v<Message, v1::LSTM> ? 2 : 1;

absl::Status ResolveElementwise(const char* field, v1::Activation* activation) {
  CAIRN_RETURN_IF_ERROR(ResolveActivation(activation));
  if (IsElementwise(*activation)) return absl::OkStatus();
  return Bad(field, " ", v1::Activation_Name(*activation),
             " is not one that a recurrent layer has; use TANH, SIGMOID, RELU or LINEAR, say");
}

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
  CAIRN_RETURN_IF_ERROR(NeedRate("dropout", m->dropout()));
  CAIRN_RETURN_IF_ERROR(NeedRate("recurrent_dropout", m->recurrent_dropout()));
  v1::Activation activation = m->has_activation() ? m->activation() : v1::TANH;
  CAIRN_RETURN_IF_ERROR(ResolveElementwise("activation", &activation));
  m->set_activation(activation);
  if constexpr (kHasGates<Message>) {
    v1::Activation gate = m->has_recurrent_activation() ? m->recurrent_activation() : v1::SIGMOID;
    CAIRN_RETURN_IF_ERROR(ResolveElementwise("recurrent_activation", &gate));
    m->set_recurrent_activation(gate);
  }
  if (!m->has_use_bias()) m->set_use_bias(true);
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("kernel_initializer", v1::Initializer::GLOROT_UNIFORM, m->mutable_kernel_initializer()));
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("recurrent_initializer", v1::Initializer::ORTHOGONAL, m->mutable_recurrent_initializer()));
  CAIRN_RETURN_IF_ERROR(ResolveInitializer("bias_initializer", v1::Initializer::ZEROS, m->mutable_bias_initializer()));
  const int64_t units = m->units(), width = kGates<Message> * units;
  const auto add = [&](const char* name, Shape shape, const v1::Initializer& initializer) {
    return AddVariable(node, absl::StrCat(cell, "/", name).c_str(), std::move(shape), initializer, variables);
  };
  CAIRN_RETURN_IF_ERROR(add("kernel", {input[1], width}, m->kernel_initializer()));
  CAIRN_RETURN_IF_ERROR(
      Regularize("kernel_regularizer", m->has_kernel_regularizer(), m->kernel_regularizer(), variables));
  CAIRN_RETURN_IF_ERROR(add("recurrent_kernel", {units, width}, m->recurrent_initializer()));
  CAIRN_RETURN_IF_ERROR(
      Regularize("recurrent_regularizer", m->has_recurrent_regularizer(), m->recurrent_regularizer(), variables));
  if (m->use_bias()) {
    Shape shape = {width};
    if constexpr (std::is_same_v<Message, v1::GRU>) {
      if (!m->has_reset_after() || m->reset_after()) shape = {2, width};
    }
    CAIRN_RETURN_IF_ERROR(add("bias", shape, m->bias_initializer()));
    CAIRN_RETURN_IF_ERROR(Regularize("bias_regularizer", m->has_bias_regularizer(), m->bias_regularizer(), variables));
  }
  if constexpr (std::is_same_v<Message, v1::GRU>) {
    if (!m->has_reset_after()) m->set_reset_after(true);
  }
  if constexpr (std::is_same_v<Message, v1::LSTM>) {
    if (!m->has_unit_forget_bias()) m->set_unit_forget_bias(true);
  }
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
  v1::Activation activation = v1::LINEAR;  // null
  c.Activation("activation", &activation);
  m->set_activation(activation);
  if constexpr (kHasGates<Message>) {
    v1::Activation gate = v1::LINEAR;
    c.Activation("recurrent_activation", &gate);
    m->set_recurrent_activation(gate);
  }
  keras::Kernel(c, m);
  keras::Bias(c, m);
  if (c.Has("recurrent_initializer")) c.Initializer("recurrent_initializer", m->mutable_recurrent_initializer());
  keras::Regularizer(c, "recurrent_regularizer", [&] { return m->mutable_recurrent_regularizer(); });
  float dropout = 0, recurrent_dropout = 0;
  c.Float("dropout", &dropout);
  c.Float("recurrent_dropout", &recurrent_dropout);
  m->set_dropout(dropout);
  m->set_recurrent_dropout(recurrent_dropout);
  bool return_sequences = false, go_backwards = false;
  c.Bool("return_sequences", &return_sequences);
  c.Bool("go_backwards", &go_backwards);
  m->set_return_sequences(return_sequences);
  m->set_go_backwards(go_backwards);
  c.Only("return_state", false, "only a Functional model takes states as outputs of a layer; leave it out");
  c.Only("stateful", false,
         "a batch knows nothing of the one before it; leave it out, or train the model as a program of your own "
         "(docs/programs.md)");
  c.Only("zero_output_for_mask", false, keras::kLeaveAway);
  c.Only("time_major", false, "the batch comes first; leave it out");
  for (const char* key : {"unroll", "implementation"}) c.Ignore(key);  // they select an implementation, not a result
}

template <typename Message>
void Write(const Message& m, KerasWriter& c) {
  c["return_sequences"] = m.return_sequences();
  c["return_state"] = false;
  if constexpr (std::is_same_v<Message, v1::LSTM>) c["return_state"] = m.return_cell();
  c["go_backwards"] = m.go_backwards();
  c["stateful"] = false;
  c["unroll"] = false;
  c["zero_output_for_mask"] = false;
  c["units"] = m.units();
  c.Activation("activation", m.activation());
  if constexpr (kHasGates<Message>) c.Activation("recurrent_activation", m.recurrent_activation());
  c["use_bias"] = m.use_bias();
  c.Initializer("kernel_initializer", m.kernel_initializer());
  c.Initializer("recurrent_initializer", m.recurrent_initializer());
  c.Initializer("bias_initializer", m.bias_initializer());
  if constexpr (std::is_same_v<Message, v1::LSTM>) c["unit_forget_bias"] = m.unit_forget_bias();
  c.Regularizer("kernel_regularizer", m.has_kernel_regularizer(), m.kernel_regularizer());
  c.Regularizer("recurrent_regularizer", m.has_recurrent_regularizer(), m.recurrent_regularizer());
  c.BiasRegularizer(m);
  c.Nulls({"kernel_constraint", "recurrent_constraint", "bias_constraint"});
  c["dropout"] = KerasWriter::Rounded(m.dropout());
  c["recurrent_dropout"] = KerasWriter::Rounded(m.recurrent_dropout());
  if constexpr (std::is_same_v<Message, v1::GRU>) c["reset_after"] = m.reset_after();
  c.Nulls({"seed"});
}

}  // namespace

const char* CellNameOf(const v1::Layer& layer) {
  switch (layer.kind_case()) {
    case v1::Layer::kSimpleRnn: return "simple_rnn_cell";
    case v1::Layer::kLstm: return "lstm_cell";
    default: return "gru_cell";
  }
}

absl::Status InferRecurrent(absl::Span<const Shape> inputs, const Node& node, const std::string& prefix,
                            v1::Layer* layer, Shape* output, std::vector<Variable>* variables) {
  const std::string cell = absl::StrCat(prefix, CellNameOf(*layer));
  return WithMessage(layer, [&](auto* m) { return Infer(inputs, node, cell, m, output, variables); });
}

void ReadSimpleRnn(KerasConfig& c, v1::Layer* layer) { Read(c, layer->mutable_simple_rnn()); }

void ReadLstm(KerasConfig& c, v1::Layer* layer) {
  v1::LSTM* lstm = layer->mutable_lstm();
  Read(c, lstm);
  bool unit_forget_bias = true;
  c.Bool("unit_forget_bias", &unit_forget_bias);
  lstm->set_unit_forget_bias(unit_forget_bias);
}

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
