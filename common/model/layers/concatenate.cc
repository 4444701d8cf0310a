// Concatenate along the last axis.
#include <algorithm>
#include <utility>

#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferConcatenate(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  int64_t last = 0;
  for (const Shape& input : inputs) {
    if (input.size() != inputs[0].size() || !std::equal(input.begin(), input.end() - 1, inputs[0].begin())) {
      return Bad("its inputs ", ToString(inputs[0]), " and ", ToString(input),
                 " differ in more than the last axis, along which they are joined; make the other axes equal");
    }
    last += input.back();
  }
  node->output.back() = last;
  return absl::OkStatus();
}

void ReadConcatenate(KerasConfig& c, v1::Layer* layer) {
  layer->mutable_concatenate();
  c.Axis("axis");
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  w.Join(node, "Concat", "Concat");
  w.Int("axis", w.HasLast(node) ? -1 : 1);
}

absl::Status ImportConcat(OnnxImporter& importer) {
  std::vector<OnnxView> views;
  for (int i = 0; i < importer.node().input_size(); ++i) {
    CAIRN_ASSIGN_OR_RETURN(OnnxView view, importer.ViewOf(i));
    if (!views.empty() && view.dims.size() != views[0].dims.size())
      return Bad("its inputs ", ToString(views[0].dims), " and ", ToString(view.dims),
                 " differ in the number of their axes");
    views.push_back(std::move(view));
  }
  if (views.empty()) return Bad("it has no inputs");
  OnnxAttributes attributes(importer.node());
  CAIRN_ASSIGN_OR_RETURN(const int axis, views[0].AxisOf(attributes.Int("axis", 0)));
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (views.size() == 1) {
    importer.SetView(views[0]);
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
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), order));
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
    .write_keras = [](const Node&, KerasWriter& c) { c["axis"] = -1; },
    .merges = true,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
