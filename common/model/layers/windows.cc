#include "common/model/layers/windows.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/lacks.h"
#include "common/base/limits.h"
#include "common/model/layers/window_axes.h"
#include "common/model/limits.h"

namespace cairn::layers {
namespace {

// The pads of TensorFlow's SAME.
void SamePads(int64_t extent, int64_t reach, int64_t stride, int64_t* begin, int64_t* end) {
  const int64_t out = (extent + stride - 1) / stride, total = std::max<int64_t>(0, (out - 1) * stride + reach - extent);
  *begin = total / 2;
  *end = total - *begin;
}

}  // namespace

absl::Status CheckStridesAndDilation(const Window& w) {
  if ((w.strides[0] > 1 || w.strides[1] > 1) && (w.dilation[0] > 1 || w.dilation[1] > 1)) {
    return Bad("strides and dilation_rate are both above 1; set one of them to 1");
  }
  return absl::OkStatus();
}

// A sequence is treated as an image of height 1.
absl::Status SlideAlong(const char* what, const Shape& input, v1::Padding padding, Node* node) {
  const Shape image = {1, input[0], input[1]};
  Shape output = image;
  const absl::Status status = SlideWindow(what, image, padding, &node->window, &output);
  if (!status.ok()) {
    return Bad(what, " of ", (node->window.kernel[1] - 1) * node->window.dilation[1] + 1,
               " steps is larger than its input ", ToString(input), "; use a smaller one or padding: SAME");
  }
  node->output[0] = output[1];
  return absl::OkStatus();
}

absl::Status ReadSides(const char* field, int32_t fallback, Numbers* numbers, int32_t sides[4]) {
  const Numbers given = *numbers;
  switch (given.size()) {
    case 0: std::fill(sides, sides + 4, fallback); break;
    case 1: std::fill(sides, sides + 4, given[0]); break;
    case 2:
      sides[0] = sides[1] = given[0];
      sides[2] = sides[3] = given[1];
      break;
    case 4: std::copy(given.begin(), given.end(), sides); break;
    default:
      return Bad(field, " has ", given.size(),
                 " numbers; give one, two (height, width) or four (top, bottom, left, right)");
  }
  numbers->Clear();
  for (int i = 0; i < 4; ++i) {
    if (sides[i] < 0 || sides[i] > kWindowMax) return Bad(field, " ", sides[i], " is outside 0 .. ", kWindowMax);
    numbers->Add(sides[i]);
  }
  return absl::OkStatus();
}

// ---- Keras ----

int32_t OneInt(KerasConfig& c, const char* key, int32_t otherwise) {
  Int32Field numbers;
  c.Ints(key, &numbers);
  if (numbers.size() > 1) c.Refuse(absl::StrCat(key, ": more than one number"));
  return numbers.empty() ? otherwise : numbers[0];
}

void ReadSides(KerasConfig& c, const char* key, Numbers* out) {
  const Json* padding = c.Take(key);
  if (padding == nullptr) return;
  std::vector<Json> numbers;  // 1, [1, 2] or [[1, 2], [3, 4]]
  for (const Json& item : padding->is_array() ? *padding : Json::array({*padding})) {
    if (!item.is_array()) numbers.push_back(item);
    for (const Json& side : item.is_array() ? item : Json::array()) numbers.push_back(side);
  }
  for (const Json& number : numbers) {
    if (!number.is_number_integer() || number.get<double>() < 0 || number.get<double>() > kImageSideMax) {
      return c.Refuse(
          absl::StrCat(key, ": ", ShownJson(*padding), " is not one number, [h, w] or [[top, bottom], [left, right]]"));
    }
    out->Add(number.get<int32_t>());
  }
}

void WriteSides(const char* key, const Numbers& sides, KerasWriter* c) {
  (*c)[key] = {{sides[0], sides[1]}, {sides[2], sides[3]}};
}

// ---- ONNX ----

void WriteOnnxWindow(OnnxWriter& w, const Node& node, bool dilations) {
  WriteOnnxAxes(w, node, static_cast<int>(node.output.size()) - 1, dilations);
}

void WriteOnnxConvolution(const Node& node, OnnxWriter& w) {
  const Shape& input = w.ShapeOf(node, 0);
  const int rank = static_cast<int>(input.size()) - 1;
  const bool depthwise = node.kind == LayerKind::kDepthwiseConv2D || node.kind == LayerKind::kDepthwiseConv1D;
  const int64_t groups = depthwise ? input.back() : node.window.groups;
  Shape dims = {node.output.back(), input.back() / groups};
  for (const int64_t size : KernelSizes(node.window, rank)) dims.push_back(size);
  std::vector<int> axes = KernelToFront(rank);
  if (depthwise) std::swap(axes[0], axes[1]);  // channels and multiplier together form the output channels
  OnnxWriter::Names inputs = {w.In(node, 0, Channels::kFirst), w.VariableOf(node, "kernel", axes, dims)};
  if (const std::string bias = w.VariableOf(node, "bias"); !bias.empty()) inputs.push_back(bias);
  const std::string y = w.Op("Conv", inputs);
  w.Int("group", groups);
  WriteOnnxWindow(w, node, /*dilations=*/true);
  w.Finish(node, y, Channels::kFirst);
}

absl::Status ReadOnnxWindow(OnnxAttributes* attributes, absl::Span<const int64_t> kernel, const OnnxView& x,
                            Window* window) {
  const int rank = static_cast<int>(kernel.size());
  std::vector<WindowAxis> axes(kernel.size());
  const auto read = [&](const char* name, int64_t lowest, size_t count, const auto& set) -> absl::Status {
    const std::vector<int64_t> given = attributes->Ints(name);
    if (given.empty()) return absl::OkStatus();
    if (given.size() != count)
      return Bad("attribute \"", name, "\" has ", given.size(), " numbers; ", count, " are needed");
    for (size_t i = 0; i < count; ++i) {
      if (given[i] < lowest || given[i] > kWindowMax)
        return Bad("attribute \"", name, "\": ", given[i], " is outside ", lowest, " .. ", kWindowMax);
      set(i, given[i]);
    }
    return absl::OkStatus();
  };
  const size_t count = kernel.size();
  for (size_t i = 0; i < count; ++i) {
    if (kernel[i] < 1 || kernel[i] > kWindowMax)
      return Bad("its window is ", kernel[i], " wide; 1 .. ", kWindowMax, " can be");
    axes[i].kernel = kernel[i];
  }
  CAIRN_RETURN_IF_ERROR(read("strides", 1, count, [&](size_t i, int64_t n) { axes[i].stride = n; }));
  CAIRN_RETURN_IF_ERROR(read("dilations", 1, count, [&](size_t i, int64_t n) { axes[i].dilation = n; }));
  CAIRN_RETURN_IF_ERROR(read("pads", 0, 2 * count, [&](size_t i, int64_t n) {
    (i < count ? axes[i].pad_begin : axes[i - count].pad_end) = n;
  }));
  const std::string automatic = attributes->Text("auto_pad", "NOTSET");
  if (automatic != "NOTSET" && automatic != "VALID" && automatic != "SAME_UPPER" && automatic != "SAME_LOWER") {
    return Bad("attribute \"auto_pad\" is \"", absl::CEscape(automatic.substr(0, 64)), "\"");
  }
  for (int i = 0; i < rank; ++i) {
    WindowAxis& axis = axes[static_cast<size_t>(i)];
    if (automatic != "NOTSET") axis.pad_begin = axis.pad_end = 0;
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      SamePads(x.dims[static_cast<size_t>(i) + 1], ReachOf(axis), axis.stride, &axis.pad_begin, &axis.pad_end);
    }
    if (automatic == "SAME_LOWER") std::swap(axis.pad_begin, axis.pad_end);
    SetAxis(axis, rank, i, window);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> AddPadding(OnnxImporter& importer, const Window& window, int rank, int from) {
  v1::Layer pad;
  Numbers* const numbers = rank == 1   ? pad.mutable_zero_padding1d()->mutable_padding()
                           : rank == 2 ? pad.mutable_zero_padding2d()->mutable_padding()
                                       : pad.mutable_zero_padding3d()->mutable_padding();
  for (int i = 0; i < rank; ++i) {
    numbers->Add(static_cast<int32_t>(AxisOf(window, rank, i).pad_begin));
    numbers->Add(static_cast<int32_t>(AxisOf(window, rank, i).pad_end));
  }
  const LayerKind kind = rank == 1   ? LayerKind::kZeroPadding1D
                         : rank == 2 ? LayerKind::kZeroPadding2D
                                     : LayerKind::kZeroPadding3D;
  return importer.AddLayer(kind, pad, {from});
}

absl::StatusOr<v1::Padding> PadFor(OnnxImporter& importer, const Window& window, const OnnxView& x, bool zeros_do,
                                   int* layer) {
  const int rank = static_cast<int>(x.dims.size()) - 1;
  bool valid = true, same = true;
  for (int i = 0; i < rank; ++i) {
    const WindowAxis axis = AxisOf(window, rank, i);
    int64_t begin, end;
    SamePads(x.dims[static_cast<size_t>(i) + 1], ReachOf(axis), axis.stride, &begin, &end);
    valid = valid && axis.pad_begin == 0 && axis.pad_end == 0;
    same = same && axis.pad_begin == begin && axis.pad_end == end;
  }
  if (valid) return v1::VALID;
  if (same) return v1::SAME;
  if (!zeros_do)
    return Lacks("its pads are not those of TensorFlow's SAME, and zeros in their place would change what it computes");
  CAIRN_ASSIGN_OR_RETURN(*layer, AddPadding(importer, window, rank, *layer));
  return v1::VALID;
}

}  // namespace cairn::layers
