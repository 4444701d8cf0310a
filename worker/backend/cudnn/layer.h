// How the GPU backend computes a kind of layer: a row of its table, in the file of the layer's family.
//
// Rows are constants; any thread.
#pragma once

#include "absl/types/span.h"
#include "common/model/graph.h"
#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {

struct Layer {
  LayerKind kind;
  // Emits the launches of the node's forward pass, which compute b.Out(node), and passes Builder::Backward a function
  // that emits those of its backward pass.
  void (*lower)(Builder& b, const Node& node);
};

// y = f(x * kernel + bias) on rows, as a product; forward and backward.
struct Projection {
  const Variable *kernel = nullptr, *bias = nullptr;  // bias null: none
  int64_t in_columns = 0, out_columns = 0;
  Activation f;
};
void LowerProjection(Builder& builder, const Projection& projection, Value* in, Value* out);

// y = (x - shift) * scale + offset with factors by place: Normalization, and Rescaling by channel.
void LowerAffine(Builder& builder, const Node& node);

// The ids of an Embedding that are computed, in float32; those that it does not have are 0, and an error of the step.
Ref CheckedIds(Builder& builder, const Node& node);

// The families.
absl::Span<const Layer> AttentionLayers();
absl::Span<const Layer> CategoryLayers();
absl::Span<const Layer> ConvolutionLayers();
absl::Span<const Layer> DenseLayers();
absl::Span<const Layer> EinsumLayers();
absl::Span<const Layer> FeatureLayers();
absl::Span<const Layer> GroupedAttentionLayers();
absl::Span<const Layer> MergingLayers();
absl::Span<const Layer> MoveLayers();
absl::Span<const Layer> NormalizationLayers();
absl::Span<const Layer> OtherLayers();
absl::Span<const Layer> RecurrentLayers();
absl::Span<const Layer> ResampleLayers();
absl::Span<const Layer> TensorLayers();
absl::Span<const Layer> WindowLayers();

// Null: the backend has no row for the kind.
const Layer* FindLayer(LayerKind kind);

}  // namespace cairn::cudnn
