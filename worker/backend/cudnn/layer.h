// How the GPU's backend computes a kind of layers: a row of its table, in the file of the layer's family.
//
// Rows are constants; any thread.
#pragma once

#include "absl/types/span.h"
#include "common/model/graph.h"
#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {

struct Layer {
  LayerKind kind;
  // Emits the node's launches, which give b.Out(node); what is to be done on the way back goes to Builder::Backward.
  void (*lower)(Builder& b, const Node& node);
};

// y = x * kernel (+ bias), with f, on rows: a product. Both ways.
struct Projection {
  const Variable *kernel = nullptr, *bias = nullptr;  // bias: or none
  int64_t in_columns = 0, out_columns = 0;
  Activation f;
};
void LowerProjection(Builder& builder, const Projection& projection, Value* in, Value* out);

// The families.
absl::Span<const Layer> ConvolutionLayers();
absl::Span<const Layer> DenseLayers();
absl::Span<const Layer> MergingLayers();
absl::Span<const Layer> NormalizationLayers();
absl::Span<const Layer> OtherLayers();
absl::Span<const Layer> RecurrentLayers();
absl::Span<const Layer> ResampleLayers();
absl::Span<const Layer> WindowLayers();

// Null: there is none.
const Layer* FindLayer(LayerKind kind);

}  // namespace cairn::cudnn
