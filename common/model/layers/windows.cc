#include "common/model/layers/windows.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/lacks.h"
#include "common/base/limits.h"
#include "common/model/limits.h"

namespace cairn::layers {
namespace {

// Of TensorFlow's SAME.
void SamePads(int64_t extent, int64_t reach, int64_t stride, int64_t* begin, int64_t* end) {
  const int64_t out = (extent + stride - 1) / stride, total = std::max<int64_t>(0, (out - 1) * stride + reach - extent);
  *begin = total / 2;
  *end = total - *begin;
}

int64_t Reach(const Window& w, int i) { return (w.kernel[i] - 1) * w.dilation[i] + 1; }

}  // namespace

absl::Status CheckStridesAndDilation(const Window& w) {
  if ((w.strides[0] > 1 || w.strides[1] > 1) && (w.dilation[0] > 1 || w.dilation[1] > 1)) {
    return Bad("strides and dilation_rate are both above 1; set one of them to 1");
  }
  return absl::OkStatus();
}

// A sequence is an image of height 1.
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
  const Window& window = node.window;
  const auto pair = [&](const int64_t(&p)[2]) {
    return node.output.size() == 3 ? std::vector<int64_t>{p[0], p[1]} : std::vector<int64_t>{p[1]};
  };
  w.Ints("kernel_shape", pair(window.kernel));
  w.Ints("strides", pair(window.strides));
  if (dilations) w.Ints("dilations", pair(window.dilation));
  std::vector<int64_t> pads = pair(window.pad_begin);
  for (const int64_t pad : pair(window.pad_end)) pads.push_back(pad);
  w.Ints("pads", pads);
}

void WriteOnnxConvolution(const Node& node, OnnxWriter& w) {
  const Shape& input = w.ShapeOf(node, 0);
  const int64_t *k = node.window.kernel, channels = node.output.back();
  OnnxWriter::Names inputs = {w.In(node, 0, Channels::kFirst)};
  int64_t groups = 1;
  if (node.kind == LayerKind::kDepthwiseConv2D) {
    groups = input.back();
    inputs.push_back(w.VariableOf(node, "kernel", {2, 3, 0, 1}, {channels, 1, k[0], k[1]}));
  } else if (node.kind == LayerKind::kConv2D) {
    inputs.push_back(w.VariableOf(node, "kernel", {3, 2, 0, 1}, {channels, input.back(), k[0], k[1]}));
  } else {
    inputs.push_back(w.VariableOf(node, "kernel", {2, 1, 0}, {channels, input.back(), k[1]}));
  }
  if (const std::string bias = w.VariableOf(node, "bias"); !bias.empty()) inputs.push_back(bias);
  const std::string y = w.Op("Conv", inputs);
  w.Int("group", groups);
  WriteOnnxWindow(w, node, /*dilations=*/true);
  w.Finish(node, y, Channels::kFirst);
}

void Extent(const OnnxView& x, int64_t extent[2]) {
  extent[0] = x.dims.size() == 3 ? x.dims[1] : 1;
  extent[1] = x.dims.back();
}

absl::Status ReadOnnxWindow(OnnxAttributes* attributes, absl::Span<const int64_t> kernel, const OnnxView& x,
                            Window* window) {
  const size_t rank = kernel.size();
  const auto read = [&](const char* name, int64_t lowest, absl::Span<int64_t> to) -> absl::Status {
    const std::vector<int64_t> given = attributes->Ints(name);
    if (given.empty()) return absl::OkStatus();
    if (given.size() != to.size())
      return Bad("attribute \"", name, "\" has ", given.size(), " numbers; ", to.size(), " are needed");
    for (size_t i = 0; i < to.size(); ++i) {
      if (given[i] < lowest || given[i] > kWindowMax)
        return Bad("attribute \"", name, "\": ", given[i], " is outside ", lowest, " .. ", kWindowMax);
      to[i] = given[i];
    }
    return absl::OkStatus();
  };
  const size_t first = 2 - rank;  // a sequence is an image of height 1
  int64_t pads[4] = {0, 0, 0, 0};
  for (size_t i = 0; i < rank; ++i) {
    if (kernel[i] < 1 || kernel[i] > kWindowMax)
      return Bad("its window is ", kernel[i], " wide; 1 .. ", kWindowMax, " can be");
    window->kernel[first + i] = kernel[i];
  }
  CAIRN_RETURN_IF_ERROR(read("strides", 1, absl::MakeSpan(window->strides + first, rank)));
  CAIRN_RETURN_IF_ERROR(read("dilations", 1, absl::MakeSpan(window->dilation + first, rank)));
  CAIRN_RETURN_IF_ERROR(read("pads", 0, absl::MakeSpan(pads, 2 * rank)));
  for (size_t i = 0; i < rank; ++i) {
    window->pad_begin[first + i] = pads[i];
    window->pad_end[first + i] = pads[rank + i];
  }
  const std::string automatic = attributes->Text("auto_pad", "NOTSET");
  if (automatic == "NOTSET") return absl::OkStatus();
  if (automatic != "VALID" && automatic != "SAME_UPPER" && automatic != "SAME_LOWER") {
    return Bad("attribute \"auto_pad\" is \"", absl::CEscape(automatic.substr(0, 64)), "\"");
  }
  int64_t extent[2];
  Extent(x, extent);
  for (int i = 0; i < 2; ++i) {
    int64_t begin = 0, end = 0;
    if (automatic != "VALID") SamePads(extent[i], Reach(*window, i), window->strides[i], &begin, &end);
    if (automatic == "SAME_LOWER") std::swap(begin, end);
    window->pad_begin[i] = begin;
    window->pad_end[i] = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Padding> PadFor(OnnxImporter& importer, const Window& window, const OnnxView& x, bool zeros_do,
                                   int* layer) {
  int64_t extent[2];
  Extent(x, extent);
  bool valid = true, same = true;
  for (int i = 0; i < 2; ++i) {
    int64_t begin, end;
    SamePads(extent[i], Reach(window, i), window.strides[i], &begin, &end);
    valid = valid && window.pad_begin[i] == 0 && window.pad_end[i] == 0;
    same = same && window.pad_begin[i] == begin && window.pad_end[i] == end;
  }
  if (valid) return v1::VALID;
  if (same) return v1::SAME;
  if (x.dims.size() != 3)
    return Lacks(
        "its pads are neither none nor those of TensorFlow's SAME, and sequences cannot be padded by a layer of their "
        "own");
  if (!zeros_do)
    return Lacks("its pads are not those of TensorFlow's SAME, and zeros in their place would change what it computes");
  v1::Layer pad;
  for (const int64_t n : {window.pad_begin[0], window.pad_end[0], window.pad_begin[1], window.pad_end[1]}) {
    pad.mutable_zero_padding2d()->add_padding(static_cast<int32_t>(n));
  }
  CAIRN_ASSIGN_OR_RETURN(*layer, importer.AddLayer(LayerKind::kZeroPadding2D, pad, {*layer}));
  return v1::VALID;
}

}  // namespace cairn::layers
