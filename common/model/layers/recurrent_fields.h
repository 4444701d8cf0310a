// The fields that the messages of SimpleRNN, LSTM, GRU and ConvLSTM share: their checks and defaults, variables, and
// Keras' options.
//
// Pure functions. Errors say what is wrong with which field and what to do; the caller adds the layer's name.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/recurrent.h"

namespace cairn::layers {

template <typename Message>
constexpr bool kHasGates = !std::is_same_v<Message, v1::SimpleRNN>;
template <typename Message>
constexpr bool kHasCell = std::is_same_v<Message, v1::LSTM> || std::is_same_v<Message, v1::ConvLSTM>;

inline absl::Status ResolveElementwise(const char* field, v1::Activation* activation) {
  CAIRN_RETURN_IF_ERROR(ResolveActivation(activation));
  if (IsElementwise(*activation)) return absl::OkStatus();
  return Bad(field, " ", v1::Activation_Name(*activation),
             " is not one that a recurrent layer has; use TANH, SIGMOID, RELU or LINEAR, say");
}

template <typename Message>
absl::Status ResolveRecurrentFields(Message* m) {
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
  if constexpr (kHasCell<Message>) {
    if (!m->has_unit_forget_bias()) m->set_unit_forget_bias(true);
  }
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("kernel_initializer", v1::Initializer::GLOROT_UNIFORM, m->mutable_kernel_initializer()));
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("recurrent_initializer", v1::Initializer::ORTHOGONAL, m->mutable_recurrent_initializer()));
  return ResolveInitializer("bias_initializer", v1::Initializer::ZEROS, m->mutable_bias_initializer());
}

struct RecurrentShapes {
  Shape kernel, recurrent_kernel, bias;
};
// cell: what the variables' names begin with, "forward_lstm/lstm_cell". m: with its defaults.
template <typename Message>
absl::Status AddRecurrentVariables(const Node& node, const std::string& cell, RecurrentShapes shapes, const Message& m,
                                   std::vector<Variable>* variables) {
  const auto add = [&](const char* name, Shape shape, const v1::Initializer& initializer) {
    return AddVariable(node, absl::StrCat(cell, "/", name).c_str(), std::move(shape), initializer, variables);
  };
  CAIRN_RETURN_IF_ERROR(add("kernel", std::move(shapes.kernel), m.kernel_initializer()));
  CAIRN_RETURN_IF_ERROR(
      Regularize("kernel_regularizer", m.has_kernel_regularizer(), m.kernel_regularizer(), variables));
  CAIRN_RETURN_IF_ERROR(add("recurrent_kernel", std::move(shapes.recurrent_kernel), m.recurrent_initializer()));
  CAIRN_RETURN_IF_ERROR(
      Regularize("recurrent_regularizer", m.has_recurrent_regularizer(), m.recurrent_regularizer(), variables));
  if (!m.use_bias()) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(add("bias", std::move(shapes.bias), m.bias_initializer()));
  return Regularize("bias_regularizer", m.has_bias_regularizer(), m.bias_regularizer(), variables);
}

// ---- Keras ----

// Reads all options but the sizes (units; filters and windows).
template <typename Message>
void ReadRecurrentOptions(KerasConfig& c, Message* m) {
  v1::Activation activation = v1::LINEAR;  // null
  c.Activation("activation", &activation);
  m->set_activation(activation);
  if constexpr (kHasGates<Message>) {
    v1::Activation gate = v1::LINEAR;
    c.Activation("recurrent_activation", &gate);
    m->set_recurrent_activation(gate);
  }
  if constexpr (kHasCell<Message>) {
    bool unit_forget_bias = true;
    c.Bool("unit_forget_bias", &unit_forget_bias);
    m->set_unit_forget_bias(unit_forget_bias);
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

// Writes the options before the sizes.
template <typename Message>
void WriteRecurrentBase(const Message& m, KerasWriter& c) {
  c["return_sequences"] = m.return_sequences();
  c["return_state"] = false;
  if constexpr (kHasCell<Message>) c["return_state"] = m.return_cell();
  c["go_backwards"] = m.go_backwards();
  c["stateful"] = false;
  c["unroll"] = false;
  c["zero_output_for_mask"] = false;
}

// Writes those behind the sizes.
template <typename Message>
void WriteRecurrentOptions(const Message& m, KerasWriter& c) {
  c.Activation("activation", m.activation());
  if constexpr (kHasGates<Message>) c.Activation("recurrent_activation", m.recurrent_activation());
  c["use_bias"] = m.use_bias();
  c.Initializer("kernel_initializer", m.kernel_initializer());
  c.Initializer("recurrent_initializer", m.recurrent_initializer());
  c.Initializer("bias_initializer", m.bias_initializer());
  if constexpr (kHasCell<Message>) c["unit_forget_bias"] = m.unit_forget_bias();
  c.Regularizer("kernel_regularizer", m.has_kernel_regularizer(), m.kernel_regularizer());
  c.Regularizer("recurrent_regularizer", m.has_recurrent_regularizer(), m.recurrent_regularizer());
  c.BiasRegularizer(m);
  c.Nulls({"kernel_constraint", "recurrent_constraint", "bias_constraint"});
  c["dropout"] = KerasWriter::Rounded(m.dropout());
  c["recurrent_dropout"] = KerasWriter::Rounded(m.recurrent_dropout());
  if constexpr (std::is_same_v<Message, v1::GRU>) c["reset_after"] = m.reset_after();
  c.Nulls({"seed"});
}

}  // namespace cairn::layers
