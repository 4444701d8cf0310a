// Operations on features that are loops on plain buffers (loop_op.h), and the families of layers in their files.
#pragma once

#include <memory>

#include "worker/backend/onednn/layer.h"

namespace cairn::onednn {

// affine.cc: factors that depend on the position (worker/backend/affine.h).
std::unique_ptr<Op> MakeAffine(PlanBuilder& b, const Node& node, Value* in, Value* out);

// further_activations.cc: the node's activation, for which IsFurtherActivation holds.
std::unique_ptr<Op> MakeFurtherActivation(PlanBuilder& b, const Node& node, Value* in, Value* out);

// tensor_layers.cc: a node that has a TensorFunction (worker/backend/tensor_function.h).
std::unique_ptr<Op> MakeTensorOp(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out);

absl::Span<const Layer> ActivityLayers();
// further_activations.cc, for the rows of recurrent layers: y = f(x), g = g * f'(x); y may be x.
void FurtherActivationRow(const Activation& f, const float* x, float* y, int64_t count);
void FurtherSlopeRow(const Activation& f, const float* x, float* g, int64_t count);

absl::Span<const Layer> AffineLayers();
absl::Span<const Layer> EinsumLayers();
absl::Span<const Layer> GroupedAttentionLayers();
absl::Span<const Layer> RepeatLayers();
absl::Span<const Layer> RowLayers();
absl::Span<const Layer> ScoreAttentionLayers();

}  // namespace cairn::onednn
