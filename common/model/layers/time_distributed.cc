// TimeDistributed: a layer on every step alone, with the same variables. Of layers that work on the last axis, or
// number by number, that is the layer itself (common/model/inner_node.h).
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/inner_node.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_inner.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

bool WorksOnTheLastAxis(v1::Layer::KindCase kind) {
  switch (kind) {
    case v1::Layer::kDense:
    case v1::Layer::kActivation:
    case v1::Layer::kDropout:
    case v1::Layer::kLayerNormalization:
    case v1::Layer::kRescaling: return true;
    default: return false;
  }
}

absl::Status InferTimeDistributed(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::Layer* layer = node->layer.mutable_time_distributed()->mutable_layer();
  if (inputs[0].size() < 2) {
    return Bad("its input is ", ToString(inputs[0]), "; it needs [steps, ...], so leave the time_distributed out");
  }
  if (layer->inputs_size() > 0 || layer->has_trainable() || layer->has_training() || !layer->shares().empty()) {
    return Bad("layer: it has inputs, trainable, training or shares; give them to the time_distributed itself");
  }
  if (!WorksOnTheLastAxis(layer->kind_case())) {
    const LayerType* const type = FindLayerType(layer->kind_case());
    return Bad("layer: ", type == nullptr ? "it is missing" : absl::StrCat("a ", type->name, " is not supported there"),
               "; use dense, activation, dropout, layer_normalization or rescaling");
  }
  if (layer->dropout().noise_shape_size() > 0) {
    return Bad("layer: its noise_shape is not supported there; leave it out, or use the dropout without this");
  }
  if (layer->layer_normalization().axis_size() > 1) {
    return Bad("layer: it normalizes several axes, which is not supported there; leave the axis out");
  }
  if (absl::StrContains(layer->name(), '/')) return Bad("layer: its name has a '/'; use letters, digits and '_'");
  if (layer->name().empty()) layer->set_name(FindLayerType(layer->kind_case())->name);
  Node inner = InnerNode(*node);
  CAIRN_RETURN_IF_ERROR(TypeOf(inner.kind).infer(inputs, &inner, variables));
  *layer = inner.layer;
  for (auto clear : {&v1::Layer::clear_trainable, &v1::Layer::clear_training}) (layer->*clear)();
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
  c["layer"] = json.ok() ? *std::move(json) : OrderedJson(nullptr);
  if (json.ok()) return;
  c.Activation("layer_activation", node.activation);  // what Keras has no name for is the writer's own error
  c.Without("layer_activation");
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
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
