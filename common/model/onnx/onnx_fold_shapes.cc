// Constant folding of operators that select, slice, concatenate and reshape.
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_fold.h"
#include "common/model/onnx/onnx_fold_numbers.h"

namespace cairn {
namespace {

OnnxTensor Reshaped(OnnxTensor x, Shape dims) {
  x.dims = std::move(dims);
  return x;
}

absl::StatusOr<OnnxTensor> Transpose(OnnxFoldNode& op, const OnnxTensor& x) {
  std::vector<int64_t> perm = op.attributes.Ints("perm");
  const size_t rank = x.dims.size();
  if (perm.empty()) {
    for (size_t i = rank; i-- > 0;) perm.push_back(static_cast<int64_t>(i));
  }
  std::vector<int64_t> sorted = perm, all(rank);
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all) return Bad("perm is not an order of its input's axes");
  const std::vector<int64_t> own = StridesOf(x.dims);
  Shape dims;
  std::vector<int64_t> strides;
  for (const int64_t axis : perm) {
    dims.push_back(x.dims[static_cast<size_t>(axis)]);
    strides.push_back(own[static_cast<size_t>(axis)]);
  }
  return Strided(x, dims, strides);
}

absl::StatusOr<OnnxTensor> Gather(OnnxFoldNode& op, const OnnxTensor& x) {
  CAIRN_ASSIGN_OR_RETURN(const size_t axis, OnnxFoldNode::Axis(op.attributes.Int("axis", 0), x.dims.size()));
  CAIRN_ASSIGN_OR_RETURN(std::vector<int64_t> indices, op.Ints(1));
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const given, op.Input(1));
  const int64_t size = x.dims[axis];
  for (int64_t& index : indices) {
    if (index < -size || index >= size) return Bad("index ", index, " of ", size, " numbers");
    if (index < 0) index += size;
  }
  const Shape before(x.dims.begin(), x.dims.begin() + static_cast<int64_t>(axis));
  const Shape behind(x.dims.begin() + static_cast<int64_t>(axis) + 1, x.dims.end());
  OnnxTensor result;
  result.dims = before;
  result.dims.insert(result.dims.end(), given->dims.begin(), given->dims.end());
  result.dims.insert(result.dims.end(), behind.begin(), behind.end());
  CAIRN_RETURN_IF_ERROR(CountIn(result.dims).status());
  result.whole = x.whole;
  result.of_batch = x.of_batch;
  const int64_t run = NumElements(behind);
  for (int64_t row = 0; row < NumElements(before); ++row) {
    for (const int64_t index : indices) {
      const int64_t at = (row * size + index) * run;
      if (x.whole) result.ints.insert(result.ints.end(), x.ints.begin() + at, x.ints.begin() + at + run);
      if (!x.whole) result.floats.insert(result.floats.end(), x.floats.begin() + at, x.floats.begin() + at + run);
    }
  }
  return result;
}

// Starts and ends are inputs, or, before opset 10, attributes. The batch size as an end means the end of the axis.
absl::StatusOr<OnnxTensor> Slice(OnnxFoldNode& op, const OnnxTensor& x) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> starts, op.Ints(1, "starts"));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> ends, op.Ints(2, "ends"));
  CAIRN_ASSIGN_OR_RETURN(std::vector<int64_t> axes, op.Ints(3, "axes"));
  std::vector<int64_t> steps;
  if (op.Has(4)) {
    CAIRN_ASSIGN_OR_RETURN(steps, op.Ints(4));
  }
  if (axes.empty()) {
    for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    return Bad("its starts, ends, axes and steps differ in their number");
  Shape dims = x.dims;
  std::vector<int64_t> strides = StridesOf(x.dims);
  int64_t first = 0;
  std::set<size_t> seen;
  for (size_t i = 0; i < starts.size(); ++i) {
    CAIRN_ASSIGN_OR_RETURN(const size_t axis, OnnxFoldNode::Axis(axes[i], x.dims.size()));
    const int64_t size = x.dims[axis], step = steps[i];
    if (!seen.insert(axis).second) return Bad("it names axis ", axes[i], " twice");
    if (step == 0 || step < -kWindowMax || step > kWindowMax) return Bad("steps of ", step);
    const auto place = [&](int64_t n) {
      if (n < 0) n = std::max<int64_t>(n, -size - 1) + size;
      return step > 0 ? std::clamp<int64_t>(n, 0, size) : std::clamp<int64_t>(n, -1, size - 1);
    };
    const int64_t from = place(starts[i]), to = place(ends[i]), span = step > 0 ? to - from : from - to;
    const int64_t pace = step > 0 ? step : -step;
    dims[axis] = span <= 0 ? 0 : (span + pace - 1) / pace;
    first += dims[axis] == 0 ? 0 : from * strides[axis];
    strides[axis] *= step;
  }
  return Strided(x, dims, strides, first);
}

