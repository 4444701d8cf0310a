// GRU (Cho et al. 2014), with the reset gate applied before or after the product with the recurrent kernel.
#include "common/model/layers/recurrent.h"
#include "common/model/layers/table.h"

namespace cairn::layers {
namespace {

absl::Status InferGRU(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  return InferRecurrent(inputs, *node, "", &node->layer, &node->output, variables);
}

constexpr KerasClass kKeras[] = {{"GRU", ReadGru, kRecurrentCall}};
constexpr KerasSublayer kSublayers[] = {{"gru_cell", "cell"}};

}  // namespace

constinit const LayerType kGRULayer = {
    .kind = LayerKind::kGRU,
    .field = v1::Layer::kGru,
    .name = "gru",
    .inputs_max = 2,
    .infer = InferGRU,
    .keras = kKeras,
    .write_keras = WriteRecurrentKeras,
    .sublayers = kSublayers,
    .write_onnx = WriteRecurrentOnnx,
};

}  // namespace cairn::layers
