// Flatten.
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferFlatten(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  node->output = {NumElements(inputs[0])};
  return absl::OkStatus();
}

void ReadFlatten(KerasConfig& c, v1::Layer* layer) {
  layer->mutable_flatten();
  keras::ChannelsLast(c);
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  w.SetOutput(node, w.Reshape(w.In(node, 0, Channels::kLast), node.output), Channels::kLast);
}

constexpr KerasClass kKeras[] = {{"Flatten", ReadFlatten}};

}  // namespace

constinit const LayerType kFlattenLayer = {
    .kind = LayerKind::kFlatten,
    .field = v1::Layer::kFlatten,
    .name = "flatten",
    .infer = InferFlatten,
    .keras = kKeras,
    .write_keras = [](const Node&, KerasWriter& c) { c.ChannelsLast(); },
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
