// Dense layers and attention: matrix products on rows.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {

void Builder::LowerDense(const Node& node, Value* in, Value* out) {
  const Variable* kernel = Find(node, "kernel");
  LowerProjection(kernel, BiasOf(node), kernel->shape[0], kernel->shape[1], JoinedActivation(node), in, out);
}

void Builder::LowerProjection(const Variable* kernel, const Variable* bias, int64_t in_columns, int64_t out_columns,
                              const Activation& f, Value* in, Value* out) {
  const DType t = type();
  const int64_t rows = out->numbers / out_columns;
  const bool frozen = Frozen(*current_);
  const Ref x = Read(*in, t);
  Ref weights = ValueOf(kernel), offsets = ValueOf(bias);
  const bool relu = f.kind == v1::RELU;
  const bool fused = bias != nullptr && (f.linear() || relu);  // in the product's epilogue
  if (t != DType::kFloat32) {
    const Ref copy = NewNumbers(in_columns * out_columns, t);
    EmitConvert(weights, DType::kFloat32, copy, t, in_columns * out_columns);
    weights = copy;
    if (fused) {
      const Ref copied = NewNumbers(out_columns, t);
      EmitConvert(offsets, DType::kFloat32, copied, t, out_columns);
      offsets = copied;
    }
  }
  const Ref y = NewLike(*out);
  Product p{.m = rows, .n = out_columns, .k = in_columns, .out = t};
  p.relu = fused && relu;
  EmitProduct(p, x, weights, fused ? offsets : Ref{}, y);
  out->data = y;
  const Ref before = fused ? Ref{} : EmitActivation(f, y, offsets, out_columns, out);
  if (!training()) return;
  Backward([=, this] {
    EmitActivationBackward(f, before, out_columns, out);
    const Ref dy = out->gradient;
    if (!frozen) {
      if (bias != nullptr) EmitColumnSums(dy, rows, out_columns, GradientOf(bias), t);
      EmitProduct({.m = in_columns, .n = out_columns, .k = rows, .transpose_a = true, .out = DType::kFloat32}, x, dy,
                  {}, GradientOf(kernel));
    }
    if (!in->needs_gradient) return;
    const Sink dx = GradientSink(in);
    EmitProduct({.m = rows, .n = in_columns, .k = out_columns, .transpose_b = true, .out = t}, dy, weights, {}, dx.ref,
                dx.add);
  });
}

