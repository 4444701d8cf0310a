#include "common/model/onnx/onnx_fold.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/model/onnx/onnx_fold_numbers.h"

namespace cairn {
namespace {

using Type = onnx::TensorProto;

// ---- numbers ----

// Integers wrap around, as in ONNX runtimes.
int64_t Wrapped(const std::string& op, int64_t a, int64_t b) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  if (op == "Add") return static_cast<int64_t>(x + y);
  if (op == "Sub") return static_cast<int64_t>(x - y);
  if (op == "Mul") return static_cast<int64_t>(x * y);
  if (op == "Div") return b == -1 ? static_cast<int64_t>(0 - x) : a / b;
  return op == "Min" ? std::min(a, b) : std::max(a, b);
}

// The result if the batch size is among the operands.
int64_t OfBatch(const std::string& op, int64_t a, int64_t b) {
  const bool left = IsOfBatch(a);
  if (left && ((op == "Mul" || op == "Div") ? b == 1 : (op == "Add" || op == "Sub") && b == 0)) return a;
  if (!left && ((op == "Mul" && a == 1) || (op == "Add" && a == 0))) return b;
  return kOnnxUnknown;
}

float OfFloats(const std::string& op, float a, float b) {
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Div") return a / b;
  if (op == "Pow") return std::pow(a, b);
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<float>::quiet_NaN();
  return op == "Min" ? std::min(a, b) : std::max(a, b);
}

bool IsArithmetic(const std::string& op) {
  return op == "Add" || op == "Sub" || op == "Mul" || op == "Div" || op == "Min" || op == "Max" || op == "Pow";
}
bool IsComparison(const std::string& op) { return op == "Equal" || op == "Less" || op == "Greater"; }

// ---- several inputs, broadcast ----

absl::StatusOr<Shape> BroadcastShape(absl::Span<const OnnxTensor* const> inputs) {
  Shape dims;
  for (const OnnxTensor* const x : inputs) {
    while (dims.size() < x->dims.size()) dims.insert(dims.begin(), 1);
    for (size_t i = 0; i < x->dims.size(); ++i) {
      int64_t& dim = dims[dims.size() - x->dims.size() + i];
      if (dim == 1) dim = x->dims[i];
      if (x->dims[i] != 1 && x->dims[i] != dim) return Bad("its inputs' shapes do not fit one another");
    }
  }
  return dims;
}

StridedWalk WalkOf(const OnnxTensor& x, const Shape& dims) {
  std::vector<int64_t> strides(dims.size(), 0);
  const std::vector<int64_t> own = StridesOf(x.dims);
  for (size_t i = 0; i < own.size(); ++i) {
    if (x.dims[i] != 1) strides[dims.size() - own.size() + i] = own[i];
  }
  return StridedWalk(dims, std::move(strides), 0);
}

absl::StatusOr<OnnxTensor> Binary(const std::string& op, const OnnxTensor& a, const OnnxTensor& b) {
  if (a.whole != b.whole) return Bad("its inputs are of two types");
  if (op == "Pow" && a.whole) return Lacks("a power of whole numbers");
  const OnnxTensor* const both[] = {&a, &b};
  OnnxTensor result;
  CAIRN_ASSIGN_OR_RETURN(result.dims, BroadcastShape(both));
  CAIRN_ASSIGN_OR_RETURN(const int64_t count, CountIn(result.dims));
  result.whole = a.whole || IsComparison(op);
  result.of_batch = a.of_batch || b.of_batch;
  StridedWalk x = WalkOf(a, result.dims), y = WalkOf(b, result.dims);
  for (int64_t i = 0; i < count; ++i, x.Next(), y.Next()) {
    const size_t at = static_cast<size_t>(x.place()), bt = static_cast<size_t>(y.place());
    if (!a.whole) {
      const float p = a.floats[at], q = b.floats[bt];
      if (IsComparison(op)) result.ints.push_back(op == "Equal" ? p == q : op == "Less" ? p < q : p > q);
      if (!IsComparison(op)) result.floats.push_back(OfFloats(op, p, q));
      continue;
    }
    const int64_t p = a.ints[at], q = b.ints[bt];
    const bool batch = result.of_batch && (IsOfBatch(p) || IsOfBatch(q));
    if (batch && IsComparison(op) && (op != "Equal" || (IsOfBatch(p) && IsOfBatch(q))))
      return Lacks("it compares the batch's size");
    if (op == "Div" && q == 0) return Bad("it divides by 0");
    result.ints.push_back(IsComparison(op) ? (op == "Equal"  ? p == q
                                              : op == "Less" ? p < q
                                                             : p > q)
                          : batch          ? OfBatch(op, p, q)
                                           : Wrapped(op, p, q));
  }
  return result;
}

absl::StatusOr<OnnxTensor> Where(const OnnxFoldNode& op) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const condition, op.Input(0));
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const a, op.Input(1));
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const b, op.Input(2));
  if (!condition->whole || a->whole != b->whole) return Bad("its inputs are of the wrong types");
  const OnnxTensor* const all[] = {condition, a, b};
  OnnxTensor result;
  CAIRN_ASSIGN_OR_RETURN(result.dims, BroadcastShape(all));
  CAIRN_ASSIGN_OR_RETURN(const int64_t count, CountIn(result.dims));
  result.whole = a->whole;
  result.of_batch = a->of_batch || b->of_batch;
  StridedWalk c = WalkOf(*condition, result.dims), x = WalkOf(*a, result.dims), y = WalkOf(*b, result.dims);
  for (int64_t i = 0; i < count; ++i, c.Next(), x.Next(), y.Next()) {
    const bool first = condition->ints[static_cast<size_t>(c.place())] != 0;
    const size_t at = static_cast<size_t>(first ? x.place() : y.place());
    if (a->whole) result.ints.push_back((first ? a : b)->ints[at]);
    if (!a->whole) result.floats.push_back((first ? a : b)->floats[at]);
  }
  return result;
}

