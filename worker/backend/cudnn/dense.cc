// Dense layers, attention and Dot: matrix products on rows.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/model/limits.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/layer.h"

namespace cairn::cudnn {

namespace {

void LowerDense(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const Variable* kernel = builder.Find(node, "kernel");
  LowerProjection(builder,
                  {kernel, builder.BiasOf(node), kernel->shape[0], kernel->shape[1], builder.JoinedActivation(node)},
                  in, out);
}

}  // namespace

void LowerProjection(Builder& builder, const Projection& projection, Value* in, Value* out) {
  const Variable *const kernel = projection.kernel, *const bias = projection.bias;
  const int64_t in_columns = projection.in_columns, out_columns = projection.out_columns;
  const Activation f = projection.f;
  const DType t = builder.type();
  const int64_t rows = out->numbers / out_columns;
  const bool frozen = builder.Frozen(builder.current());
  const Ref x = builder.Read(*in, t);
  Ref weights = builder.ValueOf(kernel), offsets = builder.ValueOf(bias);
  const bool relu = f.kind == v1::RELU;
  const bool fused = bias != nullptr && (f.linear() || relu);  // in the product's epilogue
  if (t != DType::kFloat32) {
    const Ref copy = builder.NewNumbers(in_columns * out_columns, t);
    builder.EmitConvert(weights, DType::kFloat32, copy, t, in_columns * out_columns);
    weights = copy;
    if (fused) {
      const Ref copied = builder.NewNumbers(out_columns, t);
      builder.EmitConvert(offsets, DType::kFloat32, copied, t, out_columns);
      offsets = copied;
    }
  }
  const Ref y = builder.NewLike(*out);
  Product p{.m = rows, .n = out_columns, .k = in_columns, .out = t};
  p.relu = fused && relu;
  builder.EmitProduct(p, x, weights, fused ? offsets : Ref{}, y);
  out->data = y;
  const Ref before = fused ? Ref{} : builder.EmitActivation(f, y, offsets, out_columns, out);
  if (!builder.training()) return;
  builder.Backward([=, &builder] {
    builder.EmitActivationBackward(f, before, out_columns, out);
    const Ref dy = out->gradient;
    if (!frozen) {
      if (bias != nullptr) builder.EmitColumnSums(dy, rows, out_columns, builder.GradientOf(bias), t);
      builder.EmitProduct({.m = in_columns, .n = out_columns, .k = rows, .transpose_a = true, .out = DType::kFloat32},
                          x, dy, {}, builder.GradientOf(kernel));
    }
    if (!in->needs_gradient) return;
    const Builder::Sink dx = builder.GradientSink(in);
    builder.EmitProduct({.m = rows, .n = in_columns, .k = out_columns, .transpose_b = true, .out = t}, dy, weights, {},
                        dx.ref, dx.add);
  });
}

namespace {

// keras.layers.MultiHeadAttention: three projections to [example, step, head, number]; with the heads in front of the
// steps, softmax(q k' / sqrt(key_dim)) v as products of one batch; back, and the last projection.
void LowerAttention(Builder& builder, const Node& node) {
  const v1::MultiHeadAttention& mha = node.layer.multi_head_attention();
  const DType t = builder.type();
  const int64_t n = builder.examples(), heads = mha.num_heads(), key_dim = mha.key_dim(), value_dim = mha.value_dim();
  const int64_t queries = node.output[0], width = node.output[1];
  const int64_t keys = builder.NodeAt(node.inputs.back()).output[0];
  const int64_t scores = n * heads * queries * keys;
  const float rate = builder.Trains(node) ? mha.dropout() : 0.0f;
  const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(key_dim)));
  Value* const result = builder.ValueAt(node.id);
  const auto project = [&](const char* name, int input, int64_t rows, int64_t columns) {
    Value* in = builder.ValueAt(input);
    Value* out = builder.NewValue(n * rows * columns, result->needs_gradient, t);
    const Variable* kernel = builder.Find(node, absl::StrCat(name, "/kernel").c_str());
    const Variable* bias = builder.Find(node, absl::StrCat(name, "/bias").c_str());
    LowerProjection(builder, {kernel, bias, builder.NodeAt(input).output.back(), columns, {}}, in, out);
    return out;
  };
  Value* const q = project("query", node.inputs[0], queries, heads * key_dim);
  Value* const k = project("key", node.inputs.back(), keys, heads * key_dim);
  Value* const v = project("value", node.inputs[1], keys, heads * value_dim);
  // [example, a, b, number] -> [example, b, a, number].
  const auto swap = [=, &builder](const Ref& from, const Ref& to, int64_t a, int64_t b, int64_t number) {
    builder.Emit(absl::StrCat("swap ", n, "x", a, "x", b, "x", number), {from}, {to}, [=](const Run& r) {
      const int64_t dims[4] = {n, b, a, number}, strides[4] = {a * b * number, number, b * number, 1};
      return kernels::Permute(r.stream(), dims, strides, r.At<>(from), r.At<>(to), t, false);
    });
  };
  const Ref qh = builder.NewLike(*q), kh = builder.NewLike(*k), vh = builder.NewLike(*v);
  swap(q->data, qh, queries, heads, key_dim);
  swap(k->data, kh, keys, heads, key_dim);
  swap(v->data, vh, keys, heads, value_dim);
  const Ref weights = builder.NewNumbers(scores, t);
  builder.EmitProduct(
      {.m = queries, .n = keys, .k = key_dim, .transpose_b = true, .batch = n * heads, .alpha = scale, .out = t}, qh,
      kh, {}, weights);
  const int64_t causal = mha.use_causal_mask() ? queries : 0;
  builder.Emit(causal != 0 ? "causal softmax" : "softmax", {weights}, {weights}, [=](const Run& r) {
    return kernels::Softmax(r.stream(), n * heads * queries, keys, causal, r.At<>(weights), r.At<>(weights), t);
  });
  const Ref key{Ref::kKey};
  const int id = node.id;
  const auto drop = [=, &builder](const Ref& from, const Ref& to) {
    builder.Emit(absl::StrCat("dropout ", rate), {from, key}, {to}, [=](const Run& r) {
      return kernels::Dropout(r.stream(), scores, r.At<kernels::StepKey>(key), id, rate, r.At<>(from), r.At<>(to), t,
                              false);
    });
  };
  const Ref dropped = rate > 0 ? builder.NewNumbers(scores, t) : weights;
  if (rate > 0) drop(weights, dropped);
  Value* const heads_out = builder.NewValue(n * queries * heads * value_dim, result->needs_gradient, t);
  const Ref yh = builder.NewLike(*heads_out);
  builder.EmitProduct({.m = queries, .n = value_dim, .k = keys, .batch = n * heads, .out = t}, dropped, vh, {}, yh);
  heads_out->data = builder.NewLike(*heads_out);
  swap(yh, heads_out->data, heads, queries, value_dim);
  if (result->needs_gradient) {
    builder.Backward([=, &builder] {
      const Ref dyh = builder.NewLike(*heads_out), ds = builder.NewNumbers(scores, t);
      swap(heads_out->gradient, dyh, queries, heads, value_dim);
      builder.EmitProduct({.m = queries, .n = keys, .k = value_dim, .transpose_b = true, .batch = n * heads, .out = t},
                          dyh, vh, {}, ds);
      const Ref dvh = builder.NewLike(*v), dqh = builder.NewLike(*q), dkh = builder.NewLike(*k);
      builder.EmitProduct({.m = keys, .n = value_dim, .k = queries, .transpose_a = true, .batch = n * heads, .out = t},
                          dropped, dyh, {}, dvh);
      if (rate > 0) drop(ds, ds);
      builder.Emit("softmax backward", {weights, ds}, {ds}, [=](const Run& r) {
        return kernels::SoftmaxBackward(r.stream(), n * heads * queries, keys, r.At<>(weights), r.At<>(ds), r.At<>(ds),
                                        t, false);
      });
      builder.EmitProduct({.m = queries, .n = key_dim, .k = keys, .batch = n * heads, .alpha = scale, .out = t}, ds, kh,
                          {}, dqh);
      builder.EmitProduct(
          {.m = keys, .n = key_dim, .k = queries, .transpose_a = true, .batch = n * heads, .alpha = scale, .out = t},
          ds, qh, {}, dkh);
      // The projections read them next, in the opposite order.
      for (Value* value : {q, k, v}) builder.GradientSink(value);
      swap(dqh, q->gradient, heads, queries, key_dim);
      swap(dkh, k->gradient, heads, keys, key_dim);
      swap(dvh, v->gradient, heads, keys, value_dim);
    });
  }
  const Variable* kernel = builder.Find(node, "attention_output/kernel");
  LowerProjection(builder, {kernel, builder.Find(node, "attention_output/bias"), heads * value_dim, width, {}},
                  heads_out, result);
}

