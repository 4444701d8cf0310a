// Pad: numbers around a tensor, a constant one or those of the tensor itself, mirrored.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_writer.h"
#include "common/model/tensor_places.h"

namespace cairn::layers {
namespace {

absl::Status CheckPads(const v1::Pad& pad, const Shape& input) {
  for (const auto& [field, pads] : {std::pair("before", pad.before()), std::pair("after", pad.after())}) {
    if (pads.size() != static_cast<int>(input.size())) {
      return Bad(field, " has ", pads.size(), " numbers, but its input is ", ToString(input),
                 "; give one for each axis after the batch, 0 where there is nothing to add");
    }
    for (int i = 0; i < pads.size(); ++i) {
      const int64_t size = input[static_cast<size_t>(i)];
      if (pads.Get(i) < 0 || pads.Get(i) > kWindowMax) {
        return Bad(field, " ", pads.Get(i), " is outside 0 .. ", kWindowMax, "; use such a number");
      }
      const int64_t most = pad.mode() == v1::Pad::CONSTANT  ? kWindowMax
                           : pad.mode() == v1::Pad::REFLECT ? size - 1
                                                            : size;
      if (pads.Get(i) > most) {
        return Bad(field, " ", pads.Get(i), ": mode ", v1::Pad::Mode_Name(pad.mode()), " mirrors at most ", most,
                   " numbers of an axis of ", size, "; pad less");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status InferPad(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::Pad* pad = node->layer.mutable_pad();
  if (!v1::Pad::Mode_IsValid(pad->mode())) {
    return Bad("mode ", static_cast<int>(pad->mode()), " is not known; use CONSTANT, REFLECT or SYMMETRIC");
  }
  if (pad->mode() == v1::Pad::MODE_UNSPECIFIED) pad->set_mode(v1::Pad::CONSTANT);
  if (!std::isfinite(pad->constant_value())) {
    return Bad("constant_value ", pad->constant_value(), " is not finite; use a number");
  }
  if (pad->mode() != v1::Pad::CONSTANT && pad->constant_value() != 0) {
    return Bad("constant_value is only for mode CONSTANT; leave it out");
  }
  CAIRN_RETURN_IF_ERROR(CheckPads(*pad, inputs[0]));
  for (int i = 0; i < pad->before_size(); ++i) {
    node->output[static_cast<size_t>(i)] += int64_t{pad->before(i)} + pad->after(i);
  }
  return absl::OkStatus();
}

void WriteKeras(const Node& node, KerasWriter& c) {
  const v1::Pad& pad = node.layer.pad();
  c.Clear();
  OrderedJson widths = OrderedJson::array({OrderedJson::array({0, 0})});
  for (int i = 0; i < pad.before_size(); ++i) widths.push_back(OrderedJson::array({pad.before(i), pad.after(i)}));
  c["pad_width"] = std::move(widths);
  c["mode"] = pad.mode() == v1::Pad::REFLECT ? "reflect" : pad.mode() == v1::Pad::SYMMETRIC ? "symmetric" : "constant";
}

// ONNX's Pad cannot repeat the number at the edge: an axis after the other takes its places.
std::string Mirrored(const Node& node, OnnxWriter& w, std::string x) {
  const std::vector<std::vector<int64_t>> places = PlacesOf(node, w.ShapeOf(node, 0));
  for (size_t axis = 0; axis < places.size(); ++axis) {
    if (static_cast<int64_t>(places[axis].size()) == w.ShapeOf(node, 0)[axis]) continue;
    x = w.Op("Gather", {x, w.Whole("places", places[axis])});
    w.Int("axis", static_cast<int64_t>(axis) + 1);
  }
  return x;
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const v1::Pad& pad = node.layer.pad();
  const std::string x = w.In(node, 0, Channels::kLast);
  if (pad.mode() == v1::Pad::SYMMETRIC) return w.SetOutput(node, Mirrored(node, w, x), Channels::kLast);
  std::vector<int64_t> pads = {0};  // of the batch axis
  pads.insert(pads.end(), pad.before().begin(), pad.before().end());
  pads.push_back(0);
  pads.insert(pads.end(), pad.after().begin(), pad.after().end());
  OnnxWriter::Names inputs = {x, w.Whole("pads", pads)};
  if (pad.constant_value() != 0) inputs.push_back(w.Scalar("value", pad.constant_value()));
  const std::string y = w.Op("Pad", inputs);
  if (pad.mode() == v1::Pad::REFLECT) w.Text("mode", "reflect");
  // onnxruntime fuses a Pad into the MaxPool after it, which then pads with the smallest number.
  w.SetOutput(node, w.Op("Sum", {y}), Channels::kLast);
}

}  // namespace

constinit const LayerType kPadLayer = {
    .kind = LayerKind::kPad,
    .field = v1::Layer::kPad,
    .name = "pad",
    .infer = InferPad,
    .keras = {},
    .keras_class = [](const Node&) { return "Pad"; },
    .write_keras = WriteKeras,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
