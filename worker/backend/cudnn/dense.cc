// Dense layers, attention and Dot: matrix products on rows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/model/limits.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/kernels/recurrent.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"

namespace cairn::cudnn {

namespace {

void LowerDense(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const Variable* kernel = builder.Find(node, "kernel");
  LowerProjection(
      builder,
      {kernel, builder.BiasOf(node), kernel->shape[0], kernel->shape[1], builder.groups().JoinedActivation(node)}, in,
      out);
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
    EmitConvert(builder, {weights, DType::kFloat32}, {copy, t}, in_columns * out_columns);
    weights = copy;
    if (fused) {
      const Ref copied = builder.NewNumbers(out_columns, t);
      EmitConvert(builder, {offsets, DType::kFloat32}, {copied, t}, out_columns);
      offsets = copied;
    }
  }
  const Ref y = builder.NewLike(*out);
  Product p{.m = rows, .n = out_columns, .k = in_columns, .out = t};
  p.relu = fused && relu;
  EmitBiasedProduct(builder, p, x, weights, fused ? offsets : Ref{}, y);
  out->data = y;
  const Ref before = fused ? Ref{} : EmitActivation(builder, f, y, offsets, out_columns, out);
  if (!builder.training()) return;
  builder.Backward([=, &builder] {
    EmitActivationBackward(builder, f, before, out_columns, out);
    const Ref dy = out->gradient;
    if (!frozen) {
      if (bias != nullptr) EmitColumnSums(builder, dy, rows, out_columns, builder.GradientOf(bias), t);
      EmitProduct(builder, {.m = in_columns, .n = out_columns, .k = rows, .transpose_a = true, .out = DType::kFloat32},
                  x, dy, builder.GradientOf(kernel));
    }
    if (!in->needs_gradient) return;
    const Builder::Sink dx = builder.GradientSink(in);
    EmitProduct(builder, {.m = rows, .n = in_columns, .k = out_columns, .transpose_b = true, .out = t}, dy, weights,
                dx.ref, dx.add);
  });
}

namespace {

// keras.layers.MultiHeadAttention: three projections to [example, step, head, number]; then, with the heads moved
// before the steps, softmax(q k' / sqrt(key_dim)) v as batched products; then the heads are moved back and projected.
class Attention {
 public:
  Attention(Builder& builder, const Node& node)
      : b_(builder),
        node_(node),
        mha_(node.layer.multi_head_attention()),
        t_(builder.type()),
        n_(builder.examples()),
        heads_(mha_.num_heads()),
        queries_(node.output[0]),
        keys_(builder.NodeAt(node.inputs.back()).output[0]),
        rate_(builder.groups().Trains(node) ? mha_.dropout() : 0.0f),
        scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(mha_.key_dim())))) {}

  void Lower() {
    Value* const result = b_.ValueAt(node_.id);
    Parts p;
    p.q = Project("query", node_.inputs[0], queries_, mha_.key_dim());
    p.k = Project("key", node_.inputs.back(), keys_, mha_.key_dim());
    p.v = Project("value", node_.inputs[1], keys_, mha_.value_dim());
    p.out = b_.NewValue(n_ * queries_ * heads_ * mha_.value_dim(), result->needs_gradient, t_);
    Forward(p);
    if (result->needs_gradient) b_.Backward([self = *this, p] { self.Backward(p); });
    const Variable* kernel = b_.Find(node_, "attention_output/kernel");
    const Variable* bias = b_.Find(node_, "attention_output/bias");
    LowerProjection(b_, {kernel, bias, heads_ * mha_.value_dim(), node_.output[1], {}}, p.out, result);
  }

 private:
  struct Parts {
    Value *q = nullptr, *k = nullptr, *v = nullptr;  // [example, step, head, number]
    Value* out = nullptr;                            // before the last projection
    Ref qh, kh, vh;                                  // with the heads before the steps
    Ref weights, dropped;                            // softmax of the scores
  };

  Value* Project(const char* name, int input, int64_t rows, int64_t size) const {
    Value* in = b_.ValueAt(input);
    Value* out = b_.NewValue(n_ * rows * heads_ * size, b_.ValueAt(node_.id)->needs_gradient, t_);
    const Variable* kernel = b_.Find(node_, absl::StrCat(name, "/kernel").c_str());
    const Variable* bias = b_.Find(node_, absl::StrCat(name, "/bias").c_str());
    LowerProjection(b_, {kernel, bias, b_.NodeAt(input).output.back(), heads_ * size, {}}, in, out);
    return out;
  }
  // [example, a, b, number] -> [example, b, a, number].
  void Swap(const Ref& from, const Ref& to, int64_t a, int64_t b, int64_t number) const {
    b_.Emit(absl::StrCat("swap ", n_, "x", a, "x", b, "x", number), {from}, {to}, [=, n = n_, t = t_](const Run& r) {
      const int64_t dims[] = {1, n, b, a, number}, strides[] = {0, a * b * number, number, b * number, 1};
      return kernels::Permute(r.stream(), dims, strides, r.At<>(from), r.At<>(to), t, false);
    });
  }
  void Drop(const Ref& from, const Ref& to) const {
    const Ref key = KeyOf(b_);
    b_.Emit(absl::StrCat("dropout ", rate_), {from, key}, {to},
            [=, draw = kernels::Draw{node_.id, rate_, mha_.seed()}, scores = scores(), t = t_](const Run& r) {
              return kernels::Dropout(r.stream(), scores, r.At<kernels::StepKey>(key), draw, r.At<>(from), r.At<>(to),
                                      t, false);
            });
  }
  // Sets the scores of masked queries and of masked keys and values; the masks are combined as in Keras.
  void FillMasked(const Ref& weights, float value) const {
    kernels::AttentionMasks m{n_, heads_, queries_, keys_, {}};
    const LayerHandover& left = b_.handover();
    const Ref query = left.StepMaskOf(node_.inputs[0]), values = left.StepMaskOf(node_.inputs[1]),
              key = left.StepMaskOf(node_.inputs.back());
    if (!query && !values && !key) return;
    // The lowest finite number of the type.
    if (t_ == DType::kFloat16) value = std::max(value, -65504.0f);
    b_.Emit("fill masked", {weights, query, values, key}, {weights}, [=, t = t_](const Run& r) mutable {
      m.of[0] = r.At<float>(query), m.of[1] = r.At<float>(values), m.of[2] = r.At<float>(key);
      return kernels::FillMaskedScores(r.stream(), m, value, r.At<>(weights), t);
    });
  }
  // Emits the product for each head of each example as one batch. product: the sizes, and what is transposed.
  void Multiply(Product product, const Ref& a, const Ref& b, const Ref& c) const {
    product.batch = n_ * heads_;
    product.out = t_;
    EmitProduct(b_, product, a, b, c);
  }
  int64_t scores() const { return n_ * heads_ * queries_ * keys_; }

  void Forward(Parts& p) const {
    p.qh = b_.NewLike(*p.q), p.kh = b_.NewLike(*p.k), p.vh = b_.NewLike(*p.v);
    Swap(p.q->data, p.qh, queries_, heads_, mha_.key_dim());
    Swap(p.k->data, p.kh, keys_, heads_, mha_.key_dim());
    Swap(p.v->data, p.vh, keys_, heads_, mha_.value_dim());
    const Ref weights = p.weights = b_.NewNumbers(scores(), t_);
    Multiply({.m = queries_, .n = keys_, .k = mha_.key_dim(), .transpose_b = true, .alpha = scale_}, p.qh, p.kh,
             weights);
    FillMasked(weights, std::numeric_limits<float>::lowest());
    const int64_t causal = mha_.use_causal_mask() ? queries_ : 0;
    b_.Emit(causal != 0 ? "causal softmax" : "softmax", {weights}, {weights},
            [=, rows = n_ * heads_ * queries_, keys = keys_, t = t_](const Run& r) {
              return kernels::Softmax(r.stream(), rows, keys, causal, r.At<>(weights), r.At<>(weights), t);
            });
    FillMasked(weights, 0);
    p.dropped = rate_ > 0 ? b_.NewNumbers(scores(), t_) : weights;
    if (rate_ > 0) Drop(weights, p.dropped);
    const Ref yh = b_.NewLike(*p.out);
    Multiply({.m = queries_, .n = mha_.value_dim(), .k = keys_}, p.dropped, p.vh, yh);
    p.out->data = b_.NewLike(*p.out);
    Swap(yh, p.out->data, heads_, queries_, mha_.value_dim());
  }

  void Backward(const Parts& p) const {
    const int64_t key_dim = mha_.key_dim(), value_dim = mha_.value_dim();
    const Ref dyh = b_.NewLike(*p.out), ds = b_.NewNumbers(scores(), t_);
    Swap(p.out->gradient, dyh, queries_, heads_, value_dim);
    Multiply({.m = queries_, .n = keys_, .k = value_dim, .transpose_b = true}, dyh, p.vh, ds);
    const Ref dvh = b_.NewLike(*p.v), dqh = b_.NewLike(*p.q), dkh = b_.NewLike(*p.k);
    Multiply({.m = keys_, .n = value_dim, .k = queries_, .transpose_a = true}, p.dropped, dyh, dvh);
    if (rate_ > 0) Drop(ds, ds);
    b_.Emit("softmax backward", {p.weights, ds}, {ds},
            [weights = p.weights, ds, rows = n_ * heads_ * queries_, keys = keys_, t = t_](const Run& r) {
              return kernels::SoftmaxBackward(r.stream(), rows, keys, r.At<>(weights), r.At<>(ds), r.At<>(ds), t,
                                              false);
            });
    Multiply({.m = queries_, .n = key_dim, .k = keys_, .alpha = scale_}, ds, p.kh, dqh);
    Multiply({.m = keys_, .n = key_dim, .k = queries_, .transpose_a = true, .alpha = scale_}, ds, p.qh, dkh);
    // The backward passes of the projections read them next, in the opposite order.
    for (Value* value : {p.q, p.k, p.v}) b_.GradientSink(value);
    Swap(dqh, p.q->gradient, heads_, queries_, key_dim);
    Swap(dkh, p.k->gradient, heads_, keys_, key_dim);
    Swap(dvh, p.v->gradient, heads_, keys_, value_dim);
  }

  Builder& b_;
  const Node& node_;
  const v1::MultiHeadAttention& mha_;
  const DType t_;
  const int64_t n_, heads_, queries_, keys_;
  const float rate_, scale_;
};