// One input of a Dot as rows of what is summed, [examples, rows, size], of length 1 where they are normalized.
struct DotRows {
  Value* value = nullptr;
  int64_t rows = 0, size = 0, all = 0;  // all: of all examples
  Permutation permutation;
  bool permuted = false, normalized = false;
  Ref data, lengths;

  static DotRows Lower(Builder& b, const Node& node, int side, DType t) {
    const Shape& shape = b.ShapeOf(node, static_cast<size_t>(side));
    const int32_t axis = node.layer.dot().axes(side);
    DotRows d;
    d.value = b.In(node, static_cast<size_t>(side));
    d.size = shape[static_cast<size_t>(axis) - 1];
    d.rows = NumElements(shape) / d.size;
    d.all = d.rows * b.examples();
    d.permuted = axis != static_cast<int32_t>(shape.size());
    d.normalized = node.layer.dot().normalize();
    d.data = b.Read(*d.value, t);
    if (d.permuted) {
      std::vector<int32_t> order;
      for (int32_t other = 1; other <= static_cast<int32_t>(shape.size()); ++other) {
        if (other != axis) order.push_back(other);
      }
      order.push_back(axis);
      d.permutation = PermutationOf(b.examples(), shape, order);
      const Ref x = d.data;
      d.data = b.NewNumbers(d.all * d.size, t);
      b.EmitPermute(d.permutation.forward, x, d.data, t, false);
    }
    if (d.normalized) {
      const Ref x = d.data, y = b.NewNumbers(d.all * d.size, t), lengths = b.NewNumbers(d.all, DType::kFloat32);
      const int64_t all = d.all, size = d.size;
      b.Emit("unit rows", {x}, {y, lengths}, [=](const Run& r) {
        return kernels::UnitRows(r.stream(), all, size, kVectorLengthMin, r.At<>(x), r.At<>(y), r.At<float>(lengths),
                                 t);
      });
      d.data = y;
      d.lengths = lengths;
    }
    return d;
  }

