// Tile: a tensor several times side by side.
#include <vector>

#include "common/base/lacks.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferTile(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  const Numbers& repeats = node->layer.tile().repeats();
  if (repeats.size() != static_cast<int>(inputs[0].size())) {
    return Bad("repeats has ", repeats.size(), " numbers, but its input is ", ToString(inputs[0]),
               "; give one for each axis after the batch, 1 where it stays as it is");
  }
  for (int i = 0; i < repeats.size(); ++i) {
    if (repeats[i] < 1 || repeats[i] > kWindowMax) {
      return Bad("repeats ", repeats[i], " is outside 1 .. ", kWindowMax, "; use such a number");
    }
    int64_t& size = node->output[static_cast<size_t>(i)];
    size = SaturatingMultiply(size, repeats[i]);
  }
  return absl::OkStatus();
}

void WriteKeras(const Node& node, KerasWriter& c) {
  c.Clear();
  c["repeats"] = OrderedJson::array({1});
  for (const int32_t number : node.layer.tile().repeats()) c["repeats"].push_back(number);
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  std::vector<int64_t> repeats = {1};
  repeats.insert(repeats.end(), node.layer.tile().repeats().begin(), node.layer.tile().repeats().end());
  w.SetOutput(node, w.Op("Tile", {w.In(node, 0, Channels::kLast), w.Whole("repeats", repeats)}), Channels::kLast);
}

absl::Status ImportTile(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(importer.node()).Finish());
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> repeats, importer.IntsOf(1, "repeats"));
  if (repeats.size() != x.dims.size() + 1) {
    return Bad(repeats.size(), " repeats for an input of ", x.dims.size() + 1, " dimensions, batch included");
  }
  if (repeats[0] != 1) return Lacks("it repeats the batch ", repeats[0], " times; only the axes after it are repeated");
  v1::Layer layer;
  for (size_t i = 1; i < repeats.size(); ++i) {
    if (repeats[i] < 1 || repeats[i] > kWindowMax)
      return Lacks("repeats of ", repeats[i], "; 1 .. ", kWindowMax, " can be");
    layer.mutable_tile()->add_repeats(static_cast<int32_t>(repeats[i]));
  }
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, SameOrder(x.dims.size())));
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kTile, layer, {from}));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

constexpr OnnxOperator kOnnx[] = {{"Tile", ImportTile}};

}  // namespace

constinit const LayerType kTileLayer = {
    .kind = LayerKind::kTile,
    .field = v1::Layer::kTile,
    .name = "tile",
    .infer = InferTile,
    .keras = {},
    .keras_class = [](const Node&) { return "Tile"; },
    .write_keras = WriteKeras,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
