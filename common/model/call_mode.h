// How the arguments of a layer's call in Keras affect what the layer computes, and the order of its inputs.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Whether the layer computes as in inference even in training: Layer.training is false (no graph has a layer where it
// is true). The layer's moving averages are then kFrozen.
inline bool InfersAlways(const Node& node) { return node.layer.has_training(); }

// Whether the layer's inputs are a query, a value and perhaps a key, which may be given by name.
inline bool TakesQuery(LayerKind kind) {
  return kind == LayerKind::kMultiHeadAttention || kind == LayerKind::kGroupQueryAttention;
}

// The arguments of such a layer's call that are inputs, in the order of Node.inputs.
inline constexpr const char* kAttentionArguments[] = {"query", "value", "key"};

// v1::Layer.inputs of such a layer: query, value and, if it differs from the value, key. Each is given by
// position or, after the positional ones, by keyword: ["x", "key=dense_1", "value=dense"].
struct AttentionInputs {
  std::vector<std::string> layers;  // in the order of kAttentionArguments
  int keywords = 0;                 // how many are given by keyword; they come last
};

// Errors, without the layer's name: INVALID_ARGUMENT if an argument is given twice or is missing, or if a positional
// argument follows a keyword.
absl::StatusOr<AttentionInputs> ReadAttentionInputs(const v1::Layer& layer);

}  // namespace cairn
