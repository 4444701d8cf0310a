// Resizing and CenterCrop.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "common/model/layers/resample.h"
#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"
#include "common/model/limits.h"
#include "common/model/resample.h"

namespace cairn::layers {

namespace {

// Moves axis `axis` of the value to the end. order: the present order of its axes after the batch, updated.
std::string AxisToEnd(OnnxWriter& w, const std::string& value, size_t axis, std::vector<size_t>* order) {
  if (order->back() == axis) return value;
  std::vector<int64_t> perm = {0};
  std::vector<size_t> turned;
  int64_t from = 0;
  for (size_t i = 0; i < order->size(); ++i) {
    if ((*order)[i] == axis) {
      from = static_cast<int64_t>(i) + 1;
      continue;
    }
    turned.push_back((*order)[i]);
    perm.push_back(static_cast<int64_t>(i) + 1);
  }
  turned.push_back(axis);
  perm.push_back(from);
  *order = std::move(turned);
  return w.Transpose(value, perm);
}

// [in, out]
std::vector<float> WeightsOf(const ResampledAxis& axis) {
  const size_t outs = axis.places.size();
  std::vector<float> weights(static_cast<size_t>(axis.in) * outs, 0.0f);
  for (size_t o = 0; o < outs; ++o) {
    const ResampledPlace& place = axis.places[o];
    for (size_t i = 0; i < place.weights.size(); ++i)
      weights[(static_cast<size_t>(place.first) + i) * outs + o] = static_cast<float>(place.weights[i]);
  }
  return weights;
}

}  // namespace

void WriteOnnxResampled(const Node& node, OnnxWriter& w) {
  const std::vector<ResampledAxis> axes = ResampledAxesOf(node, w.ShapeOf(node, 0));
  const std::string x = w.In(node, 0, Channels::kFirst);
  std::string y = x;
  std::vector<size_t> order = {0};  // the channels
  for (size_t axis = 1; axis <= axes.size(); ++axis) order.push_back(axis);
  const float fill = FillOf(node);
  std::vector<float> inside = {
      1};  // for each position the share that comes from inside the input: where the rest counts
  for (size_t axis = 1; axis <= axes.size(); ++axis) {
    const ResampledAxis& a = axes[axis - 1];
    std::vector<float> more;
    for (const float share : fill == 0 ? std::vector<float>() : inside) {
      for (const ResampledPlace& place : a.places) more.push_back(share * static_cast<float>(1 - place.outside));
    }
    inside = std::move(more);
    if (a.identity()) continue;
    y = AxisToEnd(w, y, axis, &order);
    const std::string name = absl::StrCat("weights", axis);
    y = w.Op("MatMul", {y, w.Numbers(name.c_str(), {a.in, static_cast<int64_t>(a.places.size())}, WeightsOf(a))});
  }
  for (size_t axis = 1; axis <= axes.size(); ++axis) {
    if (!std::is_sorted(order.begin(), order.end())) y = AxisToEnd(w, y, axis, &order);
  }
  if (fill != 0) {
    for (float& share : inside) share = fill * (1 - share);
    Shape dims = {1};
    dims.insert(dims.end(), node.output.begin(), node.output.end() - 1);
    y = w.Op("Add", {y, w.Numbers("fill", dims, inside)});
  }
  if (y == x) y = w.Op("Identity", {y});
  w.SetOutput(node, y, Channels::kFirst);
}

namespace {

constexpr std::pair<const char*, v1::Resizing::Interpolation> kInterpolations[] = {
    {"bilinear", v1::Resizing::BILINEAR}, {"nearest", v1::Resizing::NEAREST},   {"bicubic", v1::Resizing::BICUBIC},
    {"lanczos3", v1::Resizing::LANCZOS3}, {"lanczos5", v1::Resizing::LANCZOS5},
};

template <typename Layer>
absl::Status ReadTarget(const Shape& input, const Layer& layer, Node* node) {
  CAIRN_RETURN_IF_ERROR(NeedImage(input));
  for (const auto& [name, size] : {std::pair("height", layer.height()), std::pair("width", layer.width())}) {
    CAIRN_RETURN_IF_ERROR(NeedPositive(name, size, "224"));
    if (size > kWindowMax) return Bad(name, " ", size, " is too large; the limit is ", kWindowMax);
  }
  node->output[0] = layer.height();
  node->output[1] = layer.width();
  return absl::OkStatus();
}

absl::Status InferResizing(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::Resizing* layer = node->layer.mutable_resizing();
  CAIRN_RETURN_IF_ERROR(ReadTarget(inputs[0], *layer, node));
  if (layer->interpolation() == v1::Resizing::INTERPOLATION_UNSPECIFIED)
    layer->set_interpolation(v1::Resizing::BILINEAR);
  const auto kind = layer->interpolation();
  if (std::none_of(std::begin(kInterpolations), std::end(kInterpolations),
                   [&](const auto& known) { return known.second == kind; })) {
    const std::string& name = v1::Resizing::Interpolation_Name(kind);
    return Bad("interpolation ", name.empty() ? std::to_string(kind) : name,
               " is not supported; use BILINEAR, NEAREST, BICUBIC, LANCZOS3 or LANCZOS5");
  }
  if (layer->crop_to_aspect_ratio() && layer->pad_to_aspect_ratio())
    return Bad("crop_to_aspect_ratio and pad_to_aspect_ratio are both set; set one of them");
  if (!std::isfinite(layer->fill_value())) return Bad("fill_value is not finite; use a number");
  if (layer->fill_value() != 0 && !layer->pad_to_aspect_ratio())
    return Bad("fill_value is only for pad_to_aspect_ratio; set that or leave it out");
  return absl::OkStatus();
}

absl::Status InferCenterCrop(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  return ReadTarget(inputs[0], node->layer.center_crop(), node);
}

template <typename Layer>
void ReadTargetConfig(KerasConfig& c, Layer* layer) {
  int32_t height = 0, width = 0;
  c.Int("height", &height);
  c.Int("width", &width);
  layer->set_height(height);
  layer->set_width(width);
  keras::ChannelsLast(c);
}

void ReadResizing(KerasConfig& c, v1::Layer* out) {
  v1::Resizing* layer = out->mutable_resizing();
  ReadTargetConfig(c, layer);
  std::string name = "bilinear";
  c.Text("interpolation", &name);
  for (const auto& [text, kind] : kInterpolations) {
    if (name == text) layer->set_interpolation(kind);
  }
  if (layer->interpolation() == v1::Resizing::INTERPOLATION_UNSPECIFIED) {
    c.Refuse(absl::StrCat("interpolation: \"", ShownText(name),
                          "\" is not supported; use bilinear, nearest, bicubic, lanczos3 or lanczos5"));
  }
  bool crop = false, pad = false;
  float fill = 0;
  c.Bool("crop_to_aspect_ratio", &crop);
  c.Bool("pad_to_aspect_ratio", &pad);
  c.Float("fill_value", &fill);
  c.Only("fill_mode", "constant", "use constant");
  c.Only("antialias", false, keras::kLeaveAway);
  layer->set_crop_to_aspect_ratio(crop);
  layer->set_pad_to_aspect_ratio(pad);
  if (pad) layer->set_fill_value(fill);
}

void ReadCenterCrop(KerasConfig& c, v1::Layer* layer) { ReadTargetConfig(c, layer->mutable_center_crop()); }

void WriteResizing(const Node& node, KerasWriter& c) {
  const v1::Resizing& layer = node.layer.resizing();
  c["height"] = layer.height();
  c["width"] = layer.width();
  for (const auto& [text, kind] : kInterpolations) {
    if (layer.interpolation() == kind) c["interpolation"] = text;
  }
  c["crop_to_aspect_ratio"] = layer.crop_to_aspect_ratio();
  c["pad_to_aspect_ratio"] = layer.pad_to_aspect_ratio();
  c["fill_mode"] = "constant";
  c["fill_value"] = KerasWriter::Rounded(layer.fill_value());
  c.ChannelsLast();
}

void WriteCenterCrop(const Node& node, KerasWriter& c) {
  c["height"] = node.layer.center_crop().height();
  c["width"] = node.layer.center_crop().width();
  c.ChannelsLast();
}

constexpr KerasClass kResizingKeras[] = {{"Resizing", ReadResizing}};
constexpr KerasClass kCenterCropKeras[] = {{"CenterCrop", ReadCenterCrop}};

}  // namespace

constinit const LayerType kResizingLayer = {
    .kind = LayerKind::kResizing,
    .field = v1::Layer::kResizing,
    .name = "resizing",
    .infer = InferResizing,
    .keras = kResizingKeras,
    .write_keras = WriteResizing,
    .write_onnx = WriteOnnxResampled,
};

constinit const LayerType kCenterCropLayer = {
    .kind = LayerKind::kCenterCrop,
    .field = v1::Layer::kCenterCrop,
    .name = "center_crop",
    .infer = InferCenterCrop,
    .keras = kCenterCropKeras,
    .write_keras = WriteCenterCrop,
    .write_onnx = WriteOnnxResampled,
};

}  // namespace cairn::layers
