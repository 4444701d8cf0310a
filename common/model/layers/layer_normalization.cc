// LayerNormalization over the last axis or the last axes (Ba et al. 2016).
#include "common/base/lacks.h"
#include "common/model/layers/axes.h"
#include "common/model/layers/normalization.h"
#include "common/model/layers/table.h"

namespace cairn::layers {
namespace {

absl::Status InferLayerNormalization(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
  v1::LayerNormalization* norm = node->layer.mutable_layer_normalization();
  if (!norm->has_epsilon()) norm->set_epsilon(0.001f);
  CAIRN_RETURN_IF_ERROR(NeedEpsilon(norm->epsilon()));
  CAIRN_RETURN_IF_ERROR(NeedLastAxes("axis", input, norm->mutable_axis()));
  return AddGammaAndBeta(*node, SizesOf(input, norm->axis()), norm, variables);
}

void ReadLayerNormalization(KerasConfig& c, v1::Layer* layer) {
  v1::LayerNormalization* ln = layer->mutable_layer_normalization();
  c.Only("rms_scaling", false, keras::kLeaveAway);
  ReadAxes(c, ln->mutable_axis());
  Scaled(c, ln);
}

void WriteLayerNormalization(const Node& node, KerasWriter& c) {
  c["axis"] = -1;
  if (node.layer.layer_normalization().axis_size() > 1) c.Ints("axis", node.layer.layer_normalization().axis());
  WriteScaled(node.layer.layer_normalization(), c);
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const v1::LayerNormalization& norm = node.layer.layer_normalization();
  std::vector<int64_t> axes;
  for (int64_t axis = -norm.axis_size(); axis < 0; ++axis) axes.push_back(axis);
  const auto mean_of = [&](const std::string& value) {
    const std::string mean = w.Op("ReduceMean", {value});
    w.Ints("axes", axes);
    w.Int("keepdims", 1);
    return mean;
  };
  const std::string x = w.In(node, 0, Channels::kLast);
  const std::string centered = w.Op("Sub", {x, mean_of(x)});
  const std::string variance = mean_of(w.Op("Pow", {centered, w.Scalar("two", 2)}));
  const std::string epsilon = w.Scalar("epsilon", node.layer.layer_normalization().epsilon());
  const std::string y = w.Op("Div", {centered, w.Op("Sqrt", {w.Op("Add", {variance, epsilon})})});
  w.SetOutput(node, w.ScaleAndCenter(node, y, SizesOf(node.output, norm.axis())), Channels::kLast);
}

absl::Status ImportLayerNormalization(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  CAIRN_ASSIGN_OR_RETURN(const int axis, x.AxisOf(attributes.Int("axis", -1)));
  v1::Layer layer;
  v1::LayerNormalization* norm = layer.mutable_layer_normalization();
  norm->set_epsilon(attributes.Float("epsilon", 1e-5f));
  attributes.Ignore("stash_type");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  Shape shape;
  for (int i = axis; i < static_cast<int>(x.dims.size()); ++i) {
    shape.push_back(x.dims[static_cast<size_t>(i)]);
    norm->add_axis(i + 1);
  }
  std::vector<OnnxVariable> variables;
  CAIRN_RETURN_IF_ERROR(importer.ReadScaleAndBias(NumElements(shape), norm, &variables));
  for (OnnxVariable& v : variables) v.shape = shape;
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().Place(x));
  CAIRN_ASSIGN_OR_RETURN(const int id,
                         importer.AddLayer(LayerKind::kLayerNormalization, layer, {from}, std::move(variables), 1));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

constexpr KerasClass kKeras[] = {{"LayerNormalization", ReadLayerNormalization}};
constexpr OnnxOperator kOnnx[] = {{"LayerNormalization", ImportLayerNormalization}};

}  // namespace

constinit const LayerType kLayerNormalizationLayer = {
    .kind = LayerKind::kLayerNormalization,
    .field = v1::Layer::kLayerNormalization,
    .name = "layer_normalization",
    .infer = InferLayerNormalization,
    .keras = kKeras,
    .write_keras = WriteLayerNormalization,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