  // The gradient of `value` from that of `data`, which is lost.
  void LowerBackward(Builder& b, const Ref& gradient, DType t) const {
    const Builder::Sink dx = b.GradientSink(value);
    const Ref y = data, length = lengths;
    const int64_t rows_all = all, width = size;
    const Ref to = permuted ? gradient : dx.ref;
    const bool add = !permuted && dx.add;
    if (normalized) {
      std::vector<Ref> reads = {y, length, gradient};
      if (add) reads.push_back(to);
      b.Emit(absl::StrCat("unit rows backward", add ? " add" : ""), std::move(reads), {to}, [=](const Run& r) {
        return kernels::UnitRowsBackward(r.stream(), rows_all, width, kVectorLengthMin, r.At<>(y), r.At<float>(length),
                                         r.At<>(gradient), r.At<>(to), t, add);
      });
    } else if (!permuted) {
      b.EmitConvert(gradient, t, to, t, all * size, add);
    }
    if (permuted) b.EmitPermute(permutation.backward, gradient, dx.ref, t, dx.add);
  }
};

void LowerDot(Builder& b, const Node& node) {
  Value* const out = b.Out(node);
  const DType t = out->type;
  if (t != b.type()) {  // products take numbers of the job's type
    return b.Fail(absl::UnimplementedError(
        "on a GPU a Dot that gives ids to an Embedding is computed in FLOAT32 alone; use that, or --device=cpu"));
  }
  const DotRows left = DotRows::Lower(b, node, 0, t), right = DotRows::Lower(b, node, 1, t);
  const Ref y = b.NewLike(*out);
  out->data = y;
  b.EmitProduct({.m = left.rows, .n = right.rows, .k = left.size, .transpose_b = true, .batch = b.examples(), .out = t},
                left.data, right.data, {}, y);
  if (!out->needs_gradient) return;
  b.Backward([=, &b] {
    if (left.value->needs_gradient) {
      const Ref gradient = b.NewNumbers(left.all * left.size, t);
      b.EmitProduct({.m = left.rows, .n = left.size, .k = right.rows, .batch = b.examples(), .out = t}, out->gradient,
                    right.data, {}, gradient);
      left.LowerBackward(b, gradient, t);
    }
    if (right.value->needs_gradient) {
      const Ref gradient = b.NewNumbers(right.all * right.size, t);
      b.EmitProduct(
          {.m = right.rows, .n = right.size, .k = left.rows, .transpose_a = true, .batch = b.examples(), .out = t},
          out->gradient, left.data, {}, gradient);
      right.LowerBackward(b, gradient, t);
    }
  });
}

constexpr Layer kLayers[] = {
    {LayerKind::kDot, LowerDot},
    {LayerKind::kDense, LowerDense},
    {LayerKind::kMultiHeadAttention, LowerAttention},
};

}  // namespace

absl::Span<const Layer> DenseLayers() { return kLayers; }

}  // namespace cairn::cudnn
