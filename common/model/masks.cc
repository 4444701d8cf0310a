#include "common/model/masks.h"

#include <cstddef>

#include "common/base/bad.h"
#include "common/model/call_mode.h"
#include "common/model/recurrent.h"

namespace cairn {
namespace {

// For a layer that joins its inputs: the mask that all inputs share. Keras combines different masks.
absl::StatusOr<int> JoinedMask(const std::vector<Node>& nodes, const Node& node) {
  int mask = nodes[static_cast<size_t>(node.inputs[0])].mask;
  bool differs = false;
  for (const int input : node.inputs) {
    const int other = nodes[static_cast<size_t>(input)].mask;
    if (other < 0) return -1;
    differs |= other != mask;
  }
  if (differs) {
    return Bad("its inputs have masks of different layers, of which \"", nodes[static_cast<size_t>(mask)].name,
               "\" is one; such masks are not joined: let it take what one layer masks");
  }
  return mask;
}

// The mask of a concatenation, which may not join the steps that are masked.
absl::StatusOr<int> ConcatenatedMask(const std::vector<Node>& nodes, const Node& node) {
  const absl::StatusOr<int> mask = JoinedMask(nodes, node);
  const Shape& first = nodes[static_cast<size_t>(node.inputs[0])].output;
  if (mask.ok() && *mask >= 0 && first[0] != node.output[0]) {
    return Bad("it joins the steps of what \"", nodes[static_cast<size_t>(*mask)].name,
               "\" masks; such masks are not joined: concatenate the features, or before the mask");
  }
  return mask;
}

bool NormalizesBatch(const Node& node) {
  return node.kind == LayerKind::kBatchNormalization || node.layer.time_distributed().layer().has_batch_normalization();
}

absl::StatusOr<int> NormalizedMask(const std::vector<Node>& nodes, const Node& node, int before) {
  if (before < 0 || !NormalizesBatch(node) || !node.trainable || InfersAlways(node)) return before;
  return Bad(
      "steps that \"", nodes[static_cast<size_t>(before)].name,
      "\" masks are left out of its statistics in Keras, which is not supported; normalize before the mask, or by "
      "a layer_normalization");
}

// Of an attention that has no mask of its inputs.
absl::StatusOr<int> UnmaskedAttention(const std::vector<Node>& nodes, const Node& node) {
  for (const int input : node.inputs) {
    const int mask = nodes[static_cast<size_t>(input)].mask;
    if (mask < 0) continue;
    return Bad("\"", nodes[static_cast<size_t>(mask)].name,
               "\" masks steps of its inputs, which is not supported; use a multi_head_attention, or no mask");
  }
  return -1;
}

}  // namespace

absl::StatusOr<int> OutputMask(const std::vector<Node>& nodes, const Node& node) {
  if (node.inputs.empty()) return -1;
  const int before = nodes[static_cast<size_t>(node.inputs[0])].mask;
  switch (node.kind) {
    case LayerKind::kMasking: return node.id;
    case LayerKind::kEmbedding: return node.layer.embedding().mask_zero() ? node.id : -1;
    case LayerKind::kSimpleRNN:
    case LayerKind::kLSTM:
    case LayerKind::kGRU:
    case LayerKind::kConvLSTM1D:
    case LayerKind::kConvLSTM2D:
    case LayerKind::kConvLSTM3D:
    case LayerKind::kBidirectional: return RecurrencesOf(node.layer)[0].return_sequences ? before : -1;
    case LayerKind::kBatchNormalization:
    case LayerKind::kTimeDistributed: return NormalizedMask(nodes, node, before);
    case LayerKind::kActivation:
    case LayerKind::kActivityRegularization:
    case LayerKind::kPReLU:
    case LayerKind::kDense:
    case LayerKind::kRescaling:
    case LayerKind::kNormalization:
    case LayerKind::kLayerNormalization:
    case LayerKind::kGroupNormalization:
    case LayerKind::kUnitNormalization:
    case LayerKind::kDropout:
    case LayerKind::kSpatialDropout1D:
    case LayerKind::kSpatialDropout2D:
    case LayerKind::kSpatialDropout3D:
    case LayerKind::kAlphaDropout:
    case LayerKind::kGaussianDropout:
    case LayerKind::kGaussianNoise:
    case LayerKind::kMultiHeadAttention: return before;  // the query's
    case LayerKind::kAdd:
    case LayerKind::kSubtract:
    case LayerKind::kMultiply:
    case LayerKind::kAverage:
    case LayerKind::kMaximum:
    case LayerKind::kMinimum: return JoinedMask(nodes, node);
    case LayerKind::kSlice: {  // the output of a recurrent layer apart from its states
      const Node& from = nodes[static_cast<size_t>(node.inputs[0])];
      const bool whole = node.output.size() == from.output.size() && node.output[0] == from.output[0];
      return GivesCells(from) && whole ? before : -1;
    }
    case LayerKind::kConcatenate: return ConcatenatedMask(nodes, node);
    case LayerKind::kAttention:
    case LayerKind::kAdditiveAttention:
    case LayerKind::kGroupQueryAttention: return UnmaskedAttention(nodes, node);
    default: return -1;
  }
}

}  // namespace cairn
