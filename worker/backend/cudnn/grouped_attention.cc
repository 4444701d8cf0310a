// GroupQueryAttention (worker/backend/grouped_attention.h): projections, what HeadsAttention does with them, the gate,
// and a last projection.
#include "worker/backend/grouped_attention.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/heads_attention.h"
#include "worker/backend/cudnn/kernels/tensors.h"
#include "worker/backend/cudnn/layer.h"

namespace cairn::cudnn {
namespace {

HeadsShape ShapeOf(const GroupedAttention& a, bool trains) {
  HeadsShape s;
  s.examples = a.examples;
  s.queries = a.queries;
  s.keys = a.keys;
  s.heads = a.heads;
  s.groups = a.groups;
  s.key_size = s.value_size = a.size;
  s.causal = a.causal;
  s.window = a.window;
  s.dropout = trains ? a.dropout : 0.0f;
  s.seed = a.seed;
  s.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(a.size)));
  return s;
}

// to = x * y, number by number.
void EmitTimes(Builder& b, const Ref& x, const Ref& y, const Ref& to, int64_t numbers) {
  kernels::Operation o;
  o.op = kernels::Op::kMultiply;
  o.dims.of[kernels::kAxesMax - 1] = numbers;
  o.count = 2;
  for (kernels::Operand& operand : absl::MakeSpan(o.of, 2)) {
    operand.type = b.type();
    operand.strides.of[kernels::kAxesMax - 1] = 1;
  }
  b.Emit("multiply", {x, y}, {to}, [=, t = b.type()](const Run& r) {
    kernels::Operation with = o;
    with.of[0].x = r.At<>(x);
    with.of[1].x = r.At<>(y);
    return kernels::Operate(r.stream(), with, r.At<>(to), t);
  });
}

// heads * gate. Both gradients are written here alone.
Value* Gated(Builder& b, Value* heads, Value* gate) {
  Value* const gated = b.NewValue(heads->numbers, heads->needs_gradient, heads->type);
  gated->data = b.NewLike(*gated);
  EmitTimes(b, heads->data, gate->data, gated->data, gated->numbers);
  if (!gated->needs_gradient) return gated;
  b.Backward([=, &b] {
    EmitTimes(b, gated->gradient, gate->data, b.GradientSink(heads).ref, gated->numbers);
    EmitTimes(b, gated->gradient, heads->data, b.GradientSink(gate).ref, gated->numbers);
  });
  return gated;
}

void LowerGrouped(Builder& b, const Node& node) {
  Value* const out = b.Out(node);
  if (out->type != b.type()) {  // products take numbers of the job's type
    return b.Fail(absl::UnimplementedError(
        "on a GPU a GroupQueryAttention that gives ids to an Embedding is computed in FLOAT32 alone; use that, or "
        "--device=cpu"));
  }
  std::vector<Shape> shapes;
  for (const int input : node.inputs) shapes.push_back(b.NodeAt(input).output);
  const GroupedAttention a = GroupedAttentionOf(node, shapes, b.examples());
  const auto project = [&](GroupedPart part, Value* in, Value* to, int64_t in_columns, int64_t columns) {
    const Variable *const kernel = b.Find(node, absl::StrCat(kGroupedNames[part], "/kernel").c_str()),
                          *const bias = b.Find(node, absl::StrCat(kGroupedNames[part], "/bias").c_str());
    const Activation f{part == kGroupedGate ? v1::SIGMOID : v1::LINEAR, 0};
    LowerProjection(b, {kernel, bias, in_columns, columns, f}, in, to);
    return to;
  };
  const auto value = [&](int64_t numbers) { return b.NewValue(numbers, out->needs_gradient, b.type()); };
  const int64_t width = a.heads * a.size, shared = a.groups * a.size;
  Value *const query = b.In(node, 0), *const key = b.In(node, node.inputs.size() - 1);
  HeadsAttention::Values values;
  values.q = project(kGroupedQuery, query, value(a.of_query()), a.query_in, width);
  values.k = project(kGroupedKey, key, value(a.of_key()), a.key_in, shared);
  values.v = project(kGroupedValue, b.In(node, 1), value(a.of_key()), a.value_in, shared);
  values.out = value(a.of_query());
  HeadsAttention(b, node, ShapeOf(a, b.groups().Trains(node))).Lower(values);
  Value* heads = values.out;
  if (a.gated) heads = Gated(b, heads, project(kGroupedGate, query, value(a.of_query()), a.query_in, width));
  project(kGroupedOutput, heads, out, width, a.out);
}

constexpr Layer kLayers[] = {
    {LayerKind::kGroupQueryAttention, LowerGrouped},
};

}  // namespace

absl::Span<const Layer> GroupedAttentionLayers() { return kLayers; }

}  // namespace cairn::cudnn