// ---- one input ----

absl::StatusOr<OnnxTensor> Cast(OnnxFoldNode& op) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const x, op.Input(0));
  const int64_t to = op.attributes.Int("to", 0);
  op.attributes.Ignore("saturate");
  OnnxTensor result;
  result.dims = x->dims;
  result.of_batch = x->of_batch;
  if (to == Type::FLOAT || to == Type::DOUBLE) {
    if (!x->whole) return *x;
    for (const int64_t n : x->ints) {
      const bool batch = x->of_batch && IsOfBatch(n);
      result.floats.push_back(batch ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(n));
    }
    return result;
  }
  const bool wide = to == Type::INT64;
  if (!wide && to != Type::INT32 && to != Type::BOOL)
    return Lacks("constants are cast to FLOAT, DOUBLE, INT64, INT32 and BOOL, not to type ", to);
  result.whole = true;
  for (int64_t i = 0; i < CountOf(*x); ++i) {
    int64_t n = x->whole ? x->ints[static_cast<size_t>(i)] : 0;
    if (!x->whole) {
      const float f = x->floats[static_cast<size_t>(i)];
      if (std::isnan(f) && x->of_batch) {
        n = kOnnxUnknown;
      } else if (!(std::abs(f) < 9e18f)) {
        return Bad("it casts ", f, " to a whole number");
      } else {
        n = to == Type::BOOL ? f != 0 : static_cast<int64_t>(f);
      }
    }
    if (x->of_batch && IsOfBatch(n)) {
      result.ints.push_back(to == Type::BOOL ? 1 : n);
      continue;
    }
    if (to == Type::INT32 && (n < INT32_MIN || n > INT32_MAX)) return Bad("it casts ", n, " to 32 bits");
    result.ints.push_back(to == Type::BOOL ? n != 0 : n);
  }
  return result;
}

absl::StatusOr<OnnxTensor> Unary(const OnnxFoldNode& op) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const x, op.Input(0));
  const std::string& type = op.node.op_type();
  OnnxTensor result = *x;
  if (type == "Not" && !x->whole) return Bad("its input is not of type BOOL");
  for (int64_t& n : result.ints) {
    if (x->of_batch && IsOfBatch(n)) n = kOnnxUnknown;
    if (type == "Not") n = n == 0;
    if (n == kOnnxUnknown && x->of_batch) continue;
    if (type == "Neg") n = static_cast<int64_t>(0 - static_cast<uint64_t>(n));
    if (type == "Abs") n = n < 0 ? static_cast<int64_t>(0 - static_cast<uint64_t>(n)) : n;
    if (type != "Not" && type != "Neg" && type != "Abs") return Bad("its input are whole numbers");
  }
  for (float& f : result.floats) {
    if (type == "Neg") f = -f;
    if (type == "Abs") f = std::abs(f);
    if (type == "Floor") f = std::floor(f);
    if (type == "Ceil") f = std::ceil(f);
    if (type == "Sqrt") f = std::sqrt(f);
    if (type == "Exp") f = std::exp(f);
    if (type == "Reciprocal") f = 1 / f;
  }
  return result;
}

