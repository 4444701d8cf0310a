// UnitNormalization: divides each row by its length.
#include "common/base/lacks.h"
#include "common/model/layers/axes.h"
#include "common/model/layers/normalization.h"
#include "common/model/layers/table.h"

namespace cairn::layers {
namespace {

absl::Status InferUnitNormalization(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  return NeedLastAxes("axis", inputs[0], node->layer.mutable_unit_normalization()->mutable_axis());
}

void ReadUnitNormalization(KerasConfig& c, v1::Layer* layer) {
  ReadAxes(c, layer->mutable_unit_normalization()->mutable_axis());
}

void WriteUnitNormalization(const Node& node, KerasWriter& c) {
  c.Ints("axis", node.layer.unit_normalization().axis());
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const std::string x = w.In(node, 0, Channels::kLast);
  std::vector<int64_t> axes;
  for (int64_t axis = -node.layer.unit_normalization().axis_size(); axis < 0; ++axis) axes.push_back(axis);
  const std::string length = w.Op("ReduceL2", {x});
  w.Ints("axes", axes);
  w.Int("keepdims", 1);
  w.SetOutput(node, w.Op("Div", {x, w.Op("Max", {length, w.Scalar("shortest", 1e-6f)})}), Channels::kLast);
}

// Imports 2-norms along the last axis.
absl::Status ImportLpNormalization(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  CAIRN_ASSIGN_OR_RETURN(const int axis, x.AxisOf(attributes.Int("axis", -1)));
  attributes.Only("p", 2, "Cairn divides by the 2-norm");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (axis + 1 != static_cast<int>(x.dims.size()))
    return Lacks("it normalizes its input ", ToString(x.dims), " over another than the last axis");
  v1::Layer layer;
  layer.mutable_unit_normalization();
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().Place(x));
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kUnitNormalization, layer, {from}));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

constexpr KerasClass kKeras[] = {{"UnitNormalization", ReadUnitNormalization}};
constexpr OnnxOperator kOnnx[] = {{"LpNormalization", ImportLpNormalization}};

}  // namespace

constinit const LayerType kUnitNormalizationLayer = {
    .kind = LayerKind::kUnitNormalization,
    .field = v1::Layer::kUnitNormalization,
    .name = "unit_normalization",
    .infer = InferUnitNormalization,
    .keras = kKeras,
    .write_keras = WriteUnitNormalization,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
