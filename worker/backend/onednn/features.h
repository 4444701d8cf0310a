// Operations on features, by loops on plain buffers (loop_op.h), and the families of the files that have them.
#pragma once

#include <memory>

#include "worker/backend/onednn/layer.h"

namespace cairn::onednn {

// affine.cc: numbers by place (worker/backend/affine.h).
std::unique_ptr<Op> MakeAffine(PlanBuilder& b, const Node& node, Value* in, Value* out);

// further_activations.cc: the node's own, one of IsFurtherActivation.
std::unique_ptr<Op> MakeFurtherActivation(PlanBuilder& b, const Node& node, Value* in, Value* out);

absl::Span<const Layer> ActivityLayers();
// The same for the rows of recurrent layers: y = f(x), g = g * f'(x); both may be in place.
void FurtherActivationRow(const Activation& f, const float* x, float* y, int64_t count);
void FurtherSlopeRow(const Activation& f, const float* x, float* g, int64_t count);

absl::Span<const Layer> AffineLayers();
absl::Span<const Layer> EinsumLayers();
absl::Span<const Layer> RepeatLayers();
absl::Span<const Layer> RowLayers();
absl::Span<const Layer> ScoreAttentionLayers();

}  // namespace cairn::onednn
