// Cropping2D: rows and columns cut off the sides of an image. Node::window's pads are what is cut.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/layers/windows.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_operations.h"

namespace cairn::layers {
namespace {

absl::Status InferCropping2D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_RETURN_IF_ERROR(NeedImage(inputs[0]));
  int32_t sides[4];
  CAIRN_RETURN_IF_ERROR(ReadSides("cropping", 0, node->layer.mutable_cropping2d()->mutable_cropping(), sides));
  for (int i = 0; i < 2; ++i) {
    node->window.pad_begin[i] = sides[2 * i];
    node->window.pad_end[i] = sides[2 * i + 1];
    node->output[i] -= sides[2 * i] + sides[2 * i + 1];
    if (node->output[i] < 1) {
      return Bad("cropping ", sides[2 * i], " and ", sides[2 * i + 1], " leave nothing of the ", inputs[0][i],
                 i == 0 ? " rows" : " columns", " of its input ", ToString(inputs[0]), "; crop less");
    }
  }
  return absl::OkStatus();
}

void ReadCropping2D(KerasConfig& c, v1::Layer* layer) {
  keras::ChannelsLast(c);
  ReadSides(c, "cropping", layer->mutable_cropping2d()->mutable_cropping());
}

void WriteCropping2D(const Node& node, KerasWriter& c) {
  WriteSides("cropping", node.layer.cropping2d().cropping(), &c);
  c.ChannelsLast();
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const Channels channels = w.Has(node, 0);
  const Window& window = node.window;
  std::vector<int64_t> starts, ends, axes;
  for (int i = 0; i < 2; ++i) {
    starts.push_back(window.pad_begin[i]);
    ends.push_back(window.pad_begin[i] + node.output[static_cast<size_t>(i)]);
    axes.push_back((channels == Channels::kFirst ? 2 : 1) + i);
  }
  const std::string x = w.In(node, 0, channels);
  const std::string y = w.Op("Slice", {x, w.Whole("starts", starts), w.Whole("ends", ends), w.Whole("axes", axes)});
  w.SetOutput(node, y, channels);
}

// What a Slice leaves away of each axis, before and behind what is left.
struct Cut {
  std::vector<int64_t> begin, end;
  bool Of(size_t axis) const { return begin[axis] + end[axis] > 0; }
};

// starts, ends, axes, steps: as inputs, or before opset 10 as attributes.
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
    if (from_front == 0 && starts[i] == 0 && ends[i] >= INT32_MAX && steps[i] == 1) continue;  // all examples
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

// Of one or two of a picture's three axes: one of the others is taken for the channels, that which lies last if it is
// one of them, so that nothing is moved for it.
absl::Status ImportSlice(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
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
    importer.SetView(x);
    return absl::OkStatus();
  }
  if (x.dims.size() != 3 || axes_cut > 2) return ImportOnnxSlice(importer);
  const std::vector<int> order = AxisLast(3, channels);
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, order));
  v1::Layer layer;
  for (int i = 0; i < 2; ++i) {
    const size_t axis = static_cast<size_t>(order[static_cast<size_t>(i)]);
    layer.mutable_cropping2d()->add_cropping(static_cast<int32_t>(cut.begin[axis]));
    layer.mutable_cropping2d()->add_cropping(static_cast<int32_t>(cut.end[axis]));
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kCropping2D, layer, {from}));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), order));
  return absl::OkStatus();
}

constexpr KerasClass kKeras[] = {{"Cropping2D", ReadCropping2D}};
constexpr OnnxOperator kOnnx[] = {{"Slice", ImportSlice}};

}  // namespace

constinit const LayerType kCropping2DLayer = {
    .kind = LayerKind::kCropping2D,
    .field = v1::Layer::kCropping2D,
    .name = "cropping2d",
    .infer = InferCropping2D,
    .keras = kKeras,
    .write_keras = WriteCropping2D,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
