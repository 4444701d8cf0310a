// Dot: the sums of products of two inputs along one axis of each (keras.layers.Dot).
#include <algorithm>

#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferDot(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  Numbers* axes = node->layer.mutable_dot()->mutable_axes();
  if (axes->size() != 1 && axes->size() != 2) {
    return Bad("axes has ", axes->size(), " numbers; give one for both inputs, or one for each, such as [1, 2]");
  }
  const Numbers given = *axes;
  axes->Clear();
  for (const Shape& input : inputs) {
    if (input.size() > kPermutedAxesMax) return Bad("its input ", ToString(input), " has more than three axes");
  }
  node->output.clear();
  for (int i = 0; i < 2; ++i) {
    const int32_t rank = static_cast<int32_t>(inputs[i].size()), one = given[given.size() == 2 ? i : 0];
    const int32_t axis = one < 0 ? one + rank + 1 : one;
    if (axis < 1 || axis > rank) {
      return Bad("axes: its input ", ToString(inputs[i]), " has no axis ", one, "; use 1 .. ", rank);
    }
    axes->Add(axis);
    for (int32_t other = 1; other <= rank; ++other) {
      if (other != axis) node->output.push_back(inputs[i][static_cast<size_t>(other) - 1]);
    }
  }
  const int64_t sizes[] = {inputs[0][static_cast<size_t>(axes->Get(0)) - 1],
                           inputs[1][static_cast<size_t>(axes->Get(1)) - 1]};
  if (sizes[0] != sizes[1]) {
    return Bad("axes: its inputs ", ToString(inputs[0]), " and ", ToString(inputs[1]), " have ", sizes[0], " and ",
               sizes[1], " numbers along axes ", axes->Get(0), " and ", axes->Get(1), "; name axes of one size");
  }
  if (node->output.size() > kPermutedAxesMax) {
    return Bad("its output ", ToString(node->output), " has ", node->output.size(), " dimensions; at most ",
               kPermutedAxesMax, " are supported, without the batch dimension");
  }
  if (node->output.empty()) node->output = {1};
  return absl::OkStatus();
}

void ReadDot(KerasConfig& c, v1::Layer* layer) {
  bool normalize = false;
  c.Ints("axes", layer->mutable_dot()->mutable_axes());
  c.Bool("normalize", &normalize);
  layer->mutable_dot()->set_normalize(normalize);
}

void WriteDot(const Node& node, KerasWriter& c) {
  c.Ints("axes", node.layer.dot().axes());
  c["normalize"] = node.layer.dot().normalize();
}

// Reshapes each input to rows to be summed over, [others, size], or the second one to columns; then multiplies them.
void WriteOnnx(const Node& node, OnnxWriter& w) {
  std::string sides[2];
  for (size_t i = 0; i < 2; ++i) {
    const Shape& shape = w.ShapeOf(node, i);
    const int64_t axis = node.layer.dot().axes(static_cast<int>(i)), size = shape[static_cast<size_t>(axis) - 1];
    std::string x = w.In(node, i, Channels::kLast);
    if (node.layer.dot().normalize()) {
      const std::string length = w.Op("ReduceL2", {x});
      w.Ints("axes", {axis});
      w.Int("keepdims", 1);
      x = w.Op("Div", {x, w.Op("Max", {length, w.Scalar("shortest", kVectorLengthMin)})});
    }
    std::vector<int64_t> order = {0};
    if (i == 1) order.push_back(axis);
    for (int64_t other = 1; other <= static_cast<int64_t>(shape.size()); ++other) {
      if (other != axis) order.push_back(other);
    }
    if (i == 0) order.push_back(axis);
    if (!std::is_sorted(order.begin(), order.end())) x = w.Transpose(x, order);
    const int64_t others = NumElements(shape) / size;
    sides[i] = w.Reshape(x, i == 0 ? Shape{others, size} : Shape{size, others});
  }
  w.SetOutput(node, w.Reshape(w.Op("MatMul", {sides[0], sides[1]}), node.output), Channels::kLast);
}

constexpr KerasClass kKeras[] = {{"Dot", ReadDot}};

}  // namespace

constinit const LayerType kDotLayer = {
    .kind = LayerKind::kDot,
    .field = v1::Layer::kDot,
    .name = "dot",
    .inputs_min = 2,
    .inputs_max = 2,
    .infer = InferDot,
    .keras = kKeras,
    .write_keras = WriteDot,
    .merges = true,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
