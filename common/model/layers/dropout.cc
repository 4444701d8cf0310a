// Layers that only draw random numbers in training (worker/backend/noise.h): Dropout, of single numbers or along whole
// axes (noise_shape, SpatialDropout), AlphaDropout, GaussianDropout, GaussianNoise.
#include <cmath>
#include <limits>
#include <optional>

#include "common/base/bad.h"
#include "common/model/call_mode.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_values.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

// One number for each axis of the input: -1, or 1 if the axis is dropped or kept as a whole. None: all -1.
absl::Status ReadNoiseShape(const Shape& input, Numbers* noise) {
  if (noise->empty()) return absl::OkStatus();
  if (noise->size() != static_cast<int>(input.size())) {
    return Bad("noise_shape has ", noise->size(), " numbers, but its input ", ToString(input), " has ", input.size(),
               " axes; give one each, without the batch: -1 as the input, 1 for one decision along the axis");
  }
  bool shared = false;
  for (int i = 0; i < noise->size(); ++i) {
    const int64_t size = input[static_cast<size_t>(i)];
    int32_t& number = *noise->Mutable(i);
    if (number != -1 && number != 1 && number != size) {
      return Bad("noise_shape: ", number, " for an axis of ", size, " numbers; use -1, or 1");
    }
    if (number != 1) number = -1;
    shared |= number == 1;
  }
  if (!shared) noise->Clear();
  return absl::OkStatus();
}

absl::Status InferDropout(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_RETURN_IF_ERROR(NeedRate("rate", node->layer.dropout().rate()));
  return ReadNoiseShape(inputs[0], node->layer.mutable_dropout()->mutable_noise_shape());
}

absl::Status InferAlphaDropout(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_RETURN_IF_ERROR(NeedRate("rate", node->layer.alpha_dropout().rate()));
  return ReadNoiseShape(inputs[0], node->layer.mutable_alpha_dropout()->mutable_noise_shape());
}

absl::Status InferSpatialDropout1D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_RETURN_IF_ERROR(NeedSequence(inputs[0]));
  return NeedRate("rate", node->layer.spatial_dropout1d().rate());
}

absl::Status InferSpatialDropout2D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_RETURN_IF_ERROR(NeedImage(inputs[0]));
  return NeedRate("rate", node->layer.spatial_dropout2d().rate());
}

absl::Status InferSpatialDropout3D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  if (inputs[0].size() != 4) {
    return Bad("its input is ", ToString(inputs[0]), "; it needs [depth, height, width, channels]");
  }
  return NeedRate("rate", node->layer.spatial_dropout3d().rate());
}

absl::Status InferGaussianDropout(absl::Span<const Shape>, Node* node, std::vector<Variable>*) {
  return NeedRate("rate", node->layer.gaussian_dropout().rate());
}

absl::Status InferGaussianNoise(absl::Span<const Shape>, Node* node, std::vector<Variable>*) {
  const float stddev = node->layer.gaussian_noise().stddev();
  if (stddev >= 0 && std::isfinite(stddev)) return absl::OkStatus();
  return Bad("stddev ", stddev, " is negative or not finite; use a number such as 0.1");
}

// ---- Keras ----

template <typename Layer>
void ReadRate(KerasConfig& c, Layer* layer) {
  float rate = 0;
  c.Float("rate", &rate);
  layer->set_rate(rate);
}

template <typename Layer>
void ReadSeed(KerasConfig& c, Layer* layer) {
  if (const std::optional<uint64_t> seed = keras::Seed(c)) layer->set_seed(*seed);
}

// Keras' list begins with the batch: null, or its size. A single decision for all examples would couple the replicas,
// so 1 is rejected.
template <typename Layer>
void ReadNoise(KerasConfig& c, Layer* layer) {
  const Json* shape = c.Take("noise_shape");
  if (shape == nullptr) return;
  const auto refuse = [&](const char* what) { c.Refuse(absl::StrCat("noise_shape: ", ShownJson(*shape), " ", what)); };
  if (!shape->is_array() || shape->size() > static_cast<size_t>(kKerasListMax))
    return refuse("is not a list of numbers and nulls");
  bool batch = true;
  for (const Json& item : *shape) {
    const bool whole = item.is_number_integer() && item.get<double>() >= 1 && item.get<double>() <= INT32_MAX;
    if (!item.is_null() && !whole) return refuse("is not a list of numbers and nulls");
    if (batch && item == 1)
      return refuse("has one decision for all examples of a batch, which is not supported; write null for the batch");
    if (!batch) layer->add_noise_shape(item.is_null() ? -1 : item.get<int32_t>());
    batch = false;
  }
}

template <auto Mutable>
void ReadSpatial(KerasConfig& c, v1::Layer* out) {
  auto* layer = (out->*Mutable)();
  ReadRate(c, layer);
  ReadSeed(c, layer);
  c.Only("noise_shape", nullptr, keras::kLeaveAway);
  keras::ChannelsLast(c);
}

template <auto Mutable>
void ReadShaped(KerasConfig& c, v1::Layer* out) {
  auto* layer = (out->*Mutable)();
  ReadRate(c, layer);
  ReadSeed(c, layer);
  ReadNoise(c, layer);
}

void ReadGaussianDropout(KerasConfig& c, v1::Layer* layer) {
  ReadRate(c, layer->mutable_gaussian_dropout());
  ReadSeed(c, layer->mutable_gaussian_dropout());
}

void ReadGaussianNoise(KerasConfig& c, v1::Layer* layer) {
  float stddev = 0;
  c.Float("stddev", &stddev);
  layer->mutable_gaussian_noise()->set_stddev(stddev);
  ReadSeed(c, layer->mutable_gaussian_noise());
}

