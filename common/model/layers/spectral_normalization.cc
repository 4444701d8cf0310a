// SpectralNormalization: a layer whose kernel is divided by its largest singular value in each step of training
// (common/model/spectral.h). What is computed is the layer within.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/inner_node.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_inner.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status CheckInner(const v1::Layer& layer) {
  if (layer.inputs_size() > 0 || layer.has_trainable() || layer.has_training() || !layer.shares().empty()) {
    return Bad("layer: it has inputs, trainable, training or shares; give them to the spectral_normalization itself");
  }
  if (absl::StrContains(layer.name(), '/')) return Bad("layer: its name has a '/'; use letters, digits and '_'");
  switch (layer.kind_case()) {
    case v1::Layer::kDense:
    case v1::Layer::kEinsumDense:
    case v1::Layer::kEmbedding:
    case v1::Layer::kConv1D:
    case v1::Layer::kConv2D:
    case v1::Layer::kConv3D:
    case v1::Layer::kConv1DTranspose:
    case v1::Layer::kConv2DTranspose:
    case v1::Layer::kConv3DTranspose:
    case v1::Layer::kDepthwiseConv1D:
    case v1::Layer::kDepthwiseConv2D: return NeedNoActivityRegularizer(layer);
    default: break;
  }
  return Bad(
      "layer: it has neither a kernel nor embeddings; use dense, einsum_dense, embedding, a convolution, a "
      "transposed or a depthwise one");
}

absl::Status InferSpectralNormalization(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::SpectralNormalization* const spectral = node->layer.mutable_spectral_normalization();
  v1::Layer* const layer = spectral->mutable_layer();
  CAIRN_RETURN_IF_ERROR(CheckInner(*layer));
  if (layer->embedding().mask_zero())
    return Bad("layer: mask_zero makes a mask, which Keras drops there; leave it out");
  if (layer->name().empty()) layer->set_name(FindLayerType(layer->kind_case())->name);
  if (!spectral->has_power_iterations()) spectral->set_power_iterations(1);
  if (spectral->power_iterations() < 1 || spectral->power_iterations() > kPowerIterationsMax) {
    return Bad("power_iterations ", spectral->power_iterations(), " is not within 1 .. ", kPowerIterationsMax,
               "; use 1");
  }
  Node inner = InnerNode(*node);
  CAIRN_RETURN_IF_ERROR(InferLayer(inputs, &inner, variables));
  *layer = inner.layer;
  for (auto clear : {&v1::Layer::clear_trainable, &v1::Layer::clear_training}) (layer->*clear)();
  node->output = inner.output;
  node->activation = inner.activation;
  node->negative_slope = inner.negative_slope;
  node->alpha = inner.alpha;
  node->window = inner.window;
  v1::Initializer initializer = OfKind(v1::Initializer::TRUNCATED_NORMAL);
  initializer.set_stddev(0.02f);
  const int64_t columns = variables->front().shape.back();
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "vector_u", {1, columns}, initializer, variables));
  variables->back().kind = VariableKind::kFrozen;  // to the optimizer
  return absl::OkStatus();
}

void ReadSpectralNormalization(KerasConfig& c, v1::Layer* layer) {
  v1::SpectralNormalization* const spectral = layer->mutable_spectral_normalization();
  v1::Layer* const inner = spectral->mutable_layer();
  if (!ReadInnerLayer(c, "layer", {}, inner)) c.Refuse("layer: missing");
  if (inner->has_trainable()) layer->set_trainable(false);
  inner->clear_trainable();
  int32_t iterations = 1;
  c.Int("power_iterations", &iterations);
  spectral->set_power_iterations(iterations);
}

void WriteSpectralNormalization(const Node& node, KerasWriter& c) {
  const v1::SpectralNormalization& spectral = node.layer.spectral_normalization();
  absl::StatusOr<OrderedJson> json = InnerLayerJson(InnerNode(node), spectral.layer());
  if (!json.ok()) c.Refuse(std::string(json.status().message()));
  c["layer"] = json.ok() ? *std::move(json) : OrderedJson();
  c["power_iterations"] = spectral.power_iterations();
}

// Not called: onnx_operation_values.h refuses it.
void WriteOnnx(const Node& node, OnnxWriter& w) {
  const Node inner = InnerNode(node);
  TypeOf(inner.kind).write_onnx(inner, w);
}

constexpr KerasClass kKeras[] = {{"SpectralNormalization", ReadSpectralNormalization, "inputs,training"}};
constexpr KerasSublayer kSublayers[] = {{"*", "layer"}};

}  // namespace

constinit const LayerType kSpectralNormalizationLayer = {
    .kind = LayerKind::kSpectralNormalization,
    .field = v1::Layer::kSpectralNormalization,
    .name = "spectral_normalization",
    .infer = InferSpectralNormalization,
    .keras = kKeras,
    .write_keras = WriteSpectralNormalization,
    .sublayers = kSublayers,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
