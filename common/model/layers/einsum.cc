// Einsum: sums of products of two tensors, as an equation says.
#include <string>
#include <vector>

#include "common/model/einsum_equation.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferEinsum(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_RETURN_IF_ERROR(
      ParseEinsumOfTwo(node->layer.einsum().equation(), inputs[0], inputs[1], &node->output).status());
  if (node->output.size() <= kLayerDimensionsMax) return absl::OkStatus();
  return Bad("equation: its output ", ToString(node->output), " has ", node->output.size(), " axes; at most ",
             kLayerDimensionsMax, " are supported");
}

void WriteKeras(const Node& node, KerasWriter& c) {
  c.Clear();
  c["subscripts"] = node.layer.einsum().equation();
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const std::string y = w.Op("Einsum", {w.In(node, 0, Channels::kLast), w.In(node, 1, Channels::kLast)});
  w.Text("equation", node.layer.einsum().equation().c_str());
  w.SetOutput(node, w.Reshape(y, node.output), Channels::kLast);  // of one number for each example: [batch, 1]
}

}  // namespace

constinit const LayerType kEinsumLayer = {
    .kind = LayerKind::kEinsum,
    .field = v1::Layer::kEinsum,
    .name = "einsum",
    .inputs_min = 2,
    .inputs_max = 2,
    .infer = InferEinsum,
    .keras = {},
    .keras_class = [](const Node&) { return "Einsum"; },
    .write_keras = WriteKeras,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