// Keras 3 up to 3.9 drops numbers even with training=False; a rate of 0 prevents that.
double RateOf(const Node& node, float rate) { return InfersAlways(node) ? 0.0 : KerasWriter::Rounded(rate); }

template <typename Layer>
void WriteSeed(const Layer& layer, KerasWriter& c) {
  c["seed"] = nullptr;
  if (layer.has_seed()) c["seed"] = layer.seed();
}

template <typename Layer>
void WriteNoise(const Layer& layer, KerasWriter& c) {
  c["noise_shape"] = nullptr;
  if (layer.noise_shape().empty()) return;
  c["noise_shape"] = OrderedJson::array({nullptr});
  for (const int32_t size : layer.noise_shape())
    c["noise_shape"].push_back(size == 1 ? OrderedJson(1) : OrderedJson(nullptr));
}

void WriteDropout(const Node& node, KerasWriter& c) {
  c["rate"] = RateOf(node, node.layer.dropout().rate());
  WriteSeed(node.layer.dropout(), c);
  WriteNoise(node.layer.dropout(), c);
}

void WriteAlphaDropout(const Node& node, KerasWriter& c) {
  c["rate"] = RateOf(node, node.layer.alpha_dropout().rate());
  WriteSeed(node.layer.alpha_dropout(), c);
  WriteNoise(node.layer.alpha_dropout(), c);
}

// The constructors of spatial dropouts do not take `trainable`.
template <typename Layer>
void WriteSpatial(const Node& node, const Layer& layer, KerasWriter& c) {
  c.Without("trainable");
  c["rate"] = RateOf(node, layer.rate());
  WriteSeed(layer, c);
}

void WriteSpatialDropout1D(const Node& node, KerasWriter& c) { WriteSpatial(node, node.layer.spatial_dropout1d(), c); }

void WriteSpatialDropout2D(const Node& node, KerasWriter& c) {
  WriteSpatial(node, node.layer.spatial_dropout2d(), c);
  c.ChannelsLast();
}

void WriteSpatialDropout3D(const Node& node, KerasWriter& c) {
  WriteSpatial(node, node.layer.spatial_dropout3d(), c);
  c.ChannelsLast();
}

void WriteGaussianDropout(const Node& node, KerasWriter& c) {
  c["rate"] = RateOf(node, node.layer.gaussian_dropout().rate());
  WriteSeed(node.layer.gaussian_dropout(), c);
}

void WriteGaussianNoise(const Node& node, KerasWriter& c) {
  c["stddev"] = RateOf(node, node.layer.gaussian_noise().stddev());
  WriteSeed(node.layer.gaussian_noise(), c);
}

// Omitted: the file is for inference.
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

constexpr KerasClass kDropoutKeras[] = {{"Dropout", ReadShaped<&v1::Layer::mutable_dropout>, "inputs,training"}};
constexpr KerasClass kAlphaDropoutKeras[] = {
    {"AlphaDropout", ReadShaped<&v1::Layer::mutable_alpha_dropout>, "inputs,training"}};
constexpr KerasClass kSpatialDropout1DKeras[] = {
    {"SpatialDropout1D", ReadSpatial<&v1::Layer::mutable_spatial_dropout1d>, "inputs,training"}};
constexpr KerasClass kSpatialDropout2DKeras[] = {
    {"SpatialDropout2D", ReadSpatial<&v1::Layer::mutable_spatial_dropout2d>, "inputs,training"}};
constexpr KerasClass kSpatialDropout3DKeras[] = {
    {"SpatialDropout3D", ReadSpatial<&v1::Layer::mutable_spatial_dropout3d>, "inputs,training"}};
constexpr KerasClass kGaussianDropoutKeras[] = {{"GaussianDropout", ReadGaussianDropout, "inputs,training"}};
constexpr KerasClass kGaussianNoiseKeras[] = {{"GaussianNoise", ReadGaussianNoise, "inputs,training"}};
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

constinit const LayerType kSpatialDropout1DLayer = {
    .kind = LayerKind::kSpatialDropout1D,
    .field = v1::Layer::kSpatialDropout1D,
    .name = "spatial_dropout1d",
    .infer = InferSpatialDropout1D,
    .keras = kSpatialDropout1DKeras,
    .write_keras = WriteSpatialDropout1D,
    .write_onnx = WriteOnnx,
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

constinit const LayerType kSpatialDropout3DLayer = {
    .kind = LayerKind::kSpatialDropout3D,
    .field = v1::Layer::kSpatialDropout3D,
    .name = "spatial_dropout3d",
    .infer = InferSpatialDropout3D,
    .keras = kSpatialDropout3DKeras,
    .write_keras = WriteSpatialDropout3D,
    .write_onnx = WriteOnnx,
};

constinit const LayerType kAlphaDropoutLayer = {
    .kind = LayerKind::kAlphaDropout,
    .field = v1::Layer::kAlphaDropout,
    .name = "alpha_dropout",
    .infer = InferAlphaDropout,
    .keras = kAlphaDropoutKeras,
    .write_keras = WriteAlphaDropout,
    .write_onnx = WriteOnnx,
};

constinit const LayerType kGaussianDropoutLayer = {
    .kind = LayerKind::kGaussianDropout,
    .field = v1::Layer::kGaussianDropout,
    .name = "gaussian_dropout",
    .infer = InferGaussianDropout,
    .keras = kGaussianDropoutKeras,
    .write_keras = WriteGaussianDropout,
    .write_onnx = WriteOnnx,
};

constinit const LayerType kGaussianNoiseLayer = {
    .kind = LayerKind::kGaussianNoise,
    .field = v1::Layer::kGaussianNoise,
    .name = "gaussian_noise",
    .infer = InferGaussianNoise,
    .keras = kGaussianNoiseKeras,
    .write_keras = WriteGaussianNoise,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
