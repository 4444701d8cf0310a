// TimeDistributed: applies a layer to each step separately, with the same variables. For elementwise layers and those
// that work on the last axis, that is the layer itself. For others the steps are folded into the batch
// (common/model/inner_node.h).
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/article.h"
#include "common/model/inner_node.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_inner.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

// Layers that are functions of one input and treat each step separately.
bool WorksOnAStep(v1::Layer::KindCase kind) {
  switch (kind) {
    case v1::Layer::kDense:
    case v1::Layer::kActivation:
    case v1::Layer::kDropout:
    case v1::Layer::kSpatialDropout1D:
    case v1::Layer::kSpatialDropout2D:
    case v1::Layer::kSpatialDropout3D:
    case v1::Layer::kAlphaDropout:
    case v1::Layer::kGaussianDropout:
    case v1::Layer::kGaussianNoise:
    case v1::Layer::kLayerNormalization:
    case v1::Layer::kRescaling:
    case v1::Layer::kEinsumDense:
    case v1::Layer::kEmbedding:
    case v1::Layer::kConv1D:
    case v1::Layer::kConv2D:
    case v1::Layer::kConv3D:
    case v1::Layer::kDepthwiseConv1D:
    case v1::Layer::kDepthwiseConv2D:
    case v1::Layer::kSeparableConv1D:
    case v1::Layer::kSeparableConv2D:
    case v1::Layer::kConv1DTranspose:
    case v1::Layer::kConv2DTranspose:
    case v1::Layer::kConv3DTranspose:
    case v1::Layer::kMaxPooling1D:
    case v1::Layer::kMaxPooling2D:
    case v1::Layer::kMaxPooling3D:
    case v1::Layer::kAveragePooling1D:
    case v1::Layer::kAveragePooling2D:
    case v1::Layer::kAveragePooling3D:
    case v1::Layer::kGlobalAveragePooling1D:
    case v1::Layer::kGlobalAveragePooling2D:
    case v1::Layer::kGlobalAveragePooling3D:
    case v1::Layer::kGlobalMaxPooling1D:
    case v1::Layer::kGlobalMaxPooling2D:
    case v1::Layer::kGlobalMaxPooling3D:
    case v1::Layer::kAdaptiveAveragePooling1D:
    case v1::Layer::kAdaptiveAveragePooling2D:
    case v1::Layer::kAdaptiveAveragePooling3D:
    case v1::Layer::kAdaptiveMaxPooling1D:
    case v1::Layer::kAdaptiveMaxPooling2D:
    case v1::Layer::kAdaptiveMaxPooling3D:
    case v1::Layer::kUpSampling1D:
    case v1::Layer::kUpSampling2D:
    case v1::Layer::kUpSampling3D:
    case v1::Layer::kCropping1D:
    case v1::Layer::kCropping2D:
    case v1::Layer::kCropping3D:
    case v1::Layer::kZeroPadding1D:
    case v1::Layer::kZeroPadding2D:
    case v1::Layer::kZeroPadding3D:
    case v1::Layer::kResizing:
    case v1::Layer::kCenterCrop:
    case v1::Layer::kFlatten:
    case v1::Layer::kReshape:
    case v1::Layer::kPermute:
    case v1::Layer::kRepeatVector:
    case v1::Layer::kBatchNormalization:
    case v1::Layer::kGroupNormalization:
    case v1::Layer::kRmsNormalization:
    case v1::Layer::kUnitNormalization:
    case v1::Layer::kNormalization:
    case v1::Layer::kPrelu:
    case v1::Layer::kSimpleRnn:
    case v1::Layer::kLstm:
    case v1::Layer::kGru:
    case v1::Layer::kConvLstm1D:
    case v1::Layer::kConvLstm2D:
    case v1::Layer::kBidirectional:
    case v1::Layer::kTimeDistributed: return true;
    default: return false;
  }
}