absl::StatusOr<OnnxTensor> Concat(OnnxFoldNode& op, const OnnxTensor& x) {
  CAIRN_ASSIGN_OR_RETURN(const size_t axis, OnnxFoldNode::Axis(op.attributes.Int("axis", 0), x.dims.size()));
  OnnxTensor result;
  result.dims = x.dims;
  result.dims[axis] = 0;
  result.whole = x.whole;
  std::vector<const OnnxTensor*> parts;
  for (size_t i = 0; i < op.count(); ++i) {
    CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const part, op.Input(i));
    Shape alike = part->dims;
    if (alike.size() == x.dims.size()) alike[axis] = x.dims[axis];
    if (alike != x.dims || part->whole != x.whole) return Bad("its inputs do not fit one another");
    result.dims[axis] += part->dims[axis];
    result.of_batch = result.of_batch || part->of_batch;
    parts.push_back(part);
  }
  CAIRN_RETURN_IF_ERROR(CountIn(result.dims).status());
  int64_t rows = 1;
  for (size_t i = 0; i < axis; ++i) rows *= x.dims[i];
  for (int64_t row = 0; row < rows; ++row) {
    for (const OnnxTensor* const part : parts) {
      const int64_t run = CountOf(*part) / rows, at = row * run;
      if (x.whole) result.ints.insert(result.ints.end(), part->ints.begin() + at, part->ints.begin() + at + run);
      if (!x.whole)
        result.floats.insert(result.floats.end(), part->floats.begin() + at, part->floats.begin() + at + run);
    }
  }
  return result;
}

absl::StatusOr<OnnxTensor> Unsqueeze(OnnxFoldNode& op, const OnnxTensor& x) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, op.Ints(1, "axes"));
  const size_t rank = x.dims.size() + axes.size();
  if (rank > kOnnxAxesMax) return Lacks("a constant of ", rank, " dimensions");
  std::set<size_t> ones;
  for (const int64_t axis : axes) {
    CAIRN_ASSIGN_OR_RETURN(const size_t at, OnnxFoldNode::Axis(axis, rank));
    if (!ones.insert(at).second) return Bad("it names axis ", axis, " twice");
  }
  Shape dims;
  size_t from = 0;
  for (size_t i = 0; i < rank; ++i) dims.push_back(ones.contains(i) ? 1 : x.dims[from++]);
  return Reshaped(x, std::move(dims));
}

absl::StatusOr<OnnxTensor> Squeeze(OnnxFoldNode& op, const OnnxTensor& x) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, op.Ints(1, "axes"));
  std::set<size_t> gone;
  for (const int64_t axis : axes) {
    CAIRN_ASSIGN_OR_RETURN(const size_t at, OnnxFoldNode::Axis(axis, x.dims.size()));
    if (x.dims[at] != 1) return Bad("axis ", axis, " is of ", x.dims[at], ", not 1");
    gone.insert(at);
  }
  Shape dims;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    if (axes.empty() ? x.dims[i] != 1 : !gone.contains(i)) dims.push_back(x.dims[i]);
  }
  return Reshaped(x, std::move(dims));
}

absl::StatusOr<OnnxTensor> Reshape(OnnxFoldNode& op, const OnnxTensor& x) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> target, op.Ints(1));
  const bool zero_copies = op.attributes.Int("allowzero", 0) == 0;
  Shape dims = target;
  int free = -1;
  int64_t known = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 && zero_copies && i < x.dims.size()) dims[i] = x.dims[i];
    if (dims[i] == -1 && free < 0) {
      free = static_cast<int>(i);
      continue;
    }
    if (dims[i] < 0 || __builtin_mul_overflow(known, dims[i], &known)) return Bad("a shape of ", dims[i]);
  }
  if (free >= 0 && (known == 0 || CountOf(x) % known != 0)) return Bad("its shape does not fit its input");
  if (free >= 0) dims[static_cast<size_t>(free)] = CountOf(x) / known;
  CAIRN_ASSIGN_OR_RETURN(const int64_t count, CountIn(dims));
  if (count != CountOf(x)) return Bad("its shape does not fit its input");
  return Reshaped(x, std::move(dims));
}

absl::StatusOr<OnnxTensor> Flatten(OnnxFoldNode& op, const OnnxTensor& x) {
  const int64_t axis = op.attributes.Int("axis", 1), rank = static_cast<int64_t>(x.dims.size());
  if (axis < -rank || axis > rank) return Bad("axis ", axis, " of a value of ", rank, " dimensions");
  const int64_t from = axis < 0 ? axis + rank : axis;
  const int64_t rows = NumElements(Shape(x.dims.begin(), x.dims.begin() + from));
  return Reshaped(x, {rows, NumElements(Shape(x.dims.begin() + from, x.dims.end()))});
}

