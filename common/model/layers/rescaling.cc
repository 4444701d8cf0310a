// Rescaling: y = x * scale + offset, with either one pair for all numbers or one for each channel.
#include <cmath>
#include <utility>

#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/axes.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

// One scale, and one offset, for each channel.
absl::Status InferByChannel(int64_t channels, v1::Rescaling& r) {
  if (r.scale() != 0 || r.offset() != 0) {
    return Bad("scales and offsets are for each channel, scale and offset for all; leave one of the two pairs out");
  }
  if (r.scales().empty()) return Bad("scales is missing; give one for each of the ", channels, " channels");
  if (r.offsets().empty()) r.mutable_offsets()->Resize(r.scales_size(), 0.0f);
  for (const auto& [field, numbers] : {std::pair("scales", &r.scales()), std::pair("offsets", &r.offsets())}) {
    if (numbers->size() != channels) {
      return Bad(field, " has ", numbers->size(), " numbers, but its input has ", channels, " channels; give one each");
    }
    for (const float number : *numbers) {
      if (!std::isfinite(number)) return Bad(field, " ", number, " is not finite; use numbers");
    }
  }
  for (const float scale : r.scales()) {
    if (scale == 0) return Bad("scales: one is 0; use numbers such as 0.00392157 (1/255)");
  }
  return absl::OkStatus();
}

absl::Status InferRescaling(absl::Span<const Shape>, Node* node, std::vector<Variable>*) {
  v1::Rescaling& rescaling = *node->layer.mutable_rescaling();
  if (!rescaling.scales().empty() || !rescaling.offsets().empty())
    return InferByChannel(node->output.back(), rescaling);
  if (rescaling.scale() == 0 || !std::isfinite(rescaling.scale())) {
    return Bad("scale is missing, 0 or not finite; use a number such as 0.00392157 (1/255)");
  }
  if (!std::isfinite(rescaling.offset())) return Bad("offset is not finite; use a number");
  return absl::OkStatus();
}

// Reads one number, or a list with one for each channel.
void ReadNumbers(KerasConfig& c, const char* key, google::protobuf::RepeatedField<float>* out) {
  const Json* value = c.Take(key);
  if (value == nullptr) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > static_cast<size_t>(kNormalizationNumbersMax)) return c.Refuse(absl::StrCat(key, ": too many"));
  for (const Json& item : list) {
    if (!item.is_number())
      return c.Refuse(absl::StrCat(key, ": ", ShownJson(*value), " is neither a number nor a list"));
    out->Add(static_cast<float>(item.get<double>()));
  }
}

void ReadRescaling(KerasConfig& c, v1::Layer* out) {
  v1::Rescaling* layer = out->mutable_rescaling();
  google::protobuf::RepeatedField<float> scales, offsets;
  ReadNumbers(c, "scale", &scales);
  ReadNumbers(c, "offset", &offsets);
  if (scales.size() <= 1 && offsets.size() <= 1) {
    layer->set_scale(scales.empty() ? 0.0f : scales[0]);
    layer->set_offset(offsets.empty() ? 0.0f : offsets[0]);
    return;
  }
  // A single number next to a list applies to every channel. It is copied because Resize may move it.
  if (scales.size() == 1) scales.Resize(offsets.size(), float{scales[0]});
  if (offsets.size() == 1) offsets.Resize(scales.size(), float{offsets[0]});
  *layer->mutable_scales() = scales;
  *layer->mutable_offsets() = offsets;
}

// CustomScaleLayer of keras.applications.InceptionResNetV2: a + b * scale. This reads b * scale; the model reader adds
// it to a.
void ReadCustomScale(KerasConfig& c, v1::Layer* layer) {
  float scale = 0;
  c.Float("scale", &scale);
  if (!c.Has("scale")) c.Refuse("scale is missing; give a number such as 0.17");
  layer->mutable_rescaling()->set_scale(scale);
}

void WriteRescaling(const Node& node, KerasWriter& config) {
  const v1::Rescaling& r = node.layer.rescaling();
  config["scale"] = KerasWriter::Rounded(r.scale());
  config["offset"] = KerasWriter::Rounded(r.offset());
  if (r.scales().empty()) return;
  config["scale"] = config["offset"] = OrderedJson::array();
  for (const float scale : r.scales()) config["scale"].push_back(KerasWriter::Rounded(scale));
  for (const float offset : r.offsets()) config["offset"].push_back(KerasWriter::Rounded(offset));
}

void Rescale(const Node& node, OnnxWriter& w) {
  const v1::Rescaling& r = node.layer.rescaling();
  if (!r.scales().empty()) {
    const Shape dims = {static_cast<int64_t>(r.scales_size())};
    const std::string scales = w.Numbers("scales", dims, {r.scales().begin(), r.scales().end()});
    const std::string offsets = w.Numbers("offsets", dims, {r.offsets().begin(), r.offsets().end()});
    const std::string scaled = w.Op("Mul", {w.In(node, 0, Channels::kLast), scales});
    return w.SetOutput(node, w.Op("Add", {scaled, offsets}), Channels::kLast);
  }
  const Channels channels = w.Has(node, 0);
  std::string value = w.Op("Mul", {w.In(node, 0, channels), w.Scalar("scale", r.scale())});
  if (r.offset() != 0) value = w.Op("Add", {value, w.Scalar("offset", r.offset())});
  w.SetOutput(node, value, channels);
}

constexpr KerasClass kKeras[] = {{"Rescaling", ReadRescaling}, {"CustomScaleLayer", ReadCustomScale}};

}  // namespace

constinit const LayerType kRescalingLayer = {
    .kind = LayerKind::kRescaling,
    .field = v1::Layer::kRescaling,
    .name = "rescaling",
    .infer = InferRescaling,
    .keras = kKeras,
    .write_keras = WriteRescaling,
    .write_onnx = Rescale,
};

}  // namespace cairn::layers
