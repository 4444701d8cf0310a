// RMSNormalization over the last axis (Zhang and Sennrich 2019).
#include "common/base/lacks.h"
#include "common/model/layers/normalization.h"
#include "common/model/layers/table.h"

namespace cairn::layers {
namespace {

absl::Status InferRmsNormalization(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::RMSNormalization* norm = node->layer.mutable_rms_normalization();
  CAIRN_RETURN_IF_ERROR(NeedLastAxis(inputs[0], norm));
  if (!norm->has_epsilon()) norm->set_epsilon(1e-6f);
  CAIRN_RETURN_IF_ERROR(NeedEpsilon(norm->epsilon()));
  return AddVariable(*node, "scale", {inputs[0].back()}, OfKind(v1::Initializer::ONES), variables);
}

void ReadRmsNormalization(KerasConfig& c, v1::Layer* layer) {
  float epsilon = 1e-6f;
  c.Float("epsilon", &epsilon);
  layer->mutable_rms_normalization()->set_epsilon(epsilon);
  c.Axis("axis");
}

void WriteRmsNormalization(const Node& node, KerasWriter& c) {
  c["axis"] = -1;
  c["epsilon"] = KerasWriter::Rounded(node.layer.rms_normalization().epsilon());
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const std::string x = w.In(node, 0, Channels::kLast);
  const std::string mean = w.Op("ReduceMean", {w.Op("Mul", {x, x})});
  w.Ints("axes", {-1});
  w.Int("keepdims", 1);
  const std::string epsilon = w.Scalar("epsilon", node.layer.rms_normalization().epsilon());
  const std::string y = w.Op("Div", {x, w.Op("Sqrt", {w.Op("Add", {mean, epsilon})})});
  w.SetOutput(node, w.Op("Mul", {y, w.VariableOf(node, "scale")}), Channels::kLast);
}

absl::Status ImportRmsNormalization(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  CAIRN_ASSIGN_OR_RETURN(const int axis, x.AxisOf(attributes.Int("axis", -1)));
  v1::Layer layer;
  layer.mutable_rms_normalization()->set_epsilon(attributes.Float("epsilon", 1e-5f));
  attributes.Ignore("stash_type");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (axis + 1 != static_cast<int>(x.dims.size()))
    return Lacks("it normalizes its input ", ToString(x.dims), " over more than the last axis");
  CAIRN_ASSIGN_OR_RETURN(std::vector<float> scale, importer.FloatsOf(1, "scale", x.dims.back()));
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().Place(x));
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kRMSNormalization, layer, {from},
                                                         {{"scale", {x.dims.back()}, std::move(scale)}}, 1));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

std::optional<TorchPlace> PlaceVariable(const Graph&, const Variable& v, absl::string_view) {
  return TorchPlace{"weight", v.shape, {0}, v.shape};
}

constexpr KerasClass kKeras[] = {{"RMSNormalization", ReadRmsNormalization}};
constexpr OnnxOperator kOnnx[] = {{"RMSNormalization", ImportRmsNormalization}};

}  // namespace

constinit const LayerType kRMSNormalizationLayer = {
    .kind = LayerKind::kRMSNormalization,
    .field = v1::Layer::kRmsNormalization,
    .name = "rms_normalization",
    .infer = InferRmsNormalization,
    .keras = kKeras,
    .write_keras = WriteRmsNormalization,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
    .torch = PlaceVariable,
};

}  // namespace cairn::layers
