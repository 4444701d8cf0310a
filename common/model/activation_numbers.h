// The number that an activation has beside its input, for the layer that is one and for those that apply one.
//
// Pure functions; any thread.
#pragma once

#include "common/model/graph.h"

namespace cairn {

// Where the layer has no say: LEAKY_RELU's slope, the alpha of ELU and CELU, RELU6's largest value, HARD_SIGMOID's
// slope, the threshold of SOFT_SHRINK and HARD_SHRINK. Of others 0.
inline float DefaultAlpha(v1::Activation activation) {
  switch (activation) {
    case v1::LEAKY_RELU: return 0.2f;
    case v1::ELU:
    case v1::CELU: return 1;
    case v1::RELU6: return 6;
    case v1::HARD_SIGMOID: return 1.0f / 6;
    case v1::SOFT_SHRINK:
    case v1::HARD_SHRINK: return 0.5f;
    default: return 0;
  }
}

// The node's own; of an activation layer also RELU's max_value, as RELU6's, and THRESHOLD's threshold.
inline float ActivationAlpha(const Node& node) {
  if (node.activation == v1::LEAKY_RELU) return node.negative_slope;
  const bool within =
      node.kind == LayerKind::kTimeDistributed && node.layer.time_distributed().layer().has_activation();
  return within || node.kind == LayerKind::kActivation ? node.alpha : DefaultAlpha(node.activation);
}

}  // namespace cairn
