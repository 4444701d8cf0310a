#include "worker/backend/reference/reference_layer.h"

#include "worker/backend/reference/attention_layers.h"

namespace cairn::reference {

const Layer* FindLayer(LayerKind kind) {
  for (const absl::Span<const Layer> family :
       {AttentionLayers(), DistributedLayers(), PlainLayers(), WindowLayers(), FeatureLayers(), MergingLayers(),
        RecurrentLayers(), TensorLayers(), CategoryLayers()}) {
    for (const Layer& layer : family) {
      if (layer.kind == kind) return &layer;
    }
  }
  return nullptr;
}

}  // namespace cairn::reference
