// Layers on tensors that have no variables: operations, reductions, parts.
#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/operation_operands.h"
#include "common/model/slice_range.h"
#include "worker/backend/cudnn/axes.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"
#include "worker/backend/tensor_functors.h"
#include "worker/backend/tensor_reductions.h"

namespace cairn::cudnn {
namespace {

static_assert(static_cast<int>(kernels::Op::kMinimum) == v1::Operation::MINIMUM &&
                  static_cast<int>(kernels::Op::kReciprocal) == v1::Operation::RECIPROCAL &&
                  static_cast<int>(kernels::Op::kWhere) == v1::Operation::WHERE &&
                  static_cast<int>(kernels::Op::kLogicalXor) == v1::Operation::LOGICAL_XOR &&
                  static_cast<int>(kernels::Op::kFullLike) == v1::Operation::FULL_LIKE,
              "kernels::Op has the numbers of v1::Operation::Kind");
static_assert(static_cast<int>(kernels::Reducing::kVariance) == v1::Reduce::VARIANCE &&
                  static_cast<int>(kernels::Reducing::kCountNonzero) == v1::Reduce::COUNT_NONZERO,
              "kernels::Reducing has the numbers of v1::Reduce::Kind");

const char* Adds(bool add) { return add ? " add" : ""; }

std::vector<Ref> With(std::vector<Ref> reads, const Builder::Sink& sink) {
  if (sink.add) reads.push_back(sink.ref);
  return reads;
}

// ---- number by number ----

struct Operands {
  kernels::Operation fixed;
  std::vector<Value*> values;  // null: a constant
  std::vector<Ref> refs;

  kernels::Operation At(const Run& r) const {
    kernels::Operation o = fixed;
    for (int k = 0; k < o.count; ++k) o.of[k].x = r.At<>(refs[static_cast<size_t>(k)]);
    return o;
  }
  void Add(Value* value, const Ref& ref, DType type, const kernels::Strides& strides) {
    values.push_back(value);
    refs.push_back(ref);
    fixed.of[fixed.count++] = {nullptr, type, strides};
  }
};

void LowerOperands(Builder& b, const Operands& o, const std::string& name, Value* out) {
  const DType t = out->type;
  const Ref y = b.NewLike(*out);
  out->data = y;
  b.Emit(name, o.refs, {y}, [=](const Run& r) { return kernels::Operate(r.stream(), o.At(r), r.At<>(y), t); });
  if (!out->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    for (int which = 0; which < o.fixed.count; ++which) {
      Value* const value = o.values[static_cast<size_t>(which)];
      if (value == nullptr || !value->needs_gradient) continue;
      const Builder::Sink dx = b.GradientSink(value);
      std::vector<Ref> reads = o.refs;
      reads.push_back(dy);
      b.Emit(absl::StrCat(name, " backward ", which, Adds(dx.add)), With(std::move(reads), dx), {dx.ref},
             [=](const Run& r) {
               return kernels::OperateBackward(r.stream(), o.At(r), which, r.At<>(dy), r.At<>(dx.ref), t, dx.add);
             });
    }
  });
}

// What stands for infinity where the largest float32 is asked for: the largest number of the type.
float WithinType(float number, DType type) {
  const float largest = type == DType::kFloat16    ? 65504.0f
                        : type == DType::kBFloat16 ? 0x1.fep127f
                                                   : std::numeric_limits<float>::max();
  return std::clamp(number, -largest, largest);
}

void LowerElementwise(Builder& b, const Node& node, const v1::Operation& operation) {
  Value* const out = b.Out(node);
  Operands o;
  o.fixed.op = static_cast<kernels::Op>(operation.kind());
  o.fixed.low = LowOf(operation);
  o.fixed.high = HighOf(operation);
  if (operation.kind() == v1::Operation::NAN_TO_NUM) {
    o.fixed.low = WithinType(o.fixed.low, out->type);
    o.fixed.high = WithinType(o.fixed.high, out->type);
    o.fixed.nan = WithinType(operation.nan(), out->type);
  }
  o.fixed.dims = DimsOf(b.examples(), node.output);
  for (const OperationOperand& operand : OperandsOf(operation, node.inputs.size())) {
    if (operand.input < 0) {
      const std::vector<float> numbers(operand.numbers.begin(), operand.numbers.end());
      o.Add(nullptr, b.Constant(numbers), DType::kFloat32, StridesAlong(operand.shape, node.output, /*shared=*/true));
      continue;
    }
    const size_t k = static_cast<size_t>(operand.input);
    Value* const value = b.In(node, k);
    o.Add(value, value->data, value->type, StridesAlong(b.ShapeOf(node, k), node.output, /*shared=*/false));
  }
  LowerOperands(b, o, v1::Operation::Kind_Name(operation.kind()), out);
}

// ---- matrices ----

void LowerMatMul(Builder& b, const Node& node) {
  Value *const out = b.Out(node), *const first = b.In(node, 0), *const second = b.In(node, 1);
  const Shape &left = b.ShapeOf(node, 0), &right = b.ShapeOf(node, 1);
  const DType t = out->type;
  if (t != b.type()) {  // products take numbers of the job's type
    return b.Fail(absl::UnimplementedError(
        "on a GPU a MATMUL that gives ids to an Embedding is computed in FLOAT32 alone; use that, or --device=cpu"));
  }
  const int64_t m = left[left.size() - 2], k = left.back(), n = right.back(), batch = out->numbers / (m * n);
  const Ref x = b.Read(*first, t), w = b.Read(*second, t), y = b.NewLike(*out);
  out->data = y;
  EmitProduct(b, {.m = m, .n = n, .k = k, .batch = batch, .out = t}, x, w, y);
  if (!out->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    if (first->needs_gradient) {
      const Builder::Sink dx = b.GradientSink(first);
      EmitProduct(b, {.m = m, .n = k, .k = n, .transpose_b = true, .batch = batch, .out = t}, dy, w, dx.ref, dx.add);
    }
    if (second->needs_gradient) {
      const Builder::Sink dw = b.GradientSink(second);
      EmitProduct(b, {.m = k, .n = n, .k = m, .transpose_a = true, .batch = batch, .out = t}, x, dy, dw.ref, dw.add);
    }
  });
}