// A shape with 1 for the batch: a constant that is the same for all examples.
absl::StatusOr<Shape> ShapeWithoutBatch(const OnnxFoldNode& op, size_t input) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const given, op.Input(input));
  if (!given->whole || given->dims.size() != 1) return Bad("its shape is not a list of whole numbers");
  Shape dims = given->ints;
  for (int64_t& dim : dims) {
    if (given->of_batch && dim == kOnnxUnknown) return Lacks("its shape is computed of the batch's size");
    if (given->of_batch && dim == kOnnxBatch) dim = 1;
  }
  CAIRN_RETURN_IF_ERROR(CountIn(dims).status());
  return dims;
}

absl::StatusOr<OnnxTensor> ConstantOfShape(OnnxFoldNode& op) {
  CAIRN_ASSIGN_OR_RETURN(const Shape dims, ShapeWithoutBatch(op, 0));
  OnnxTensor value;
  value.dims = {1};
  value.floats = {0};
  for (const onnx::AttributeProto& attribute : op.node.attribute()) {
    if (attribute.name() != "value" || !attribute.has_t()) continue;
    CAIRN_RETURN_IF_ERROR(CheckOnnxTensor(attribute.t()));
    value = ReadOnnxTensor(attribute.t());
  }
  op.attributes.Ignore("value");
  if (CountOf(value) != 1) return Bad("its value is not one number");
  return Strided(value, dims, std::vector<int64_t>(dims.size(), 0));
}

absl::StatusOr<OnnxTensor> Expand(OnnxFoldNode& op, const OnnxTensor& x) {
  CAIRN_ASSIGN_OR_RETURN(Shape dims, ShapeWithoutBatch(op, 1));
  Shape own = x.dims;
  while (own.size() < dims.size()) own.insert(own.begin(), 1);
  while (dims.size() < own.size()) dims.insert(dims.begin(), 1);
  std::vector<int64_t> strides = StridesOf(own);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 1) dims[i] = own[i];
    if (own[i] != 1 && own[i] != dims[i]) return Bad("its shape does not fit its input");
    if (own[i] == 1) strides[i] = 0;
  }
  return Strided(x, dims, strides);
}

absl::StatusOr<OnnxTensor> Range(OnnxFoldNode& op) {
  int64_t numbers[3];
  for (size_t i = 0; i < 3; ++i) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> one, op.Ints(i));
    if (one.size() != 1) return Bad("its input ", i, " is not one number");
    numbers[i] = one[0];
    if (one[0] > INT32_MAX || one[0] < INT32_MIN) return Lacks("a range of ", one[0]);
  }
  const auto [start, limit, delta] = numbers;
  if (delta == 0) return Bad("a range in steps of 0");
  OnnxTensor result;
  result.whole = true;
  const int64_t span = delta > 0 ? limit - start : start - limit, pace = delta > 0 ? delta : -delta;
  result.dims = {span <= 0 ? 0 : (span + pace - 1) / pace};
  CAIRN_ASSIGN_OR_RETURN(const int64_t count, CountIn(result.dims));
  for (int64_t i = 0; i < count; ++i) result.ints.push_back(start + i * delta);
  return result;
}

}  // namespace

absl::StatusOr<OnnxTensor> OnnxShapeTensor(const onnx::NodeProto& node, const std::vector<int64_t>& dims) {
  OnnxAttributes attributes(node);
  const int64_t rank = static_cast<int64_t>(dims.size());
  const auto place = [&](int64_t n) { return std::clamp<int64_t>(n < -rank ? 0 : n < 0 ? n + rank : n, 0, rank); };
  const int64_t start = place(attributes.Int("start", 0)), end = place(attributes.Int("end", rank));
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  OnnxTensor shape;
  shape.whole = true;
  if (start < end) shape.ints.assign(dims.begin() + start, dims.begin() + end);
  shape.dims = {static_cast<int64_t>(shape.ints.size())};
  shape.of_batch = std::find(shape.ints.begin(), shape.ints.end(), kOnnxBatch) != shape.ints.end();
  return shape;
}

absl::StatusOr<OnnxTensor> FoldArranging(OnnxFoldNode& op) {
  const std::string& type = op.node.op_type();
  if (type == "ConstantOfShape") return ConstantOfShape(op);
  if (type == "Range") return Range(op);
  using Fold = absl::StatusOr<OnnxTensor> (*)(OnnxFoldNode&, const OnnxTensor&);
  constexpr std::pair<const char*, Fold> kFolds[] = {
      {"Transpose", Transpose}, {"Gather", Gather},       {"Slice", Slice},
      {"Concat", Concat},       {"Unsqueeze", Unsqueeze}, {"Squeeze", Squeeze},
      {"Reshape", Reshape},     {"Flatten", Flatten},     {"Expand", Expand},
  };
  for (const auto& [name, fold] : kFolds) {
    if (type != name) continue;
    CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const x, op.Input(0));
    return fold(op, *x);
  }
  if (type != "Shape" && type != "Size") return absl::NotFoundError(type);
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const x, op.Input(0));
  if (type == "Shape") return OnnxShapeTensor(op.node, x->dims);
  OnnxTensor size;
  size.whole = true;
  size.ints = {CountOf(*x)};
  return size;
}

}  // namespace cairn
