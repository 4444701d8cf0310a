// Cropping1D, Cropping2D and Cropping3D: crop the ends of each axis. Node::window's pads are the amounts.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_operations.h"

namespace cairn::layers {
namespace {

constexpr const char* kAxisNames[] = {"planes", "rows", "columns"};

absl::Status InferCropping(int rank, int32_t fallback, const Shape& input, Numbers* cropping, Node* node) {
  CAIRN_RETURN_IF_ERROR(NeedAxes(input, rank));
  int32_t ends[2 * kWindowAxesMax];
  CAIRN_RETURN_IF_ERROR(ReadEnds("cropping", rank, fallback, cropping, ends));
  for (int i = 0; i < rank; ++i) {
    int64_t& size = node->output[static_cast<size_t>(i)];
    SetAxis({1, 1, 1, ends[2 * i], ends[2 * i + 1]}, rank, i, &node->window);
    size -= ends[2 * i] + ends[2 * i + 1];
    if (size < 1) {
      return Bad("cropping ", ends[2 * i], " and ", ends[2 * i + 1], " leave nothing of the ",
                 input[static_cast<size_t>(i)], " ", rank == 1 ? "steps" : kAxisNames[3 - rank + i], " of its input ",
                 ToString(input), "; crop less");
    }
  }
  return absl::OkStatus();
}

void WriteCropping(const Numbers& cropping, KerasWriter& c) {
  WriteEnds("cropping", cropping, &c);
  if (cropping.size() > 2) c.ChannelsLast();
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const Channels channels = w.Has(node, 0);
  const int rank = static_cast<int>(node.output.size()) - 1;
  std::vector<int64_t> starts, ends, axes;
  for (int i = 0; i < rank; ++i) {
    starts.push_back(AxisOf(node.window, rank, i).pad_begin);
    ends.push_back(starts.back() + node.output[static_cast<size_t>(i)]);
    axes.push_back((channels == Channels::kFirst ? 2 : 1) + i);
  }
  const std::string x = w.In(node, 0, channels);
  const std::string y = w.Op("Slice", {x, w.Whole("starts", starts), w.Whole("ends", ends), w.Whole("axes", axes)});
  w.SetOutput(node, y, channels);
}

// What a Slice removes from each axis, at the beginning and at the end.
struct Cut {
  std::vector<int64_t> begin, end;
  bool Of(size_t axis) const { return begin[axis] + end[axis] > 0; }
};

// starts, ends, axes, steps: inputs, or before opset 10 attributes.
absl::StatusOr<Cut> ReadCut(const OnnxImporter& importer, const OnnxView& x) {
  OnnxAttributes attributes(importer.node());
  std::vector<int64_t> numbers[] = {attributes.Ints("starts"), attributes.Ints("ends"), attributes.Ints("axes"), {}};
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  const char* names[] = {"starts", "ends", "axes", "steps"};
  for (int i = 0; i < 4; ++i) {
    if (!importer.HasInput(i + 1)) continue;
    CAIRN_ASSIGN_OR_RETURN(numbers[i], importer.IntsOf(i + 1, names[i]));
  }
  auto& [starts, ends, axes, steps] = numbers;
  const size_t count = starts.size(), rank = x.dims.size();
  if (axes.empty()) {
    for (size_t i = 0; i < count; ++i) axes.push_back(static_cast<int64_t>(i));
  }
  if (steps.empty()) steps.assign(count, 1);
  if (count == 0 || ends.size() != count || axes.size() != count || steps.size() != count) {
    return Bad("its starts, ends, axes and steps have ", count, ", ", ends.size(), ", ", axes.size(), " and ",
               steps.size(), " numbers");
  }
  Cut cut{std::vector<int64_t>(rank, 0), std::vector<int64_t>(rank, 0)};
  std::set<int> seen;
  for (size_t i = 0; i < count; ++i) {
    const int64_t from_front = axes[i] < 0 ? axes[i] + static_cast<int64_t>(rank) + 1 : axes[i];
    if (from_front == x.batch && starts[i] == 0 && ends[i] >= INT32_MAX && steps[i] == 1)
      continue;  // keeps all examples
    CAIRN_ASSIGN_OR_RETURN(const int axis, x.AxisOf(axes[i]));
    const int64_t size = x.dims[static_cast<size_t>(axis)];
    const auto place = [size](int64_t n) { return std::clamp<int64_t>(n < 0 ? n + size : n, 0, size); };
    if (steps[i] != 1) return Lacks("it goes in steps of ", steps[i], "; 1 is read");
    if (!seen.insert(axis).second) return Bad("it names axis ", axes[i], " twice");
    if (place(starts[i]) >= place(ends[i])) return Bad("it leaves nothing of axis ", axes[i]);
    cut.begin[static_cast<size_t>(axis)] = place(starts[i]);
    cut.end[static_cast<size_t>(axis)] = size - place(ends[i]);
  }
  return cut;
}

// Crops all axes but one, which is taken as the channels: the axis that is last in the layer, if it is not cropped, so
// that nothing is transposed.
absl::Status ImportSlice(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.LaidViewOf(0));
  const absl::StatusOr<Cut> read = ReadCut(importer, x);
  if (absl::IsUnimplemented(read.status())) return ImportOnnxSlice(importer);
  if (!read.ok()) return read.status();
  const Cut& cut = *read;
  const std::vector<int> lies = x.LayerOrder();
  int axes_cut = 0, channels = -1;
  for (const int axis : lies) {
    axes_cut += cut.Of(static_cast<size_t>(axis));
    if (!cut.Of(static_cast<size_t>(axis))) channels = axis;
  }
  if (axes_cut == 0) {
    importer.SetLaidView(x);
    return absl::OkStatus();
  }
  const int rank = static_cast<int>(x.dims.size()) - 1;
  if (rank < 1 || rank > kWindowAxesMax || channels < 0) return ImportOnnxSlice(importer);
  const std::vector<int> order = AxisLast(x.dims.size(), channels);
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, order));
  v1::Layer layer;
  const LayerKind kind = rank == 1   ? LayerKind::kCropping1D
                         : rank == 2 ? LayerKind::kCropping2D
                                     : LayerKind::kCropping3D;
  Numbers* const cropping = rank == 1   ? layer.mutable_cropping1d()->mutable_cropping()
                            : rank == 2 ? layer.mutable_cropping2d()->mutable_cropping()
                                        : layer.mutable_cropping3d()->mutable_cropping();
  for (int i = 0; i < rank; ++i) {
    const size_t axis = static_cast<size_t>(order[static_cast<size_t>(i)]);
    cropping->Add(static_cast<int32_t>(cut.begin[axis]));
    cropping->Add(static_cast<int32_t>(cut.end[axis]));
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(kind, layer, {from}));
  importer.SetLaidView(OnnxView::Of(id, importer.layers().ShapeOf(id), order).WithBatchAt(x.batch));
  return absl::OkStatus();
}

