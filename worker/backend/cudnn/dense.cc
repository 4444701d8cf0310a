// Dense layers, attention and Dot: matrix products on rows.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/model/limits.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/heads_attention.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"

namespace cairn::cudnn {

namespace {

void LowerDense(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const Variable* kernel = builder.Find(node, "kernel");
  LowerProjection(
      builder,
      {kernel, BiasOf(builder, node), kernel->shape[0], kernel->shape[1], builder.groups().JoinedActivation(node)}, in,
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

// keras.layers.MultiHeadAttention: three projections to [example, step, head, number], what HeadsAttention does with
// them, and a last projection.
void LowerAttention(Builder& b, const Node& node) {
  const v1::MultiHeadAttention& mha = node.layer.multi_head_attention();
  Value* const result = b.Out(node);
  HeadsShape s;
  s.examples = b.examples();
  s.queries = node.output[0];
  s.keys = b.NodeAt(node.inputs.back()).output[0];
  s.heads = s.groups = mha.num_heads();
  s.key_size = mha.key_dim();
  s.value_size = mha.value_dim();
  s.causal = mha.use_causal_mask();
  s.masks = true;
  s.dropout = b.groups().Trains(node) ? mha.dropout() : 0.0f;
  s.seed = mha.seed();
  s.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(mha.key_dim())));
  const auto project = [&](const char* name, int input, int64_t rows, int64_t size) {
    Value* out = b.NewValue(s.examples * rows * s.heads * size, result->needs_gradient, b.type());
    const Variable* kernel = b.Find(node, absl::StrCat(name, "/kernel").c_str());
    const Variable* bias = b.Find(node, absl::StrCat(name, "/bias").c_str());
    LowerProjection(b, {kernel, bias, b.NodeAt(input).output.back(), s.heads * size, {}}, b.ValueAt(input), out);
    return out;
  };
  HeadsAttention::Values values;
  values.q = project("query", node.inputs[0], s.queries, s.key_size);
  values.k = project("key", node.inputs.back(), s.keys, s.key_size);
  values.v = project("value", node.inputs[1], s.keys, s.value_size);
  values.out = b.NewValue(s.examples * s.queries * s.heads * s.value_size, result->needs_gradient, b.type());
  HeadsAttention(b, node, s).Lower(values);
  const Variable *const kernel = b.Find(node, "attention_output/kernel"), *const bias =
                                                                              b.Find(node, "attention_output/bias");
  LowerProjection(b, {kernel, bias, s.heads * s.value_size, node.output[1], {}}, values.out, result);
}

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
