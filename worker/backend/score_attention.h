// Attention and AdditiveAttention: the softmax over the keys s of a score of query t and key s, times the values.
//
//   Attention, DOT        scale * q_t . k_s
//   Attention, CONCAT     weight * sum over i of tanh(scale * (q_ti + k_si))
//   AdditiveAttention     sum over i of scale_i * tanh(q_ti + k_si)
//
// A scale or weight that the layer does not have is 1. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "common/model/graph.h"

namespace cairn {

struct ScoreAttention {
  enum Score { kDot, kConcat, kAdditive };
  Score score = kDot;
  float dropout = 0;
  uint64_t seed = 0;
  bool causal = false;  // query t sees keys 0 .. t
  int64_t queries = 0, keys = 0, features = 0, values = 0;
};

// query, value: their shapes. The key has the shape of the value but for its features, which are the query's.
inline ScoreAttention ScoreAttentionOf(const Node& node, const Shape& query, const Shape& value) {
  ScoreAttention a;
  const auto take = [&](const auto& layer) {
    a.dropout = layer.dropout();
    a.seed = layer.seed();
    a.causal = layer.use_causal_mask();
  };
  if (node.kind == LayerKind::kAdditiveAttention) {
    a.score = ScoreAttention::kAdditive;
    take(node.layer.additive_attention());
  } else {
    const bool concat = node.layer.attention().score_mode() == v1::Attention::CONCAT;
    a.score = concat ? ScoreAttention::kConcat : ScoreAttention::kDot;
    take(node.layer.attention());
  }
  a.queries = query[0];
  a.features = query[1];
  a.keys = value[0];
  a.values = value[1];
  return a;
}

}  // namespace cairn
