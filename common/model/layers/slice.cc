// Slice: a part of a tensor, as in Python's x[:, 1:5, ::2, 0].
#include <vector>

#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_operations.h"
#include "common/model/slice_range.h"

namespace cairn::layers {
namespace {

absl::Status CheckAxis(const v1::Slice::Axis& axis, int64_t size) {
  if (axis.drop() && (axis.has_end() || axis.has_step())) {
    return Bad("axes: drop takes only begin; leave end and step out");
  }
  if (axis.has_step() && axis.step() == 0) return Bad("axes: step is 0; use 1, or -1 to go backwards");
  if (RangeOf(axis, size).count > 0) return absl::OkStatus();
  if (axis.drop()) return Bad("axes: begin ", axis.begin(), " is not on an axis of ", size);
  return Bad("axes: begin, end and step leave nothing of an axis of ", size);
}

absl::Status InferSlice(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::Slice* slice = node->layer.mutable_slice();
  const Shape& input = inputs[0];
  if (slice->axes_size() > static_cast<int>(input.size())) {
    return Bad("axes has ", slice->axes_size(), " entries, but its input is ", ToString(input),
               "; give one for each axis after the batch");
  }
  while (slice->axes_size() < static_cast<int>(input.size())) slice->add_axes();
  node->output.clear();
  for (size_t i = 0; i < input.size(); ++i) {
    const v1::Slice::Axis& axis = slice->axes(static_cast<int>(i));
    CAIRN_RETURN_IF_ERROR(CheckAxis(axis, input[i]));
    if (!axis.drop()) node->output.push_back(RangeOf(axis, input[i]).count);
  }
  if (node->output.empty()) node->output = {1};
  return absl::OkStatus();
}

void WriteKeras(const Node& node, KerasWriter& c) {
  c.Clear();
  c["name"] = node.name;
}

}  // namespace

constinit const LayerType kSliceLayer = {
    .kind = LayerKind::kSlice,
    .field = v1::Layer::kSlice,
    .name = "slice",
    .infer = InferSlice,
    .keras = {},
    .keras_class = [](const Node&) { return "GetItem"; },
    .write_keras = WriteKeras,
    .write_onnx = WriteOnnxSlice,
};

}  // namespace cairn::layers