// Sums, products and the like over some axes.
absl::StatusOr<OnnxTensor> Reduce(OnnxFoldNode& op) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const x, op.Input(0));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, op.Ints(1, "axes"));
  const bool keep = op.attributes.Int("keepdims", 1) != 0;
  if (op.attributes.Int("noop_with_empty_axes", 0) != 0 && axes.empty()) return *x;
  std::vector<bool> gone(x->dims.size(), axes.empty());
  for (const int64_t axis : axes) {
    CAIRN_ASSIGN_OR_RETURN(const size_t at, OnnxFoldNode::Axis(axis, x->dims.size()));
    gone[at] = true;
  }
  Shape kept, dims;
  for (size_t i = 0; i < x->dims.size(); ++i) {
    kept.push_back(gone[i] ? 1 : x->dims[i]);
    if (keep || !gone[i]) dims.push_back(kept.back());
  }
  CAIRN_ASSIGN_OR_RETURN(const int64_t count, CountIn(kept));
  const std::string& type = op.node.op_type();
  const std::string step = type == "ReduceSum"    ? "Add"
                           : type == "ReduceProd" ? "Mul"
                           : type == "ReduceMin"  ? "Min"
                                                  : "Max";
  OnnxTensor result;
  result.dims = dims;
  result.whole = x->whole;
  result.of_batch = x->of_batch;
  result.ints.assign(x->whole ? static_cast<size_t>(count) : 0, step == "Mul" ? 1 : 0);
  result.floats.assign(x->whole ? 0 : static_cast<size_t>(count), step == "Mul" ? 1.0f : 0.0f);
  std::vector<bool> met(static_cast<size_t>(count), step == "Mul" || step == "Add");
  OnnxTensor place;
  place.dims = kept;
  StridedWalk walk = WalkOf(place, x->dims);
  for (int64_t i = 0; i < CountOf(*x); ++i, walk.Next()) {
    const size_t from = static_cast<size_t>(i), to = static_cast<size_t>(walk.place());
    if (x->whole) {
      int64_t& n = result.ints[to];
      const int64_t m = x->ints[from];
      const bool batch = x->of_batch && (IsOfBatch(m) || IsOfBatch(n));
      n = !met[to] ? m : batch ? OfBatch(step, n, m) : Wrapped(step, n, m);
    } else {
      result.floats[to] = met[to] ? OfFloats(step, result.floats[to], x->floats[from]) : x->floats[from];
    }
    met[to] = true;
  }
  if (std::find(met.begin(), met.end(), false) != met.end()) return Bad("it reduces nothing");
  return result;
}

absl::StatusOr<OnnxTensor> Compute(OnnxFoldNode& op) {
  const std::string& type = op.node.op_type();
  if (type == "Identity" || (type == "Dropout" && op.node.output_size() == 1)) {
    for (const char* name : {"ratio", "seed"}) op.attributes.Ignore(name);
    CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const x, op.Input(0));
    return *x;
  }
  if (type == "Cast") return Cast(op);
  if (type == "Where") return Where(op);
  if (type == "ReduceSum" || type == "ReduceProd" || type == "ReduceMin" || type == "ReduceMax") return Reduce(op);
  if (type == "Neg" || type == "Abs" || type == "Floor" || type == "Ceil" || type == "Sqrt" || type == "Exp" ||
      type == "Reciprocal" || type == "Not")
    return Unary(op);
  if (IsArithmetic(type) || IsComparison(type)) {
    CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const a, op.Input(0));
    OnnxTensor result = *a;
    for (size_t i = 1; i < op.count(); ++i) {
      CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const b, op.Input(i));
      CAIRN_ASSIGN_OR_RETURN(result, Binary(type, result, *b));
    }
    return result;
  }
  absl::StatusOr<OnnxTensor> arranged = FoldArranging(op);
  if (!absl::IsNotFound(arranged.status())) return arranged;
  return Lacks("a computed constant; fold constants when exporting");
}

}  // namespace

absl::StatusOr<OnnxTensor> FoldOnnxNode(const onnx::NodeProto& node, int64_t opset,
                                        absl::Span<const OnnxTensor* const> inputs) {
  OnnxFoldNode op(node, opset, inputs);
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor result, Compute(op));
  CAIRN_RETURN_IF_ERROR(op.attributes.Finish());
  return result;
}

}  // namespace cairn
