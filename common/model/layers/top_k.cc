// TopK: the largest numbers of each row, or their places.
#include <vector>

#include "common/base/bad.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_operation_values.h"

namespace cairn::layers {
namespace {

absl::Status InferTopK(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  const int32_t k = node->layer.top_k().k();
  const int64_t size = inputs[0].back();
  if (k < 1 || k > size) return Bad("k ", k, " is not in 1 .. ", size, ", the size of its input's last axis; use one");
  node->output.back() = k;
  return absl::OkStatus();
}

void WriteKeras(const Node& node, KerasWriter& c) {
  c.Clear();  // without a name: see operation.cc
  c["k"] = node.layer.top_k().k();
  c["sorted"] = true;
}

// Of equal numbers ONNX, too, takes the one with the lower place first.
void WriteOnnx(const Node& node, OnnxWriter& w) {
  const std::string x = w.In(node, 0, Channels::kLast), k = w.Whole("k", {node.layer.top_k().k()});
  const std::string values = w.Op("TopK", {x, k});
  w.Int("axis", -1);
  const std::string places = w.SecondOutput();
  w.SetOutput(node, node.layer.top_k().indices() ? OnnxAsFloat(w, places) : values, Channels::kLast);
}

// Adds what one of the operator's outputs is made of. x: with the axis last. The k least numbers are the k largest
// negative ones.
absl::StatusOr<int> AddTopK(OnnxImporter& importer, int x, int32_t k, bool indices, bool least) {
  v1::Layer negative, largest;
  negative.mutable_operation()->set_kind(v1::Operation::NEGATIVE);
  largest.mutable_top_k()->set_k(k);
  largest.mutable_top_k()->set_indices(indices);
  int id = x;
  if (least) {
    CAIRN_ASSIGN_OR_RETURN(id, importer.AddLayer(LayerKind::kOperation, negative, {id}));
  }
  CAIRN_ASSIGN_OR_RETURN(id, importer.AddLayer(LayerKind::kTopK, largest, {id}));
  if (!least || indices) return id;
  return importer.AddLayer(LayerKind::kOperation, negative, {id});
}

absl::Status ImportTopK(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  const int64_t given = attributes.Int("axis", -1);
  const bool least = attributes.Int("largest", 1) == 0;
  std::vector<int64_t> k = {attributes.Int("k", 0)};  // before opset 10
  attributes.Ignore("sorted");                        // in this order whatever it says
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (importer.HasInput(1)) {
    CAIRN_ASSIGN_OR_RETURN(k, importer.IntsOf(1, "K"));
  }
  CAIRN_ASSIGN_OR_RETURN(const int axis, x.AxisOf(given));
  const int64_t size = x.dims[static_cast<size_t>(axis)];
  if (k.size() != 1 || k[0] < 1 || k[0] > size) return Bad("its K is not one number in 1 .. ", size);
  const std::vector<int> order = AxisLast(x.dims.size(), axis);
  CAIRN_ASSIGN_OR_RETURN(const int placed, importer.layers().PlaceInOrder(x, order));
  for (const bool indices : {false, true}) {
    const int output = indices ? 1 : 0;
    if (importer.node().output_size() <= output || importer.UsersOf(output).empty()) continue;
    CAIRN_ASSIGN_OR_RETURN(const int id, AddTopK(importer, placed, static_cast<int32_t>(k[0]), indices, least));
    const OnnxView rows = OnnxView::Of(id, importer.layers().ShapeOf(id));
    CAIRN_ASSIGN_OR_RETURN(const OnnxView view, importer.layers().TransposedView(rows, InverseOrder(order)));
    importer.SetViewOf(output, view);
  }
  return absl::OkStatus();
}

constexpr OnnxOperator kOnnx[] = {{"TopK", ImportTopK}};

}  // namespace

constinit const LayerType kTopKLayer = {
    .kind = LayerKind::kTopK,
    .field = v1::Layer::kTopK,
    .name = "top_k",
    .infer = InferTopK,
    .keras = {},
    .keras_class = [](const Node&) { return "TopK"; },
    .write_keras = WriteKeras,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
