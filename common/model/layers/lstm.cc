// LSTM (Hochreiter and Schmidhuber 1997).
#include "common/model/layers/recurrent.h"
#include "common/model/layers/table.h"

namespace cairn::layers {
namespace {

absl::Status InferLSTM(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  return InferRecurrent(inputs, *node, "", &node->layer, &node->output, variables);
}

constexpr KerasClass kKeras[] = {{"LSTM", ReadLstm, kRecurrentCall}};
constexpr KerasSublayer kSublayers[] = {{"lstm_cell", "cell"}};

}  // namespace

constinit const LayerType kLSTMLayer = {
    .kind = LayerKind::kLSTM,
    .field = v1::Layer::kLstm,
    .name = "lstm",
    .inputs_max = 3,
    .infer = InferLSTM,
    .keras = kKeras,
    .write_keras = WriteRecurrentKeras,
    .sublayers = kSublayers,
    .write_onnx = WriteRecurrentOnnx,
};

}  // namespace cairn::layers