// ---- along an axis ----

void LowerLines(Builder& b, const Node& node) {
  const v1::Operation& operation = node.layer.operation();
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType t = out->type;
  kernels::Lines lines;
  switch (operation.kind()) {
    case v1::Operation::SOFTMAX: lines.kind = kernels::Line::kSoftmax; break;
    case v1::Operation::L2_NORMALIZE: lines.kind = kernels::Line::kUnit; break;
    case v1::Operation::CUMPROD: lines.kind = kernels::Line::kCumulativeProduct; break;
    default: lines.kind = kernels::Line::kCumulative;
  }
  lines.size = node.output[static_cast<size_t>(operation.axis(0)) - 1];
  for (size_t i = static_cast<size_t>(operation.axis(0)); i < node.output.size(); ++i) lines.inner *= node.output[i];
  lines.outer = out->numbers / (lines.size * lines.inner);
  lines.shortest = static_cast<float>(kNormalizedLengthMin);
  const std::string name = v1::Operation::Kind_Name(operation.kind());
  const bool rows = lines.inner == 1 && lines.kind == kernels::Line::kSoftmax;  // side by side in memory
  const Ref x = b.Read(*in, t), y = b.NewLike(*out);
  out->data = y;
  const Activation softmax{v1::SOFTMAX, 0};
  if (rows) {
    EmitRows(b, softmax, {lines.outer, lines.size, t}, x, y);
  } else {
    b.Emit(name, {x}, {y},
           [=](const Run& r) { return kernels::AlongLines(r.stream(), lines, r.At<>(x), r.At<>(y), t); });
  }
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = b.GradientSink(in);
    if (rows) return EmitRowsBackward(b, softmax, {lines.outer, lines.size, t}, y, dy, dx);
    b.Emit(absl::StrCat(name, " backward", Adds(dx.add)), With({x, y, dy}, dx), {dx.ref}, [=](const Run& r) {
      return kernels::AlongLinesBackward(r.stream(), lines, r.At<>(x), r.At<>(y), r.At<>(dy), r.At<>(dx.ref), t,
                                         dx.add);
    });
  });
}