void LowerAttention(Builder& builder, const Node& node) { Attention(builder, node).Lower(); }

// An input of Dot as rows along the summed axis, [examples, rows, size]; of length 1 if the layer normalizes them.
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
      EmitPermute(b, d.permutation.forward, x, d.data, t, false);
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

  // Computes the gradient of `value` from that of `data`, which is overwritten.
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
      EmitConvert(b, {gradient, t}, {to, t}, all * size, add);
    }
    if (permuted) EmitPermute(b, permutation.backward, gradient, dx.ref, t, dx.add);
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
  EmitProduct(b,
              {.m = left.rows, .n = right.rows, .k = left.size, .transpose_b = true, .batch = b.examples(), .out = t},
              left.data, right.data, y);
  if (!out->needs_gradient) return;
  b.Backward([=, &b] {
    if (left.value->needs_gradient) {
      const Ref gradient = b.NewNumbers(left.all * left.size, t);
      EmitProduct(b, {.m = left.rows, .n = left.size, .k = right.rows, .batch = b.examples(), .out = t}, out->gradient,
                  right.data, gradient);
      left.LowerBackward(b, gradient, t);
    }
    if (right.value->needs_gradient) {
      const Ref gradient = b.NewNumbers(right.all * right.size, t);
      EmitProduct(
          b, {.m = right.rows, .n = right.size, .k = left.rows, .transpose_a = true, .batch = b.examples(), .out = t},
          out->gradient, left.data, gradient);
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
