#include "worker/backend/reference/reference_layer.h"

namespace cairn::reference {

const Layer* FindLayer(LayerKind kind) {
  for (const absl::Span<const Layer> family :
       {PlainLayers(), WindowLayers(), FeatureLayers(), MergingLayers(), RecurrentLayers()}) {
    for (const Layer& layer : family) {
      if (layer.kind == kind) return &layer;
    }
  }
  return nullptr;
}

Geometry Pass::sequence() const {
  Geometry g = geometry();
  g.input.insert(g.input.begin(), 1);
  g.output.insert(g.output.begin(), 1);
  return g;
}

}  // namespace cairn::reference
