// Dropout, and SpatialDropout2D of whole channels.
#include "common/base/bad.h"
#include "common/model/call_mode.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferDropout(absl::Span<const Shape>, Node* node, std::vector<Variable>*) {
  return NeedRate("rate", node->layer.dropout().rate());
}

absl::Status InferSpatialDropout2D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_RETURN_IF_ERROR(NeedImage(inputs[0]));
  return NeedRate("rate", node->layer.spatial_dropout2d().rate());
}

float Rate(KerasConfig& c) {
  float rate = 0;
  c.Float("rate", &rate);
  c.Only("noise_shape", nullptr, keras::kLeaveAway);
  return rate;
}

void ReadDropout(KerasConfig& c, v1::Layer* layer) { layer->mutable_dropout()->set_rate(Rate(c)); }

void ReadSpatialDropout2D(KerasConfig& c, v1::Layer* layer) {
  layer->mutable_spatial_dropout2d()->set_rate(Rate(c));
  keras::ChannelsLast(c);
}

// Keras 3 up to 3.9 does not hold a Dropout to training=False; with this it does nothing either.
double RateOf(const Node& node, float rate) { return InfersAlways(node) ? 0.0 : KerasWriter::Rounded(rate); }

void WriteDropout(const Node& node, KerasWriter& c) {
  c["rate"] = RateOf(node, node.layer.dropout().rate());
  c.Nulls({"seed", "noise_shape"});
}

void WriteSpatialDropout2D(const Node& node, KerasWriter& c) {
  c.Without("trainable");  // its constructor does not take it
  c["rate"] = RateOf(node, node.layer.spatial_dropout2d().rate());
  c["seed"] = nullptr;
  c.ChannelsLast();
}

// Gone: what is written is for inference.
void WriteOnnx(const Node& node, OnnxWriter& w) { w.SetOutput(node, w.In(node, 0, w.Has(node, 0)), w.Has(node, 0)); }

absl::Status ImportDropout(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  float rate = attributes.Float("ratio", 0.5f);
  attributes.Ignore("seed");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (importer.HasInput(1)) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<float> ratio, importer.FloatsOf(1, "ratio", 1));
    rate = ratio[0];
  }
  if (!(rate >= 0 && rate < 1)) return Bad("ratio ", rate, " is outside [0, 1)");
  v1::Layer layer;
  layer.mutable_dropout()->set_rate(rate);
  CAIRN_ASSIGN_OR_RETURN(x.layer, importer.AddLayer(LayerKind::kDropout, layer, {x.layer}));
  importer.SetView(std::move(x));
  return absl::OkStatus();
}

constexpr KerasClass kDropoutKeras[] = {{"Dropout", ReadDropout, "inputs,training"}};
constexpr KerasClass kSpatialDropout2DKeras[] = {{"SpatialDropout2D", ReadSpatialDropout2D, "inputs,training"}};
constexpr OnnxOperator kOnnx[] = {{"Dropout", ImportDropout}};

}  // namespace

constinit const LayerType kDropoutLayer = {
    .kind = LayerKind::kDropout,
    .field = v1::Layer::kDropout,
    .name = "dropout",
    .infer = InferDropout,
    .keras = kDropoutKeras,
    .write_keras = WriteDropout,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

constinit const LayerType kSpatialDropout2DLayer = {
    .kind = LayerKind::kSpatialDropout2D,
    .field = v1::Layer::kSpatialDropout2D,
    .name = "spatial_dropout2d",
    .infer = InferSpatialDropout2D,
    .keras = kSpatialDropout2DKeras,
    .write_keras = WriteSpatialDropout2D,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
