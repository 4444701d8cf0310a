// GroupQueryAttention (Ainslie et al. 2023) on the CPU, forward and backward: used by the reference in float64, by
// oneDNN in float32. Sums are float64, in the order of the numbers.
//
// Pure functions; any thread. Tensors are dense, examples first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/graph.h"

namespace cairn {

struct GroupedAttention {
  int64_t examples = 0, queries = 0, keys = 0;  // keys: steps of the value and of the key
  int64_t heads = 0, groups = 0, size = 0;      // of the query; that share a key and a value; numbers of a head
  int64_t query_in = 0, value_in = 0, key_in = 0, out = 0;  // features
  bool gated = false, causal = false;
  int64_t window = 0;  // 0: none
  float dropout = 0;
  uint64_t seed = 0;

  bool Sees(int64_t t, int64_t s) const {
    const int64_t distance = t < s ? s - t : t - s;
    return !(causal && s > t) && !(window > 0 && distance >= window);
  }
  int64_t weights() const { return examples * heads * queries * keys; }
  int64_t of_query() const { return examples * queries * heads * size; }
  int64_t of_key() const { return examples * keys * groups * size; }
};

GroupedAttention GroupedAttentionOf(const Node& node, const std::vector<Shape>& inputs, int64_t examples);

// The projections, in the order of the variables; each has a kernel and perhaps a bias.
enum GroupedPart { kGroupedQuery, kGroupedKey, kGroupedGate, kGroupedValue, kGroupedOutput, kGroupedParts };
inline constexpr const char* kGroupedNames[kGroupedParts] = {"query", "key", "gate", "value", "attention_output"};

template <typename T>
struct GroupedWeights {
  const T *kernel[kGroupedParts] = {}, *bias[kGroupedParts] = {};  // null: there is none
};
// Null: not needed. Added to.
struct GroupedGradients {
  double *kernel[kGroupedParts] = {}, *bias[kGroupedParts] = {};
  double *query = nullptr, *value = nullptr, *key = nullptr;
};
// What forward computes and backward reads.
template <typename T>
struct GroupedBuffers {
  T *query = nullptr, *key = nullptr, *value = nullptr;  // projected
  T *gate = nullptr, *weights = nullptr, *heads = nullptr;
};

// What a layer is computed of. x: query, value, key. factors: of dropout, one for each weight; null: none.
template <typename T>
struct GroupedInputs {
  const T* x[3] = {};
  GroupedWeights<T> weights;
  const float* factors = nullptr;
};

template <typename T>
void GroupedForward(const GroupedAttention& a, const GroupedInputs<T>& in, const GroupedBuffers<T>& b, T* y);
template <typename T>
void GroupedBackward(const GroupedAttention& a, const GroupedInputs<T>& in, const GroupedBuffers<T>& b, const T* dy,
                     const GroupedGradients& g);

}  // namespace cairn
