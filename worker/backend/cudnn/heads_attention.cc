#include "worker/backend/cudnn/heads_attention.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/kernels/recurrent.h"
#include "worker/backend/cudnn/launches.h"

namespace cairn::cudnn {

// [example, a, b, number] -> [example, b, a, number].
void HeadsAttention::Swap(const Ref& from, const Ref& to, int64_t a, int64_t b, int64_t number) const {
  const int64_t n = s_.examples;
  b_.Emit(absl::StrCat("swap ", n, "x", a, "x", b, "x", number), {from}, {to}, [=, t = b_.type()](const Run& r) {
    const int64_t dims[kernels::kAxesMax] = {1, 1, n, b, a, number};
    const int64_t strides[kernels::kAxesMax] = {0, 0, a * b * number, number, b * number, 1};
    return kernels::Permute(r.stream(), dims, strides, r.At<>(from), r.At<>(to), t, false);
  });
}

// Backward draws the same mask again.
void HeadsAttention::Drop(const Ref& from, const Ref& to) const {
  const Ref key = KeyOf(b_);
  b_.Emit(absl::StrCat("dropout ", s_.dropout), {from, key}, {to},
          [=, draw = kernels::Draw{node_.id, s_.dropout, s_.seed}, scores = s_.scores(), t = b_.type()](const Run& r) {
            return kernels::Dropout(r.stream(), scores, r.At<kernels::StepKey>(key), draw, r.At<>(from), r.At<>(to), t,
                                    false);
          });
}

// Sets the scores of masked queries and of masked keys and values; the masks are combined as in Keras.
void HeadsAttention::FillMasked(const Ref& weights, float value) const {
  if (!s_.masks) return;
  kernels::AttentionMasks m{s_.examples, s_.heads, s_.queries, s_.keys, {}};
  const LayerHandover& left = b_.handover();
  const Ref query = left.StepMaskOf(node_.inputs[0]), values = left.StepMaskOf(node_.inputs[1]),
            key = left.StepMaskOf(node_.inputs.back());
  if (!query && !values && !key) return;
  // The lowest finite number of the type.
  if (b_.type() == DType::kFloat16) value = std::max(value, -65504.0f);
  b_.Emit("fill masked", {weights, query, values, key}, {weights}, [=, t = b_.type()](const Run& r) mutable {
    m.of[0] = r.At<float>(query), m.of[1] = r.At<float>(values), m.of[2] = r.At<float>(key);
    return kernels::FillMaskedScores(r.stream(), m, value, r.At<>(weights), t);
  });
}

void HeadsAttention::HideOutside(const Ref& weights) const {
  const kernels::SeenKeys seen{s_.examples * s_.heads * s_.queries, s_.queries, s_.keys, s_.causal, s_.window};
  b_.Emit(absl::StrCat("hide outside ", s_.window), {weights}, {weights},
          [=, t = b_.type()](const Run& r) { return kernels::HideScores(r.stream(), seen, r.At<>(weights), t); });
}

// Emits the product for each group of each example as one batch. product: the sizes, and what is transposed.
void HeadsAttention::Multiply(Product product, const Ref& a, const Ref& b, const Ref& c) const {
  product.batch = s_.examples * s_.groups;
  product.out = b_.type();
  EmitProduct(b_, product, a, b, c);
}

void HeadsAttention::Lower(const Values& values) {
  values_ = values;
  const auto& [q, k, v, out] = values_;
  const DType t = b_.type();
  p_.q = b_.NewLike(*q), p_.k = b_.NewLike(*k), p_.v = b_.NewLike(*v);
  Swap(q->data, p_.q, s_.queries, s_.heads, s_.key_size);
  Swap(k->data, p_.k, s_.keys, s_.groups, s_.key_size);
  Swap(v->data, p_.v, s_.keys, s_.groups, s_.value_size);
  const Ref weights = p_.weights = b_.NewNumbers(s_.scores(), t);
  Multiply({.m = group_rows(), .n = s_.keys, .k = s_.key_size, .transpose_b = true, .alpha = s_.scale}, p_.q, p_.k,
           weights);
  FillMasked(weights, std::numeric_limits<float>::lowest());
  if (s_.window > 0) HideOutside(weights);
  const int64_t causal = s_.causal && s_.window == 0 ? s_.queries : 0;
  b_.Emit(causal != 0 ? "causal softmax" : "softmax", {weights}, {weights},
          [=, rows = s_.examples * s_.heads * s_.queries, keys = s_.keys](const Run& r) {
            return kernels::Softmax(r.stream(), rows, keys, causal, r.At<>(weights), r.At<>(weights), t);
          });
  FillMasked(weights, 0);
  p_.dropped = s_.dropout > 0 ? b_.NewNumbers(s_.scores(), t) : weights;
  if (s_.dropout > 0) Drop(weights, p_.dropped);
  const Ref y = b_.NewLike(*out);
  Multiply({.m = group_rows(), .n = s_.value_size, .k = s_.keys}, p_.dropped, p_.v, y);
  out->data = b_.NewLike(*out);
  Swap(y, out->data, s_.heads, s_.queries, s_.value_size);
  if (out->needs_gradient) b_.Backward([self = *this] { self.Backward(); });
}

void HeadsAttention::Backward() const {
  const auto& [q, k, v, out] = values_;
  const DType t = b_.type();
  const Ref dy = b_.NewLike(*out), d = b_.NewNumbers(s_.scores(), t);
  Swap(out->gradient, dy, s_.queries, s_.heads, s_.value_size);
  Multiply({.m = group_rows(), .n = s_.keys, .k = s_.value_size, .transpose_b = true}, dy, p_.v, d);
  const Ref dv = b_.NewLike(*v), dq = b_.NewLike(*q), dk = b_.NewLike(*k);
  Multiply({.m = s_.keys, .n = s_.value_size, .k = group_rows(), .transpose_a = true}, p_.dropped, dy, dv);
  if (s_.dropout > 0) Drop(d, d);
  b_.Emit("softmax backward", {p_.weights, d}, {d},
          [=, weights = p_.weights, rows = s_.examples * s_.heads * s_.queries, keys = s_.keys](const Run& r) {
            return kernels::SoftmaxBackward(r.stream(), rows, keys, r.At<>(weights), r.At<>(d), r.At<>(d), t, false);
          });
  Multiply({.m = group_rows(), .n = s_.key_size, .k = s_.keys, .alpha = s_.scale}, d, p_.k, dq);
  Multiply({.m = s_.keys, .n = s_.key_size, .k = group_rows(), .transpose_a = true, .alpha = s_.scale}, d, p_.q, dk);
  // The backward passes of the projections read them next, in the opposite order.
  for (Value* value : {q, k, v}) b_.GradientSink(value);
  Swap(dq, q->gradient, s_.heads, s_.queries, s_.key_size);
  Swap(dk, k->gradient, s_.groups, s_.keys, s_.key_size);
  Swap(dv, v->gradient, s_.groups, s_.keys, s_.value_size);
}

}  // namespace cairn::cudnn