constexpr OnnxOperator kOnnx[] = {{"Slice", ImportSlice}};
constexpr KerasClass kCropping1DKeras[] = {{"Cropping1D", [](KerasConfig& c, v1::Layer* layer) {
                                              keras::ChannelsLast(c);
                                              ReadSides(c, "cropping", layer->mutable_cropping1d()->mutable_cropping());
                                            }}};
constexpr KerasClass kCropping2DKeras[] = {{"Cropping2D", [](KerasConfig& c, v1::Layer* layer) {
                                              keras::ChannelsLast(c);
                                              ReadSides(c, "cropping", layer->mutable_cropping2d()->mutable_cropping());
                                            }}};
constexpr KerasClass kCropping3DKeras[] = {{"Cropping3D", [](KerasConfig& c, v1::Layer* layer) {
                                              keras::ChannelsLast(c);
                                              ReadSides(c, "cropping", layer->mutable_cropping3d()->mutable_cropping());
                                            }}};

}  // namespace

constinit const LayerType kCropping1DLayer = {
    .kind = LayerKind::kCropping1D,
    .field = v1::Layer::kCropping1D,
    .name = "cropping1d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferCropping(1, 1, inputs[0], node->layer.mutable_cropping1d()->mutable_cropping(), node);
        },
    .keras = kCropping1DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteCropping(node.layer.cropping1d().cropping(), c); },
    .write_onnx = WriteOnnx,
};

constinit const LayerType kCropping2DLayer = {
    .kind = LayerKind::kCropping2D,
    .field = v1::Layer::kCropping2D,
    .name = "cropping2d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferCropping(2, 0, inputs[0], node->layer.mutable_cropping2d()->mutable_cropping(), node);
        },
    .keras = kCropping2DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteCropping(node.layer.cropping2d().cropping(), c); },
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

constinit const LayerType kCropping3DLayer = {
    .kind = LayerKind::kCropping3D,
    .field = v1::Layer::kCropping3D,
    .name = "cropping3d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferCropping(3, 1, inputs[0], node->layer.mutable_cropping3d()->mutable_cropping(), node);
        },
    .keras = kCropping3DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteCropping(node.layer.cropping3d().cropping(), c); },
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
