// Shared by SimpleRNN, LSTM, GRU and ConvLSTM, and partly by Bidirectional: fields, variables, Keras' config, ONNX.
//
// Pure functions. Errors say what is wrong with which field and what to do; the caller adds the layer's name.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/layer_type.h"

namespace cairn::layers {

// Checks the message and fills in its defaults. layer: a simple_rnn, lstm, gru or conv_lstm, either the node's own or
// one inside it. prefix: that of the variables' names, "" or "forward_lstm/". inputs: the sequence, then either none or
// all of the initial states.
absl::Status InferRecurrent(absl::Span<const Shape> inputs, const Node& node, const std::string& prefix,
                            v1::Layer* layer, Shape* output, std::vector<Variable>* variables);

// The same of a conv_lstm. cell: the prefix and the cell's name.
absl::Status InferConvLstm(absl::Span<const Shape> inputs, const Node& node, const std::string& cell, v1::Layer* layer,
                           Shape* output, std::vector<Variable>* variables);

void ReadSimpleRnn(KerasConfig& config, v1::Layer* layer);
void ReadLstm(KerasConfig& config, v1::Layer* layer);
void ReadGru(KerasConfig& config, v1::Layer* layer);
void WriteRecurrentKeras(const Node& node, KerasWriter& config);  // for any of the three

// Writes one RNN, LSTM or GRU operator for each recurrence, and the operators that merge them.
void WriteRecurrentOnnx(const Node& node, OnnxWriter& writer);
// Errors: UNIMPLEMENTED, without the layer's name: ONNX lacks one of the layer's activations.
absl::Status CheckRecurrentOnnx(const Node& node);

// The cell's name within the layer, as in Keras: "lstm_cell".
const char* CellNameOf(const v1::Layer& layer);

inline constexpr char kRecurrentCall[] = "sequences,initial_state,mask,training";

}  // namespace cairn::layers
