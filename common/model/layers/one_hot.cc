// OneHot: a new axis with 1 at the place of each number.
#include <numeric>
#include <vector>

#include "common/model/keras/keras_writer.h"
#include "common/model/layers/axes.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferOneHot(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::OneHot* one_hot = node->layer.mutable_one_hot();
  CAIRN_RETURN_IF_ERROR(NeedPositive("num_classes", one_hot->num_classes(), "10"));
  const int32_t given = one_hot->has_axis() ? one_hot->axis() : -1;
  CAIRN_ASSIGN_OR_RETURN(const int32_t axis, ReadNewAxis(inputs[0], true, given));
  one_hot->set_axis(axis);
  node->output.insert(node->output.begin() + axis - 1, one_hot->num_classes());
  return absl::OkStatus();
}

void WriteKeras(const Node& node, KerasWriter& c) {
  c.Clear();
  c["num_classes"] = node.layer.one_hot().num_classes();
  c["axis"] = node.layer.one_hot().axis();
  c["dtype"] = "float32";
  c["sparse"] = false;
}

// By comparison: ONNX's OneHot counts negative numbers from the end.
void WriteOnnx(const Node& node, OnnxWriter& w) {
  const size_t axis = static_cast<size_t>(node.layer.one_hot().axis()) - 1;
  std::vector<int64_t> numbers(static_cast<size_t>(node.layer.one_hot().num_classes()));
  std::iota(numbers.begin(), numbers.end(), 0);
  Shape single = node.output;
  single[axis] = 1;
  const std::string whole = w.Op("Cast", {w.Reshape(w.In(node, 0, Channels::kLast), single)});
  w.Int("to", onnx::TensorProto::INT64);
  std::string classes = w.Whole("classes", numbers);
  if (axis + 1 < node.output.size()) {  // axes of 1 behind it
    std::vector<int64_t> dims(node.output.size() - axis, 1);
    dims[0] = node.output[axis];
    classes = w.Op("Reshape", {classes, w.Whole("dims", dims)});
  }
  const std::string y = w.Op("Cast", {w.Op("Equal", {whole, classes})});
  w.Int("to", onnx::TensorProto::FLOAT);
  w.SetOutput(node, y, Channels::kLast);
}

}  // namespace

constinit const LayerType kOneHotLayer = {
    .kind = LayerKind::kOneHot,
    .field = v1::Layer::kOneHot,
    .name = "one_hot",
    .infer = InferOneHot,
    .keras = {},
    .keras_class = [](const Node&) { return "OneHot"; },
    .write_keras = WriteKeras,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
