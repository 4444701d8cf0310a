// SimpleRNN: h = f(x W + b + h U).
#include "common/model/layers/recurrent.h"
#include "common/model/layers/table.h"

namespace cairn::layers {
namespace {

absl::Status InferSimpleRNN(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  return InferRecurrent(inputs, *node, "", &node->layer, &node->output, variables);
}

constexpr KerasClass kKeras[] = {{"SimpleRNN", ReadSimpleRnn, kRecurrentCall}};
constexpr KerasSublayer kSublayers[] = {{"simple_rnn_cell", "cell"}};

}  // namespace

constinit const LayerType kSimpleRNNLayer = {
    .kind = LayerKind::kSimpleRNN,
    .field = v1::Layer::kSimpleRnn,
    .name = "simple_rnn",
    .inputs_max = 2,
    .infer = InferSimpleRNN,
    .keras = kKeras,
    .write_keras = WriteRecurrentKeras,
    .sublayers = kSublayers,
    .write_onnx = WriteRecurrentOnnx,
};

}  // namespace cairn::layers
