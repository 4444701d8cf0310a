// Multiply: the elementwise product of its inputs.
#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/model/keras/keras_config.h"
#include "common/model/layers/broadcasting.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferMultiply(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_ASSIGN_OR_RETURN(node->output, BroadcastShape(inputs));
  if (node->output.size() <= kPermutedAxesMax) return absl::OkStatus();
  for (const Shape& input : inputs) {
    if (input != node->output) {
      return Bad("its inputs ", ToString(inputs[0]), " and ", ToString(input),
                 " differ; of more than three axes all are to be equal");
    }
  }
  return absl::OkStatus();
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  Channels channels;
  std::string product;
  for (const std::string& factor : BroadcastInputs(node, w, &channels)) {
    product = product.empty() ? factor : w.Op("Mul", {product, factor});
  }
  w.SetOutput(node, product, channels);
}

constexpr KerasClass kKeras[] = {{"Multiply", [](KerasConfig&, v1::Layer* layer) { layer->mutable_multiply(); }}};

}  // namespace

constinit const LayerType kMultiplyLayer = {
    .kind = LayerKind::kMultiply,
    .field = v1::Layer::kMultiply,
    .name = "multiply",
    .inputs_min = 2,
    .inputs_max = kLayersMax,
    .infer = InferMultiply,
    .keras = kKeras,
    .merges = true,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
