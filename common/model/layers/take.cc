// Take: the places of an axis that constant indices name.
#include <vector>

#include "common/model/keras/keras_writer.h"
#include "common/model/layers/axes.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_writer.h"
#include "common/model/tensor_places.h"

namespace cairn::layers {
namespace {

absl::Status CheckShape(const v1::Take& take, const Shape& input) {
  if (take.indices_shape().empty()) return Bad("indices_shape is empty; give it, or leave it out");
  int64_t count = 1;
  for (const int32_t side : take.indices_shape()) {
    if (side < 1) return Bad("indices_shape has a side ", side, ", which is not positive");
    count = SaturatingMultiply(count, side);
  }
  if (count != take.indices_size()) {
    return Bad("indices has ", take.indices_size(), " numbers, indices_shape holds ", count, "; make them equal");
  }
  const size_t axes = input.size() - 1 + static_cast<size_t>(take.indices_shape_size());
  if (axes <= kLayerDimensionsMax) return absl::OkStatus();
  return Bad("indices_shape: its output has ", axes, " axes; at most ", kLayerDimensionsMax, " are supported");
}

absl::Status InferTake(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::Take* take = node->layer.mutable_take();
  const Shape& input = inputs[0];
  CAIRN_ASSIGN_OR_RETURN(const int32_t axis, ReadAxis(input, take->has_axis(), take->axis()));
  take->set_axis(axis);
  const int64_t size = input[static_cast<size_t>(axis) - 1];
  if (take->indices().empty()) return Bad("indices is missing; give whole numbers in 0 .. ", size - 1);
  for (const int32_t index : take->indices()) {
    if (index < -size || index >= size) {
      return Bad("indices ", index, " is not on an axis of ", size, "; use ", -size, " .. ", size - 1);
    }
  }
  if (take->indices_shape().empty()) take->add_indices_shape(take->indices_size());
  CAIRN_RETURN_IF_ERROR(CheckShape(*take, input));
  const auto at = node->output.erase(node->output.begin() + axis - 1);
  node->output.insert(at, take->indices_shape().begin(), take->indices_shape().end());
  return absl::OkStatus();
}

void WriteKeras(const Node& node, KerasWriter& c) {
  c.Clear();
  c["axis"] = node.layer.take().axis();
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const v1::Take& take = node.layer.take();
  const size_t axis = static_cast<size_t>(take.axis()) - 1;
  const std::string y =
      w.Op("Gather", {w.In(node, 0, Channels::kLast), w.Whole("places", PlacesOf(node, w.ShapeOf(node, 0))[axis])});
  w.Int("axis", take.axis());
  w.SetOutput(node, take.indices_shape_size() == 1 ? y : w.Reshape(y, node.output), Channels::kLast);
}

}  // namespace

constinit const LayerType kTakeLayer = {
    .kind = LayerKind::kTake,
    .field = v1::Layer::kTake,
    .name = "take",
    .infer = InferTake,
    .keras = {},
    .keras_class = [](const Node&) { return "Take"; },
    .write_keras = WriteKeras,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