void LowerOperation(Builder& b, const Node& node) {
  switch (node.layer.operation().kind()) {
    case v1::Operation::MATMUL: return LowerMatMul(b, node);
    case v1::Operation::SOFTMAX:
    case v1::Operation::L2_NORMALIZE:
    case v1::Operation::CUMSUM:
    case v1::Operation::CUMPROD: return LowerLines(b, node);
    default: return LowerElementwise(b, node, node.layer.operation());
  }
}

void LowerSubtract(Builder& b, const Node& node) {
  v1::Operation operation;
  operation.set_kind(v1::Operation::SUBTRACT);
  LowerElementwise(b, node, operation);
}

void LowerReduce(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const v1::Reduce& reduce = node.layer.reduce();
  const Shape& shape = b.ShapeOf(node);
  const DType t = in->type;
  kernels::Reduction reduction;
  reduction.kind = static_cast<kernels::Reducing>(reduce.kind());
  reduction.dims = DimsOf(b.examples(), shape);
  for (const int32_t axis : reduce.axis())
    reduction.reduced[AxisPlace(shape.size(), static_cast<size_t>(axis) - 1)] = true;
  const std::string name = absl::StrCat("reduce ", v1::Reduce::Kind_Name(reduce.kind()));
  const Ref x = b.Read(*in, out->type), y = b.NewLike(*out),
            statistics = b.NewNumbers(2 * out->numbers, DType::kFloat32);
  out->data = y;
  b.Emit(name, {x}, {y, statistics}, [=, t = out->type](const Run& r) {
    return kernels::Reduce(r.stream(), reduction, r.At<>(x), r.At<>(y), r.At<float>(statistics), t);
  });
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = b.GradientSink(in);
    if (t != out->type) {  // places, which have no gradient
      if (dx.add) return;
      return b.Emit("zeros", {}, {dx.ref},
                    [=, n = in->numbers](const Run& r) { return kernels::Fill(r.stream(), n, 0, r.At<>(dx.ref), t); });
    }
    b.Emit(absl::StrCat(name, " backward", Adds(dx.add)), With({statistics, x, dy}, dx), {dx.ref}, [=](const Run& r) {
      return kernels::ReduceBackward(r.stream(), reduction, r.At<float>(statistics), r.At<>(x), r.At<>(dy),
                                     r.At<>(dx.ref), t, dx.add);
    });
  });
}

void LowerSlice(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const Shape& shape = b.ShapeOf(node);
  const DType t = out->type;
  const int64_t numbers = in->numbers;
  Shape part;
  kernels::Strides from;
  int64_t stride = NumElements(shape);
  from.of[AxisPlace(shape.size(), 0) - 1] = stride;
  for (size_t i = 0; i < shape.size(); ++i) {
    const SliceRange range = RangeOf(node.layer.slice().axes(static_cast<int>(i)), shape[i]);
    stride /= shape[i];
    part.push_back(range.count);
    from.of[AxisPlace(shape.size(), i)] = stride * range.step;
    from.begin += stride * range.begin;
  }
  const kernels::Dims dims = DimsOf(b.examples(), part);
  const kernels::Strides to = StridesAlong(part, part, /*shared=*/false);
  const Ref x = b.Read(*in, t), y = b.NewLike(*out);
  out->data = y;
  b.Emit("slice", {x}, {y},
         [=](const Run& r) { return kernels::CopyPart(r.stream(), dims, from, r.At<>(x), to, r.At<>(y), t, false); });
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = b.GradientSink(in);
    if (!dx.add) {
      b.Emit("zeros", {}, {dx.ref},
             [=](const Run& r) { return kernels::Fill(r.stream(), numbers, 0, r.At<>(dx.ref), t); });
    }
    b.Emit("slice backward", {dy, dx.ref}, {dx.ref}, [=](const Run& r) {
      return kernels::CopyPart(r.stream(), dims, to, r.At<>(dy), from, r.At<>(dx.ref), t, true);
    });
  });
}

constexpr Layer kLayers[] = {
    {LayerKind::kOperation, LowerOperation},
    {LayerKind::kSubtract, LowerSubtract},
    {LayerKind::kReduce, LowerReduce},
    {LayerKind::kSlice, LowerSlice},
};

}  // namespace

absl::Span<const Layer> TensorLayers() { return kLayers; }

}  // namespace cairn::cudnn