// keras.layers.MultiHeadAttention: three projections to [example, step, head, number]; with the heads in front of the
// steps, softmax(q k' / sqrt(key_dim)) v as products of one batch; back, and the last projection.
void Builder::LowerAttention(const Node& node) {
  const v1::MultiHeadAttention& mha = node.layer.multi_head_attention();
  const DType t = type();
  const int64_t n = examples(), heads = mha.num_heads(), key_dim = mha.key_dim(), value_dim = mha.value_dim();
  const int64_t queries = node.output[0], width = node.output[1];
  const int64_t keys = graph_.nodes()[node.inputs.back()].output[0];
  const int64_t scores = n * heads * queries * keys;
  const float rate = Trains(node) ? mha.dropout() : 0.0f;
  const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(key_dim)));
  Value* const result = node_values_[node.id];
  const auto project = [&](const char* name, int input, int64_t rows, int64_t columns) {
    Value* in = node_values_[input];
    Value* out = NewValue(n * rows * columns, result->needs_gradient, t);
    const Variable* kernel = Find(node, absl::StrCat(name, "/kernel").c_str());
    const Variable* bias = Find(node, absl::StrCat(name, "/bias").c_str());
    LowerProjection(kernel, bias, graph_.nodes()[input].output.back(), columns, {}, in, out);
    return out;
  };
  Value* const q = project("query", node.inputs[0], queries, heads * key_dim);
  Value* const k = project("key", node.inputs.back(), keys, heads * key_dim);
  Value* const v = project("value", node.inputs[1], keys, heads * value_dim);
  // [example, a, b, number] -> [example, b, a, number].
  const auto swap = [=, this](const Ref& from, const Ref& to, int64_t a, int64_t b, int64_t number) {
    Emit(absl::StrCat("swap ", n, "x", a, "x", b, "x", number), {from}, {to}, [=](const Run& r) {
      const int64_t dims[4] = {n, b, a, number}, strides[4] = {a * b * number, number, b * number, 1};
      return kernels::Permute(r.stream(), dims, strides, r.At<>(from), r.At<>(to), t, false);
    });
  };
  const Ref qh = NewLike(*q), kh = NewLike(*k), vh = NewLike(*v);
  swap(q->data, qh, queries, heads, key_dim);
  swap(k->data, kh, keys, heads, key_dim);
  swap(v->data, vh, keys, heads, value_dim);
  const Ref weights = NewNumbers(scores, t);
  EmitProduct(
      {.m = queries, .n = keys, .k = key_dim, .transpose_b = true, .batch = n * heads, .alpha = scale, .out = t}, qh,
      kh, {}, weights);
  const int64_t causal = mha.use_causal_mask() ? queries : 0;
  Emit(causal != 0 ? "causal softmax" : "softmax", {weights}, {weights}, [=](const Run& r) {
    return kernels::Softmax(r.stream(), n * heads * queries, keys, causal, r.At<>(weights), r.At<>(weights), t);
  });
  const Ref key{Ref::kKey};
  const int id = node.id;
  const auto drop = [=, this](const Ref& from, const Ref& to) {
    Emit(absl::StrCat("dropout ", rate), {from, key}, {to}, [=](const Run& r) {
      return kernels::Dropout(r.stream(), scores, r.At<kernels::StepKey>(key), id, rate, r.At<>(from), r.At<>(to), t,
                              false);
    });
  };
  const Ref dropped = rate > 0 ? NewNumbers(scores, t) : weights;
  if (rate > 0) drop(weights, dropped);
  Value* const heads_out = NewValue(n * queries * heads * value_dim, result->needs_gradient, t);
  const Ref yh = NewLike(*heads_out);
  EmitProduct({.m = queries, .n = value_dim, .k = keys, .batch = n * heads, .out = t}, dropped, vh, {}, yh);
  heads_out->data = NewLike(*heads_out);
  swap(yh, heads_out->data, heads, queries, value_dim);
  if (result->needs_gradient) {
    Backward([=, this] {
      const Ref dyh = NewLike(*heads_out), ds = NewNumbers(scores, t);
      swap(heads_out->gradient, dyh, queries, heads, value_dim);
      EmitProduct({.m = queries, .n = keys, .k = value_dim, .transpose_b = true, .batch = n * heads, .out = t}, dyh, vh,
                  {}, ds);
      const Ref dvh = NewLike(*v), dqh = NewLike(*q), dkh = NewLike(*k);
      EmitProduct({.m = keys, .n = value_dim, .k = queries, .transpose_a = true, .batch = n * heads, .out = t}, dropped,
                  dyh, {}, dvh);
      if (rate > 0) drop(ds, ds);
      Emit("softmax backward", {weights, ds}, {ds}, [=](const Run& r) {
        return kernels::SoftmaxBackward(r.stream(), n * heads * queries, keys, r.At<>(weights), r.At<>(ds), r.At<>(ds),
                                        t, false);
      });
      EmitProduct({.m = queries, .n = key_dim, .k = keys, .batch = n * heads, .alpha = scale, .out = t}, ds, kh, {},
                  dqh);
      EmitProduct(
          {.m = keys, .n = key_dim, .k = queries, .transpose_a = true, .batch = n * heads, .alpha = scale, .out = t},
          ds, qh, {}, dkh);
      // The projections read them next, in the opposite order.
      for (Value* value : {q, k, v}) GradientSink(value);
      swap(dqh, q->gradient, heads, queries, key_dim);
      swap(dkh, k->gradient, heads, keys, key_dim);
      swap(dvh, v->gradient, heads, keys, value_dim);
    });
  }
  const Variable* kernel = Find(node, "attention_output/kernel");
  LowerProjection(kernel, Find(node, "attention_output/bias"), heads * value_dim, width, {}, heads_out, result);
}

}  // namespace cairn::cudnn
