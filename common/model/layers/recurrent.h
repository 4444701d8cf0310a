// What SimpleRNN, LSTM and GRU share, and Bidirectional has of them: fields, variables, Keras' config, ONNX.
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

// Checks the message and fills in its defaults. layer: simple_rnn, lstm or gru, the node's own or one within it.
// prefix: of the variables' names, "" or "forward_lstm/". inputs: the sequence, then none or all of the first states.
absl::Status InferRecurrent(absl::Span<const Shape> inputs, const Node& node, const std::string& prefix,
                            v1::Layer* layer, Shape* output, std::vector<Variable>* variables);

void ReadSimpleRnn(KerasConfig& config, v1::Layer* layer);
void ReadLstm(KerasConfig& config, v1::Layer* layer);
void ReadGru(KerasConfig& config, v1::Layer* layer);
void WriteRecurrentKeras(const Node& node, KerasWriter& config);  // of any of the three

// Operators RNN, LSTM or GRU, one for each recurrence, and what merges them.
void WriteRecurrentOnnx(const Node& node, OnnxWriter& writer);
// Errors: UNIMPLEMENTED, without the layer's name: ONNX has nothing for one of its activations.
absl::Status CheckRecurrentOnnx(const Node& node);

// The cell's name within the layer, as Keras has it: "lstm_cell".
const char* CellNameOf(const v1::Layer& layer);

inline constexpr char kRecurrentCall[] = "sequences,initial_state,mask,training";

}  // namespace cairn::layers
