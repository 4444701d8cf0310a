// How Keras' call of a layer bears on what it computes, and on the order of its inputs.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Whether it is computed as in inference, in training too: Layer.training is false (a graph has no layer where it is
// true). Its moving averages are kFrozen.
inline bool InfersAlways(const Node& node) { return node.layer.has_training(); }

// Arguments of MultiHeadAttention's call that are inputs, in the order of Node.inputs.
inline constexpr const char* kAttentionArguments[] = {"query", "value", "key"};

// v1::Layer.inputs of a multi_head_attention: query, value and, if it is not the value, key, each by its place or,
// behind those, by its name: ["x", "key=dense_1", "value=dense"].
struct AttentionInputs {
  std::vector<std::string> layers;  // in the order of kAttentionArguments
  int keywords = 0;                 // so many, the last ones, are given by name
};

// Errors, without the layer's name: INVALID_ARGUMENT an argument is given twice or is missing, or a place follows a
// name.
absl::StatusOr<AttentionInputs> ReadAttentionInputs(const v1::Layer& layer);

}  // namespace cairn
