// The numeric parameter (alpha) of an activation, for Activation layers and for layers that apply an activation.
//
// Pure functions; any thread.
#pragma once

#include "common/model/graph.h"

namespace cairn {

// The parameter where the layer has no field for it: LEAKY_RELU's slope, the alpha of ELU and CELU, RELU6's maximum,
// the slopes of HARD_SIGMOID and HARD_SIGMOID_KERAS2, the threshold of SOFT_SHRINK and HARD_SHRINK. 0 for all others.
inline float DefaultAlpha(v1::Activation activation) {
  switch (activation) {
    case v1::LEAKY_RELU: return 0.2f;
    case v1::ELU:
    case v1::CELU: return 1;
    case v1::RELU6: return 6;
    case v1::HARD_SIGMOID: return 1.0f / 6;
    case v1::HARD_SIGMOID_KERAS2: return 0.2f;
    case v1::SOFT_SHRINK:
    case v1::HARD_SHRINK: return 0.5f;
    default: return 0;
  }
}

// The node's own parameter. For an activation layer it may also be RELU's max_value (as for RELU6) or THRESHOLD's
// threshold.
inline float ActivationAlpha(const Node& node) {
  if (node.activation == v1::LEAKY_RELU) return node.negative_slope;
  const bool within =
      node.kind == LayerKind::kTimeDistributed && node.layer.time_distributed().layer().has_activation();
  return within || node.kind == LayerKind::kActivation ? node.alpha : DefaultAlpha(node.activation);
}

}  // namespace cairn
