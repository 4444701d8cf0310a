#include "common/model/inner_node.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/model/layer_type.h"
#include "common/model/limits.h"

namespace cairn {

Node InnerNode(const Node& outer) {
  const v1::Layer& layer = outer.layer.has_spectral_normalization() ? outer.layer.spectral_normalization().layer()
                                                                    : outer.layer.time_distributed().layer();
  const LayerType* const type = FindLayerType(layer.kind_case());
  CAIRN_CHECK(type != nullptr, "the layer within is checked first");
  Node inner = outer;
  inner.kind = type->kind;
  inner.name = absl::StrCat(outer.name, "/", layer.name());
  inner.layer = layer;
  if (outer.layer.has_training()) inner.layer.set_training(outer.layer.training());
  return inner;
}

bool FoldsSteps(const v1::Layer& inner, size_t input_axes) {
  if (input_axes > kLayerDimensionsMax) return true;
  switch (inner.kind_case()) {
    case v1::Layer::kDense:
    case v1::Layer::kActivation:
    case v1::Layer::kRescaling: return false;
    case v1::Layer::kDropout: return inner.dropout().noise_shape_size() > 0;
    case v1::Layer::kLayerNormalization: return inner.layer_normalization().axis_size() > 1;
    default: return true;
  }
}

bool FoldsSteps(const Node& node) {
  // A layer that takes the input as it is keeps the number of its axes.
  return node.kind == LayerKind::kTimeDistributed &&
         FoldsSteps(node.layer.time_distributed().layer(), node.output.size());
}

Graph StepGraph(const Graph& graph, const Node& outer) {
  const Shape& input = graph.nodes()[static_cast<size_t>(outer.inputs[0])].output;
  v1::Model model;
  v1::InputLayer* const step = model.add_layers()->mutable_input();
  for (size_t axis = 1; axis < input.size(); ++axis) step->add_shape(static_cast<int32_t>(input[axis]));
  v1::Layer* const layer = model.add_layers();
  *layer = outer.layer.time_distributed().layer();
  if (!outer.trainable) layer->set_trainable(false);
  if (outer.layer.has_training()) layer->set_training(outer.layer.training());
  absl::StatusOr<Graph> built = Graph::Build(model);
  CAIRN_CHECK(built.ok(), built.status().ToString());
  return *std::move(built);
}

}  // namespace cairn
