// Rescaling: y = x * scale + offset.
#include <cmath>

#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferRescaling(absl::Span<const Shape>, Node* node, std::vector<Variable>*) {
  const v1::Rescaling& rescaling = node->layer.rescaling();
  if (rescaling.scale() == 0 || !std::isfinite(rescaling.scale())) {
    return Bad("scale is missing, 0 or not finite; use a number such as 0.00392157 (1/255)");
  }
  if (!std::isfinite(rescaling.offset())) return Bad("offset is not finite; use a number");
  return absl::OkStatus();
}

void ReadRescaling(KerasConfig& c, v1::Layer* out) {
  v1::Rescaling* layer = out->mutable_rescaling();
  float scale = 0, offset = 0;
  c.Float("scale", &scale);
  c.Float("offset", &offset);
  layer->set_scale(scale);
  layer->set_offset(offset);
}

void WriteRescaling(const Node& node, KerasWriter& config) {
  config["scale"] = KerasWriter::Rounded(node.layer.rescaling().scale());
  config["offset"] = KerasWriter::Rounded(node.layer.rescaling().offset());
}

void Rescale(const Node& node, OnnxWriter& w) {
  const v1::Rescaling& r = node.layer.rescaling();
  const Channels channels = w.Has(node, 0);
  std::string value = w.Op("Mul", {w.In(node, 0, channels), w.Scalar("scale", r.scale())});
  if (r.offset() != 0) value = w.Op("Add", {value, w.Scalar("offset", r.offset())});
  w.SetOutput(node, value, channels);
}

constexpr KerasClass kKeras[] = {{"Rescaling", ReadRescaling}};

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
