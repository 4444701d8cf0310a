// How the oneDNN backend computes a kind of layer: a row of its table, in the file of the layer's family.
//
// Rows are constants; any thread.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/model/graph.h"
#include "worker/backend/onednn/builder.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {

struct Layer {
  LayerKind kind;
  // Adds the operations of the node to the plan (PlanBuilder::AddOp). The last one writes `out`.
  void (*compile)(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out);
};

// Compiles a node to one operation, on its first input or on all inputs.
template <auto Make>
void CompileOne(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  b.AddOp(node.variables, out, Make(b, node, in[0], out));
}
template <auto Make>
void CompileAll(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  b.AddOp(node.variables, out, Make(b, node, in, out));
}

// The families.
absl::Span<const Layer> ActivationLayers();
absl::Span<const Layer> AttentionLayers();
absl::Span<const Layer> CategoryLayers();
absl::Span<const Layer> DistributedLayers();
absl::Span<const Layer> DotLayers();
absl::Span<const Layer> ElementwiseLayers();
absl::Span<const Layer> EmbeddingLayers();
absl::Span<const Layer> KernelLayers();
absl::Span<const Layer> LayoutLayers();
absl::Span<const Layer> MergingLayers();
absl::Span<const Layer> NormalizationLayers();
absl::Span<const Layer> PoolingLayers();
absl::Span<const Layer> RecurrentLayers();
absl::Span<const Layer> ResampleLayers();
absl::Span<const Layer> TensorLayers();

// Null: the backend has no row for the kind.
const Layer* FindLayer(LayerKind kind);

}  // namespace cairn::onednn
