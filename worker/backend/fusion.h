// Which layers may be fused with others, in every backend that fuses layers. Pure functions; any thread.
#pragma once

#include "common/model/activation_numbers.h"
#include "common/model/graph.h"

namespace cairn {

// Whether layers of this kind apply an activation themselves: those with a kernel do.
inline bool AppliesActivation(LayerKind kind) {
  switch (kind) {
    case LayerKind::kConv1D:
    case LayerKind::kConv2D:
    case LayerKind::kConv3D:
    case LayerKind::kDepthwiseConv1D:
    case LayerKind::kDepthwiseConv2D:
    case LayerKind::kSeparableConv1D:
    case LayerKind::kSeparableConv2D:
    case LayerKind::kConv1DTranspose:
    case LayerKind::kConv2DTranspose:
    case LayerKind::kConv3DTranspose:
    case LayerKind::kDense: return true;
    default: return false;
  }
}

// Whether the node's activation is one of those after RELU6: backends compute each by an operation of its own, on plain
// buffers.
inline bool IsFurtherActivation(const Node& node) {
  if (node.activation == v1::RELU6) return ActivationAlpha(node) != DefaultAlpha(v1::RELU6);
  return node.activation > v1::RELU6;
}

// Whether layers of this kind can take the pads of a ZeroPadding2D before them into their own window.
inline bool TakesPads(LayerKind kind) {
  return kind == LayerKind::kConv2D || kind == LayerKind::kDepthwiseConv2D || kind == LayerKind::kSeparableConv2D;
}

}  // namespace cairn
