// Subtract: the elementwise difference of its two inputs.
#include "common/model/keras/keras_config.h"
#include "common/model/layers/broadcasting.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferSubtract(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_ASSIGN_OR_RETURN(node->output, BroadcastShape(inputs));
  return absl::OkStatus();
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  Channels channels;
  const OnnxWriter::Names names = BroadcastInputs(node, w, &channels);
  w.SetOutput(node, w.Op("Sub", names), channels);
}

constexpr KerasClass kKeras[] = {{"Subtract", [](KerasConfig&, v1::Layer* layer) { layer->mutable_subtract(); }}};

}  // namespace

constinit const LayerType kSubtractLayer = {
    .kind = LayerKind::kSubtract,
    .field = v1::Layer::kSubtract,
    .name = "subtract",
    .inputs_min = 2,
    .inputs_max = 2,
    .infer = InferSubtract,
    .keras = kKeras,
    .merges = true,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