absl::Status CheckInner(const v1::Layer& layer) {
  if (layer.inputs_size() > 0 || layer.has_trainable() || layer.has_training() || !layer.shares().empty()) {
    return Bad("layer: it has inputs, trainable, training or shares; give them to the time_distributed itself");
  }
  if (!WorksOnAStep(layer.kind_case())) {
    const LayerType* const type = FindLayerType(layer.kind_case());
    return Bad(
        "layer: ", type == nullptr ? "it is missing" : absl::StrCat(WithArticle(type->name), " is not supported there"),
        "; use dense, conv2d or another layer with one input of numbers");
  }
  if (layer.embedding().mask_zero()) {
    return Bad("layer: mask_zero makes a mask within a step, which is not supported there; leave it out");
  }
  // Penalties of the layer would apply to its whole output, not to that of a step.
  CAIRN_RETURN_IF_ERROR(NeedNoActivityRegularizer(layer));
  if (absl::StrContains(layer.name(), '/')) return Bad("layer: its name has a '/'; use letters, digits and '_'");
  return absl::OkStatus();
}

// The steps are folded into the batch for the inner layer, which applies its activation itself.
absl::Status InferFolded(const Shape& input, Node* inner, Node* node, std::vector<Variable>* variables) {
  const Shape step(input.begin() + 1, input.end());
  inner->output = step;
  CAIRN_RETURN_IF_ERROR(InferLayer({&step, 1}, inner, variables));
  node->output = inner->output;
  node->output.insert(node->output.begin(), input[0]);
  if (node->output.size() > kSequenceDimensionsMax) {
    return Bad("layer: the output of a step is ", ToString(inner->output), ", which has more axes than ",
               kSequenceDimensionsMax - 1, "; put a flatten into another time_distributed after it");
  }
  return absl::OkStatus();
}

absl::Status InferTimeDistributed(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::Layer* layer = node->layer.mutable_time_distributed()->mutable_layer();
  if (inputs[0].size() < 2) {
    return Bad("its input is ", ToString(inputs[0]), "; it needs [steps, ...], so leave the time_distributed out");
  }
  CAIRN_RETURN_IF_ERROR(CheckInner(*layer));
  if (layer->name().empty()) layer->set_name(FindLayerType(layer->kind_case())->name);
  Node inner = InnerNode(*node);
  const bool folds = FoldsSteps(*layer, inputs[0].size());
  CAIRN_RETURN_IF_ERROR(folds ? InferFolded(inputs[0], &inner, node, variables)
                              : TypeOf(inner.kind).infer(inputs, &inner, variables));
  *layer = inner.layer;
  for (auto clear : {&v1::Layer::clear_trainable, &v1::Layer::clear_training}) (layer->*clear)();
  if (folds) return absl::OkStatus();
  node->output = inner.output;
  node->activation = inner.activation;
  node->negative_slope = inner.negative_slope;
  node->alpha = inner.alpha;
  return absl::OkStatus();
}

void ReadTimeDistributed(KerasConfig& c, v1::Layer* layer) {
  v1::Layer* inner = layer->mutable_time_distributed()->mutable_layer();
  if (!ReadInnerLayer(c, "layer", {}, inner)) c.Refuse("layer: missing");
  if (inner->has_trainable()) layer->set_trainable(false);
  inner->clear_trainable();
}

void WriteTimeDistributed(const Node& node, KerasWriter& c) {
  const v1::Layer& inner = node.layer.time_distributed().layer();
  absl::StatusOr<OrderedJson> json = InnerLayerJson(InnerNode(node), inner);
  if (json.ok()) {
    c["layer"] = *std::move(json);
    return;
  }
  c["layer"] = nullptr;
  c.Activation("layer_activation", node.activation);  // the writer reports activations that Keras has no name for
  c.Without("layer_activation");
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  if (FoldsSteps(node)) return w.WriteOnSteps(node);
  const Node inner = InnerNode(node);
  TypeOf(inner.kind).write_onnx(inner, w);
}

constexpr KerasClass kKeras[] = {{"TimeDistributed", ReadTimeDistributed, "inputs,training,mask"}};
constexpr KerasSublayer kSublayers[] = {{"*", "layer"}};

}  // namespace

constinit const LayerType kTimeDistributedLayer = {
    .kind = LayerKind::kTimeDistributed,
    .field = v1::Layer::kTimeDistributed,
    .name = "time_distributed",
    .infer = InferTimeDistributed,
    .keras = kKeras,
    .write_keras = WriteTimeDistributed,
    .sublayers = kSublayers,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
