// ZeroPadding1D, ZeroPadding2D and ZeroPadding3D.
#include <algorithm>

#include "absl/strings/escaping.h"
#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"
#include "common/model/limits.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_moves.h"

namespace cairn::layers {
namespace {

// The field's ends: begin and end of each axis.
absl::Status InferZeroPadding(int rank, const Shape& input, Numbers* padding, Node* node) {
  CAIRN_RETURN_IF_ERROR(NeedAxes(input, rank));
  int32_t ends[2 * kWindowAxesMax];
  CAIRN_RETURN_IF_ERROR(ReadEnds("padding", rank, 1, padding, ends));
  for (int i = 0; i < rank; ++i) {
    SetAxis({1, 1, 1, ends[2 * i], ends[2 * i + 1]}, rank, i, &node->window);
    node->output[static_cast<size_t>(i)] += ends[2 * i] + ends[2 * i + 1];
  }
  return absl::OkStatus();
}

void WriteZeroPadding(const Numbers& padding, KerasWriter& c) {
  WriteEnds("padding", padding, &c);
  if (padding.size() > 2) c.ChannelsLast();
}

// onnxruntime fuses a Pad into the MaxPool after it, which then pads with the smallest number. An operator between the
// two keeps the zeros.
bool FeedsMaxPooling(const Node& node, const Graph& graph) {
  for (const Node& after : graph.nodes()) {
    const bool pools = after.kind == LayerKind::kMaxPooling1D || after.kind == LayerKind::kMaxPooling2D ||
                       after.kind == LayerKind::kMaxPooling3D;
    if (pools && after.inputs[0] == node.id) return true;
  }
  return false;
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const Channels channels = w.Has(node, 0);
  const int rank = static_cast<int>(node.output.size()) - 1;
  std::vector<int64_t> begins = {0}, ends = {0};  // of the batch axis
  for (int i = 0; i < rank; ++i) {
    begins.push_back(AxisOf(node.window, rank, i).pad_begin);
    ends.push_back(AxisOf(node.window, rank, i).pad_end);
  }
  for (std::vector<int64_t>* pads : {&begins, &ends})
    pads->insert(channels == Channels::kFirst ? pads->begin() + 1 : pads->end(), 0);
  begins.insert(begins.end(), ends.begin(), ends.end());
  const std::string x = w.In(node, 0, channels);
  std::string padded = w.Op("Pad", {x, w.Whole("pads", begins)});
  if (FeedsMaxPooling(node, w.graph())) padded = w.Op("Sum", {padded});
  w.SetOutput(node, padded, channels);
}

absl::Status ImportPad(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  const std::string mode = attributes.Text("mode", "constant");
  std::vector<int64_t> pads = attributes.Ints("pads");
  float value = attributes.Float("value", 0);
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (mode != "constant" && mode != "reflect")
    return Lacks("attribute \"mode\" is \"", absl::CEscape(mode.substr(0, 64)), "\"; Cairn has constant and reflect");
  if (importer.HasInput(1)) {
    CAIRN_ASSIGN_OR_RETURN(pads, importer.IntsOf(1, "pads"));
  }
  if (importer.HasInput(2)) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<float> constant, importer.FloatsOf(2, "value", 1));
    value = constant[0];
  }
  if (importer.HasInput(3)) return Lacks("its axes (input 3); give pads for all of them");
  if (pads.size() != 2 * (x.dims.size() + 1))
    return Bad(pads.size(), " pads for an input of ", x.dims.size() + 1, " dimensions, batch included");
  for (const int64_t pad : pads) {
    if (pad < 0 || pad > kWindowMax) return Lacks("a pad of ", pad, "; 0 .. ", kWindowMax, " can be");
  }
  if (std::all_of(pads.begin(), pads.end(), [](int64_t pad) { return pad == 0; })) {
    importer.SetView(x);
    return absl::OkStatus();
  }
  // All axes but one may be padded; that one is taken as the channels.
  const size_t rank = x.dims.size() + 1;
  const auto is_padded = [&](size_t axis) { return pads[axis] > 0 || pads[axis + rank] > 0; };
  int channels = -1;
  for (size_t axis = 1; axis < rank && channels < 0; ++axis) {
    if (!is_padded(axis)) channels = static_cast<int>(axis) - 1;
  }
  if (mode == "reflect") return ImportOnnxPads(importer, v1::Pad::REFLECT, pads, 0);
  if (value != 0 || rank < 3 || rank > 5 || is_padded(0) || channels < 0) {
    return ImportOnnxPads(importer, v1::Pad::CONSTANT, pads, value);
  }
  const int axes = static_cast<int>(rank) - 2;
  const std::vector<int> order = AxisLast(x.dims.size(), channels);
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, order));
  Window window;
  for (int i = 0; i < axes; ++i) {
    const size_t axis = static_cast<size_t>(order[static_cast<size_t>(i)]) + 1;
    SetAxis({1, 1, 1, pads[axis], pads[axis + rank]}, axes, i, &window);
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, AddPadding(importer, window, axes, from));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), order));
  return absl::OkStatus();
}

constexpr OnnxOperator kOnnx[] = {{"Pad", ImportPad}};
constexpr KerasClass kZeroPadding1DKeras[] = {{"ZeroPadding1D", [](KerasConfig& c, v1::Layer* layer) {
                                                 keras::ChannelsLast(c);
                                                 ReadSides(c, "padding",
                                                           layer->mutable_zero_padding1d()->mutable_padding());
                                               }}};
constexpr KerasClass kZeroPadding2DKeras[] = {{"ZeroPadding2D", [](KerasConfig& c, v1::Layer* layer) {
                                                 keras::ChannelsLast(c);
                                                 ReadSides(c, "padding",
                                                           layer->mutable_zero_padding2d()->mutable_padding());
                                               }}};
constexpr KerasClass kZeroPadding3DKeras[] = {{"ZeroPadding3D", [](KerasConfig& c, v1::Layer* layer) {
                                                 keras::ChannelsLast(c);
                                                 ReadSides(c, "padding",
                                                           layer->mutable_zero_padding3d()->mutable_padding());
                                               }}};

}  // namespace

constinit const LayerType kZeroPadding1DLayer = {
    .kind = LayerKind::kZeroPadding1D,
    .field = v1::Layer::kZeroPadding1D,
    .name = "zero_padding1d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferZeroPadding(1, inputs[0], node->layer.mutable_zero_padding1d()->mutable_padding(), node);
        },
    .keras = kZeroPadding1DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteZeroPadding(node.layer.zero_padding1d().padding(), c); },
    .write_onnx = WriteOnnx,
};

constinit const LayerType kZeroPadding2DLayer = {
    .kind = LayerKind::kZeroPadding2D,
    .field = v1::Layer::kZeroPadding2D,
    .name = "zero_padding2d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferZeroPadding(2, inputs[0], node->layer.mutable_zero_padding2d()->mutable_padding(), node);
        },
    .keras = kZeroPadding2DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteZeroPadding(node.layer.zero_padding2d().padding(), c); },
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

constinit const LayerType kZeroPadding3DLayer = {
    .kind = LayerKind::kZeroPadding3D,
    .field = v1::Layer::kZeroPadding3D,
    .name = "zero_padding3d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferZeroPadding(3, inputs[0], node->layer.mutable_zero_padding3d()->mutable_padding(), node);
        },
    .keras = kZeroPadding3DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteZeroPadding(node.layer.zero_padding3d().padding(), c); },
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
