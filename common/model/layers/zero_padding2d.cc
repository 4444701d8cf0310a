// ZeroPadding2D.
#include <algorithm>

#include "absl/strings/escaping.h"
#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/layers/windows.h"
#include "common/model/limits.h"
#include "common/model/onnx/axis_order.h"

namespace cairn::layers {
namespace {

absl::Status InferZeroPadding2D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_RETURN_IF_ERROR(NeedImage(inputs[0]));
  int32_t sides[4];
  CAIRN_RETURN_IF_ERROR(ReadSides("padding", 1, node->layer.mutable_zero_padding2d()->mutable_padding(), sides));
  for (int i = 0; i < 2; ++i) {
    node->window.pad_begin[i] = sides[2 * i];
    node->window.pad_end[i] = sides[2 * i + 1];
    node->output[i] += sides[2 * i] + sides[2 * i + 1];
  }
  return absl::OkStatus();
}

void ReadZeroPadding2D(KerasConfig& c, v1::Layer* layer) {
  keras::ChannelsLast(c);
  ReadSides(c, "padding", layer->mutable_zero_padding2d()->mutable_padding());
}

void WriteZeroPadding2D(const Node& node, KerasWriter& c) {
  WriteSides("padding", node.layer.zero_padding2d().padding(), &c);
  c.ChannelsLast();
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const Channels channels = w.Has(node, 0);
  const int64_t *begin = node.window.pad_begin, *end = node.window.pad_end;
  const std::vector<int64_t> pads = channels == Channels::kFirst
                                        ? std::vector<int64_t>{0, 0, begin[0], begin[1], 0, 0, end[0], end[1]}
                                        : std::vector<int64_t>{0, begin[0], begin[1], 0, 0, end[0], end[1], 0};
  const std::string x = w.In(node, 0, channels);
  w.SetOutput(node, w.Op("Pad", {x, w.Whole("pads", pads)}), channels);
}

absl::Status ImportPad(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  const std::string mode = attributes.Text("mode", "constant");
  std::vector<int64_t> pads = attributes.Ints("pads");
  float value = attributes.Float("value", 0);
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (mode != "constant")
    return Lacks("attribute \"mode\" is \"", absl::CEscape(mode.substr(0, 64)), "\"; Cairn pads with zeros");
  if (importer.HasInput(1)) {
    CAIRN_ASSIGN_OR_RETURN(pads, importer.IntsOf(1, "pads"));
  }
  if (importer.HasInput(2)) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<float> constant, importer.FloatsOf(2, "value", 1));
    value = constant[0];
  }
  if (importer.HasInput(3)) return Lacks("its axes (input 3); give pads for all of them");
  if (value != 0) return Lacks("it pads with ", value, "; Cairn pads with zeros");
  if (pads.size() != 2 * (x.dims.size() + 1))
    return Bad(pads.size(), " pads for an input of ", x.dims.size() + 1, " dimensions, batch included");
  for (const int64_t pad : pads) {
    if (pad < 0 || pad > kWindowMax) return Lacks("a pad of ", pad, "; 0 .. ", kWindowMax, " can be");
  }
  if (std::all_of(pads.begin(), pads.end(), [](int64_t pad) { return pad == 0; })) {
    importer.SetView(x);
    return absl::OkStatus();
  }
  // Two of three axes are padded: the third one is the channels.
  const size_t rank = x.dims.size() + 1;
  const auto is_padded = [&](size_t axis) { return pads[axis] > 0 || pads[axis + rank] > 0; };
  if (rank != 4 || is_padded(0) || (is_padded(1) && is_padded(2) && is_padded(3))) {
    return Lacks("it pads its input ", ToString(x.dims), " in other axes than height and width");
  }
  int channels = 0;
  while (is_padded(static_cast<size_t>(channels) + 1)) ++channels;
  const std::vector<int> order = AxisLast(3, channels);
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, order));
  v1::Layer layer;
  for (int i = 0; i < 2; ++i) {
    const size_t axis = static_cast<size_t>(order[static_cast<size_t>(i)]) + 1;
    layer.mutable_zero_padding2d()->add_padding(static_cast<int32_t>(pads[axis]));
    layer.mutable_zero_padding2d()->add_padding(static_cast<int32_t>(pads[axis + rank]));
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kZeroPadding2D, layer, {from}));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), order));
  return absl::OkStatus();
}

constexpr KerasClass kKeras[] = {{"ZeroPadding2D", ReadZeroPadding2D}};
constexpr OnnxOperator kOnnx[] = {{"Pad", ImportPad}};

}  // namespace

constinit const LayerType kZeroPadding2DLayer = {
    .kind = LayerKind::kZeroPadding2D,
    .field = v1::Layer::kZeroPadding2D,
    .name = "zero_padding2d",
    .infer = InferZeroPadding2D,
    .keras = kKeras,
    .write_keras = WriteZeroPadding2D,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
