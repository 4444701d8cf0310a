// Stack: tensors of one shape side by side along a new axis.
#include <string>
#include <vector>

#include "common/base/limits.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/axes.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferStack(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::Stack* stack = node->layer.mutable_stack();
  CAIRN_RETURN_IF_ERROR(NeedOneShape(inputs));
  CAIRN_ASSIGN_OR_RETURN(const int32_t axis, ReadNewAxis(inputs[0], stack->has_axis(), stack->axis()));
  stack->set_axis(axis);
  node->output.insert(node->output.begin() + axis - 1, static_cast<int64_t>(inputs.size()));
  return absl::OkStatus();
}

void WriteKeras(const Node& node, KerasWriter& c) {
  c.Clear();
  c["axis"] = node.layer.stack().axis();
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const int32_t axis = node.layer.stack().axis();
  OnnxWriter::Names inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Shape dims = w.ShapeOf(node, i);
    dims.insert(dims.begin() + axis - 1, 1);
    inputs.push_back(w.Reshape(w.In(node, i, Channels::kLast), dims));
  }
  w.SetOutput(node, w.Op("Concat", inputs), Channels::kLast);
  w.Int("axis", axis);
}

}  // namespace

constinit const LayerType kStackLayer = {
    .kind = LayerKind::kStack,
    .field = v1::Layer::kStack,
    .name = "stack",
    .inputs_min = 2,
    .inputs_max = kLayersMax,
    .infer = InferStack,
    .keras = {},
    .keras_class = [](const Node&) { return "Stack"; },
    .write_keras = WriteKeras,
    .merges = true,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
