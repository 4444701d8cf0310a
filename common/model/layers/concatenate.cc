// Concatenate along an axis, the last one if none is given.
#include <utility>

#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/base/limits.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferConcatenate(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::Concatenate* join = node->layer.mutable_concatenate();
  const int rank = static_cast<int>(inputs[0].size());
  const int axis = !join->has_axis() ? rank : join->axis() < 0 ? join->axis() + rank + 1 : join->axis();
  if (axis < 1 || axis > rank) {
    return Bad("axis: its input ", ToString(inputs[0]), " has no axis ", join->axis(), "; use 1 .. ", rank);
  }
  if (axis != rank && inputs[0].size() > kLayerDimensionsMax) {
    return Bad("axis: its input ", ToString(inputs[0]), " has ", rank, " axes, and such inputs are joined along the ",
               "last one alone; leave the axis out, or let a reshape come before it");
  }
  if (axis != rank) join->set_axis(axis);  // the default is left unset, as in older jobs
  if (axis == rank) join->clear_axis();
  const size_t along = static_cast<size_t>(axis) - 1;
  int64_t sum = 0;
  for (const Shape& input : inputs) {
    Shape other = input;
    if (other.size() == inputs[0].size()) other[along] = inputs[0][along];
    if (other != inputs[0]) {
      return Bad("its inputs ", ToString(inputs[0]), " and ", ToString(input), " differ in more than the ",
                 axis == rank ? "last axis" : absl::StrCat("axis ", axis),
                 ", along which they are joined; make the other axes equal");
    }
    sum += input[along];
  }
  node->output[along] = sum;
  return absl::OkStatus();
}

void ReadConcatenate(KerasConfig& c, v1::Layer* layer) {
  int32_t axis = -1;
  c.Int("axis", &axis);
  if (axis == 0) return c.Refuse("axis: 0 is the batch; only the other axes are joined along");
  layer->mutable_concatenate();
  if (axis != -1) layer->mutable_concatenate()->set_axis(axis);
}

void WriteKeras(const Node& node, KerasWriter& c) {
  const v1::Concatenate& join = node.layer.concatenate();
  c["axis"] = join.has_axis() ? join.axis() : -1;
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  if (!node.layer.concatenate().has_axis()) {
    w.Join(node, "Concat", "Concat");
    return w.Int("axis", w.HasLast(node) ? -1 : 1);
  }
  OnnxWriter::Names inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(w.In(node, i, Channels::kLast));
  w.SetOutput(node, w.Op("Concat", inputs), Channels::kLast);
  w.Int("axis", node.layer.concatenate().axis());
}

absl::Status ImportConcat(OnnxImporter& importer) {
  std::vector<OnnxView> views;
  for (int i = 0; i < importer.node().input_size(); ++i) {
    CAIRN_ASSIGN_OR_RETURN(OnnxView view, importer.LaidViewOf(i));
    if (!views.empty() && view.dims.size() != views[0].dims.size())
      return Bad("its inputs ", ToString(views[0].dims), " and ", ToString(view.dims),
                 " differ in the number of their axes");
    if (!views.empty() && view.batch != views[0].batch)
      return Lacks("its inputs have the batch on axes ", views[0].batch, " and ", view.batch,
                   "; transpose one of them");
    views.push_back(std::move(view));
  }
  if (views.empty()) return Bad("it has no inputs");
  OnnxAttributes attributes(importer.node());
  CAIRN_ASSIGN_OR_RETURN(const int axis, views[0].AxisOf(attributes.Int("axis", 0)));
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (views.size() == 1) {
    importer.SetLaidView(views[0]);
    return absl::OkStatus();
  }
  const std::vector<int> order = AxisLast(views[0].dims.size(), axis);
  std::vector<int> inputs;
  for (const OnnxView& view : views) {
    CAIRN_ASSIGN_OR_RETURN(const int input, importer.layers().PlaceInOrder(view, order));
    inputs.push_back(input);
  }
  v1::Layer layer;
  layer.mutable_concatenate();
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kConcatenate, layer, inputs));
  importer.SetLaidView(OnnxView::Of(id, importer.layers().ShapeOf(id), order).WithBatchAt(views[0].batch));
  return absl::OkStatus();
}

constexpr KerasClass kKeras[] = {{"Concatenate", ReadConcatenate}};
constexpr OnnxOperator kOnnx[] = {{"Concat", ImportConcat}};

}  // namespace

constinit const LayerType kConcatenateLayer = {
    .kind = LayerKind::kConcatenate,
    .field = v1::Layer::kConcatenate,
    .name = "concatenate",
    .inputs_min = 2,
    .inputs_max = kLayersMax,
    .infer = InferConcatenate,
    .keras = kKeras,
    .write_keras = WriteKeras,
    .merges = true,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
