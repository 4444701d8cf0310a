// RepeatVector: [features] -> [n, features], the same row n times.
#include "common/base/lacks.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferRepeatVector(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  if (inputs[0].size() != 1) {
    return Bad("its input is ", ToString(inputs[0]), "; it needs [features], so put a flatten before it");
  }
  const int32_t n = node->layer.repeat_vector().n();
  CAIRN_RETURN_IF_ERROR(NeedPositive("n", n, "10"));
  if (n > kWindowMax) return Bad("n ", n, " is above ", kWindowMax, "; use a smaller number");
  node->output = {n, inputs[0][0]};
  return absl::OkStatus();
}

void ReadRepeatVector(KerasConfig& c, v1::Layer* layer) {
  int32_t n = 0;
  c.Int("n", &n);
  layer->mutable_repeat_vector()->set_n(n);
}

void WriteRepeatVector(const Node& node, KerasWriter& c) { c["n"] = node.layer.repeat_vector().n(); }

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const std::string row = w.Reshape(w.In(node, 0, Channels::kLast), {1, node.output[1]});
  w.SetOutput(node, w.Op("Expand", {row, w.Whole("shape", {1, node.output[0], node.output[1]})}), Channels::kLast);
}

// Expands a row, [1, features], to [n, features].
absl::Status ImportExpand(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, importer.IntsOf(1, "shape"));
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(importer.node()).Finish());
  const bool row = x.dims.size() == 2 && x.dims[0] == 1 && shape.size() == 3 && shape[0] == 1 && shape[1] >= 1 &&
                   shape[1] <= kWindowMax && (shape[2] == 1 || shape[2] == x.dims[1]);
  if (!row) return Lacks("an input ", ToString(x.dims), " to ", ToString(shape), "; a row [1,features] is repeated");
  CAIRN_ASSIGN_OR_RETURN(int from, importer.layers().Place(x));
  v1::Layer flat, repeat;
  flat.mutable_flatten();
  CAIRN_ASSIGN_OR_RETURN(from, importer.AddLayer(LayerKind::kFlatten, flat, {from}));
  repeat.mutable_repeat_vector()->set_n(static_cast<int32_t>(shape[1]));
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kRepeatVector, repeat, {from}));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

constexpr KerasClass kKeras[] = {{"RepeatVector", ReadRepeatVector}};
constexpr OnnxOperator kOnnx[] = {{"Expand", ImportExpand}};

}  // namespace

constinit const LayerType kRepeatVectorLayer = {
    .kind = LayerKind::kRepeatVector,
    .field = v1::Layer::kRepeatVector,
    .name = "repeat_vector",
    .infer = InferRepeatVector,
    .keras = kKeras,
    .write_keras = WriteRepeatVector,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
