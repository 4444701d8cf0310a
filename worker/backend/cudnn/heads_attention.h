// HeadsAttention: softmax(q k' * scale) v of each head, between the projections of a MultiHeadAttention and of a
// GroupQueryAttention (Ainslie et al. 2023), whose query heads share keys and values in groups.
//
// Used by one thread, while a plan is built. Invariant: with the heads moved before the steps, the query heads of a
// group are rows one behind the other, so that a group of an example is one product.
#pragma once

#include <cstdint>

#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {

struct HeadsShape {
  int64_t examples = 0, queries = 0, keys = 0;
  int64_t heads = 0, groups = 0;         // groups: of keys and values; as many as heads, or a divisor of them
  int64_t key_size = 0, value_size = 0;  // numbers of a head
  bool causal = false;                   // a query sees no keys behind it
  int64_t window = 0;                    // it sees keys within less than this distance; 0: all
  bool masks = false;                    // steps of the layer's inputs that are masked do not count
  float dropout = 0;                     // of the weights
  uint64_t seed = 0;
  float scale = 1;

  int64_t scores() const { return examples * heads * queries * keys; }
};

class HeadsAttention {
 public:
  HeadsAttention(Builder& builder, const Node& node, const HeadsShape& shape) : b_(builder), node_(node), s_(shape) {}

  // q: [examples, queries, heads, key_size]; k, v: [examples, keys, groups, ..]; out: as q, of value_size.
  struct Values {
    Value *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr;
  };
  // Forward, and on the way back the gradients of q, k and v, which nothing else may have written.
  void Lower(const Values& values);

 private:
  void Swap(const Ref& from, const Ref& to, int64_t a, int64_t b, int64_t number) const;
  void Drop(const Ref& from, const Ref& to) const;
  void FillMasked(const Ref& weights, float value) const;
  void HideOutside(const Ref& weights) const;
  void Multiply(Product product, const Ref& a, const Ref& b, const Ref& c) const;
  void Backward() const;
  int64_t group_rows() const { return s_.heads / s_.groups * s_.queries; }

  Builder& b_;
  const Node& node_;
  const HeadsShape s_;
  Values values_;
  struct Parts {
    Ref q, k, v;           // with the heads before the steps
    Ref weights, dropped;  // softmax of the scores
  };
  Parts p_;
};

}  // namespace cairn::cudnn
