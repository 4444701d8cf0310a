#include "common/model/onnx/onnx_operations.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_operation_values.h"
#include "common/model/operation_operands.h"
#include "common/model/slice_range.h"

namespace cairn {
namespace {

using O = v1::Operation;
using R = v1::Reduce;

struct NamedReduction {
  R::Kind kind;
  const char* op;
};
constexpr NamedReduction kReductions[] = {
    {R::MEAN, "ReduceMean"}, {R::SUM, "ReduceSum"},    {R::MAX, "ReduceMax"},    {R::MIN, "ReduceMin"},
    {R::PROD, "ReduceProd"}, {R::L2_NORM, "ReduceL2"}, {R::L1_NORM, "ReduceL1"}, {R::LOGSUMEXP, "ReduceLogSumExp"},
};

// The shape of a constant without the batch axis. Errors: it differs from example to example.
absl::StatusOr<Shape> ConstantShape(const OnnxTensor& constant, size_t rank) {
  Shape shape(constant.dims.begin(), constant.dims.end());
  if (shape.size() == rank + 1 && shape[0] == 1) shape.erase(shape.begin());
  if (shape.size() > rank) return Lacks("a constant ", ToString(shape), " with more axes than its other input");
  return shape;
}

}  // namespace

void WriteOnnxOperation(const Node& node, OnnxWriter& w) {
  const O& operation = node.layer.operation();
  OnnxWriter::Names x;
  for (const OperationOperand& operand : OperandsOf(operation, node.inputs.size())) {
    const bool constant = operand.input < 0;
    x.push_back(constant ? w.Numbers("constant", operand.shape, {operand.numbers.begin(), operand.numbers.end()})
                         : w.In(node, static_cast<size_t>(operand.input), Channels::kLast));
  }
  w.SetOutput(node, OnnxValueOf(operation, w, x), Channels::kLast);
}

void WriteOnnxReduce(const Node& node, OnnxWriter& w) {
  const R& reduce = node.layer.reduce();
  const std::vector<int64_t> axes(reduce.axis().begin(), reduce.axis().end());
  const std::string x = w.In(node, 0, Channels::kLast);
  const auto over = [&](const char* op, const std::string& value, bool keep) {
    const bool sum = op == std::string("ReduceSum");  // its axes are an input since opset 13
    const std::string y = sum ? w.Op(op, {value, w.Whole("axes", axes)}) : w.Op(op, {value});
    if (!sum) w.Ints("axes", axes);
    w.Int("keepdims", keep);
    return y;
  };
  std::string y;
  if (reduce.kind() == R::ARGMAX || reduce.kind() == R::ARGMIN) {
    y = w.Op(reduce.kind() == R::ARGMAX ? "ArgMax" : "ArgMin", {x});
    w.Int("axis", axes[0]);
    w.Int("keepdims", reduce.keepdims());
    y = OnnxAsFloat(w, y);
  } else if (reduce.kind() == R::ANY || reduce.kind() == R::ALL || reduce.kind() == R::COUNT_NONZERO) {
    const std::string zero = OnnxAsFloat(w, w.Op("Equal", {x, w.Scalar("zero", 0)}));
    const std::string one = w.Op("Sub", {w.Scalar("one", 1), zero});
    y = reduce.kind() == R::COUNT_NONZERO
            ? over("ReduceSum", one, reduce.keepdims())
            : over(reduce.kind() == R::ANY ? "ReduceMax" : "ReduceMin", one, reduce.keepdims());
  } else if (reduce.kind() == R::VARIANCE || reduce.kind() == R::STDDEV) {
    const std::string distance = w.Op("Sub", {x, over("ReduceMean", x, true)});
    y = over("ReduceMean", w.Op("Mul", {distance, distance}), reduce.keepdims());
    if (reduce.kind() == R::STDDEV) y = w.Op("Sqrt", {y});
  } else {
    for (const NamedReduction& known : kReductions) {
      if (known.kind == reduce.kind()) y = over(known.op, x, reduce.keepdims());
    }
  }
  const bool all = !reduce.keepdims() && axes.size() == w.ShapeOf(node, 0).size();
  w.SetOutput(node, all ? w.Reshape(y, {1}) : y, Channels::kLast);
}

void WriteOnnxSlice(const Node& node, OnnxWriter& w) {
  std::vector<int64_t> begins, ends, steps, axes, dropped;
  int64_t axis = 0;
  for (const v1::Slice::Axis& one : node.layer.slice().axes()) {
    const SliceRange range = RangeOf(one, w.ShapeOf(node, 0)[static_cast<size_t>(axis)]);
    axes.push_back(++axis);
    begins.push_back(range.begin);
    const int64_t end = range.begin + range.step * range.count;
    ends.push_back(end < 0 ? INT64_MIN + 1 : end);  // a small negative end would count from the end
    steps.push_back(range.step);
    if (one.drop()) dropped.push_back(axis);
  }
  std::string y = w.Op("Slice", {w.In(node, 0, Channels::kLast), w.Whole("starts", begins), w.Whole("ends", ends),
                                 w.Whole("axes", axes), w.Whole("steps", steps)});
  if (!dropped.empty()) y = w.Reshape(y, node.output);
  w.SetOutput(node, y, Channels::kLast);
}

absl::Status ImportOnnxBinary(OnnxImporter& importer, O::Kind kind) {
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(importer.node()).Finish());
  if (importer.node().input_size() != 2) return Lacks("with ", importer.node().input_size(), " inputs; 2 are read");
  v1::Layer layer;
  O* operation = layer.mutable_operation();
  operation->set_kind(kind);
  std::vector<int> inputs;
  std::vector<int> order;
  for (int i = 0; i < 2; ++i) {
    if (importer.IsConstant(i)) continue;
    CAIRN_ASSIGN_OR_RETURN(const OnnxView view, importer.ViewOf(i));
    if (order.empty()) order = SameOrder(view.dims.size());
    if (order.size() != view.dims.size()) return Lacks("its inputs differ in the number of their axes");
    CAIRN_ASSIGN_OR_RETURN(const int input, importer.layers().PlaceInOrder(view, order));
    inputs.push_back(input);
  }
  for (int i = 0; i < 2; ++i) {
    if (!importer.IsConstant(i)) continue;
    CAIRN_ASSIGN_OR_RETURN(OnnxTensor constant, importer.ConstantOf(i, "constant"));
    if (constant.whole) constant.floats.assign(constant.ints.begin(), constant.ints.end());
    CAIRN_ASSIGN_OR_RETURN(const Shape shape, ConstantShape(constant, order.size()));
    operation->mutable_constant()->Assign(constant.floats.begin(), constant.floats.end());
    operation->mutable_constant_shape()->Assign(shape.begin(), shape.end());
    operation->set_constant_first(i == 0);
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kOperation, layer, inputs));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

// Where(condition, x, y), where x, y or both may be constants.
absl::Status ImportOnnxWhere(OnnxImporter& importer) {
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(importer.node()).Finish());
  std::vector<int> inputs;
  size_t rank = 0;
  for (int i = 0; i < 3; ++i) {
    if (i > 0 && importer.HasInput(i) && importer.IsConstant(i)) continue;
    CAIRN_ASSIGN_OR_RETURN(const OnnxView view, importer.ViewOf(i));
    rank = std::max(rank, view.dims.size());
    CAIRN_ASSIGN_OR_RETURN(const int input, importer.layers().PlaceInOrder(view, SameOrder(view.dims.size())));
    inputs.push_back(input);
  }
  v1::Layer layer;
  O* const operation = layer.mutable_operation();
  operation->set_kind(O::WHERE);
  for (int i = 1; i < 3; ++i) {
    if (!importer.IsConstant(i)) continue;
    CAIRN_ASSIGN_OR_RETURN(OnnxTensor constant, importer.ConstantOf(i, "constant"));
    if (constant.whole) constant.floats.assign(constant.ints.begin(), constant.ints.end());
    CAIRN_ASSIGN_OR_RETURN(const Shape shape, ConstantShape(constant, rank));
    const bool other = i == 2 && operation->constant_first();
    auto* const numbers = other ? operation->mutable_other_constant() : operation->mutable_constant();
    auto* const sides = other ? operation->mutable_other_shape() : operation->mutable_constant_shape();
    numbers->Assign(constant.floats.begin(), constant.floats.end());
    sides->Assign(shape.begin(), shape.end());
    if (i == 1) operation->set_constant_first(true);
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kOperation, layer, inputs));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

absl::Status ImportOnnxOperation(OnnxImporter& importer) {
  const std::string& type = importer.node().op_type();
  static const std::map<std::string, O::Kind> binary = {
      {"Pow", O::POWER},
      {"Equal", O::EQUAL},
      {"Greater", O::GREATER},
      {"Less", O::LESS},
      {"GreaterOrEqual", O::GREATER_EQUAL},
      {"LessOrEqual", O::LESS_EQUAL},
      {"And", O::LOGICAL_AND},
      {"Or", O::LOGICAL_OR},
      {"Xor", O::LOGICAL_XOR},
  };
  if (const auto found = binary.find(type); found != binary.end()) return ImportOnnxBinary(importer, found->second);
  if (type == "Where") return ImportOnnxWhere(importer);
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  v1::Layer layer;
  if (type == "CumSum") {
    attributes.Only("exclusive", 0, "leave it out");
    attributes.Only("reverse", 0, "leave it out");
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> axis, importer.IntsOf(1, "axis"));
    if (axis.size() != 1) return Bad("its axis has ", axis.size(), " numbers");
    CAIRN_ASSIGN_OR_RETURN(const int at, x.AxisOf(axis[0]));
    layer.mutable_operation()->set_kind(O::CUMSUM);
    layer.mutable_operation()->add_axis(at + 1);
  }
  if (type == "Not") {  // inputs are 1 or 0
    layer.mutable_operation()->set_kind(O::EQUAL);
    layer.mutable_operation()->add_constant(0);
  }
  if (const O::Kind kind = OnnxKindOf(type); kind != O::KIND_UNSPECIFIED) layer.mutable_operation()->set_kind(kind);
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, SameOrder(x.dims.size())));
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kOperation, layer, {from}));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

absl::Status ImportOnnxReduce(OnnxImporter& importer) {
  const std::string& type = importer.node().op_type();
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.LaidViewOf(0));
  OnnxAttributes attributes(importer.node());
  v1::Layer layer;
  R* reduce = layer.mutable_reduce();
  reduce->set_keepdims(attributes.Int("keepdims", 1) != 0);
  std::vector<int64_t> axes;
  if (type == "ArgMax" || type == "ArgMin") {
    reduce->set_kind(type == "ArgMax" ? R::ARGMAX : R::ARGMIN);
    attributes.Only("select_last_index", 0, "leave it out");
    axes = {attributes.Int("axis", 0)};
  } else {
    attributes.Only("noop_with_empty_axes", 0, "give axes");
    axes = attributes.Ints("axes");
    if (importer.HasInput(1)) {
      CAIRN_ASSIGN_OR_RETURN(axes, importer.IntsOf(1, "axes"));
    }
    if (axes.empty()) return Lacks("over all axes, the batch too; give axes");
  }
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  int before = 0;  // axes before the batch
  for (const int64_t axis : axes) {
    CAIRN_ASSIGN_OR_RETURN(const int at, x.AxisOf(axis));
    reduce->add_axis(at + 1);
    before += at < x.batch;
  }
  for (const NamedReduction& known : kReductions) {
    if (type == known.op) reduce->set_kind(known.kind);
  }
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, SameOrder(x.dims.size())));
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kReduce, layer, {from}));
  const int batch = reduce->keepdims() ? x.batch : x.batch - before;
  importer.SetLaidView(OnnxView::Of(id, importer.layers().ShapeOf(id)).WithBatchAt(batch));
  return absl::OkStatus();
}

absl::StatusOr<v1::Slice> OnnxSliceOf(OnnxImporter& importer, const OnnxView& x) {
  OnnxAttributes attributes(importer.node());
  std::vector<int64_t> numbers[] = {attributes.Ints("starts"), attributes.Ints("ends"), attributes.Ints("axes"), {}};
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  for (int i = 0; i < 4; ++i) {
    if (!importer.HasInput(i + 1)) continue;
    CAIRN_ASSIGN_OR_RETURN(numbers[i], importer.IntsOf(i + 1, "starts, ends, axes or steps"));
  }
  auto& [begins, ends, axes, steps] = numbers;
  if (axes.empty()) {
    for (size_t i = 0; i < begins.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  if (steps.empty()) steps.assign(begins.size(), 1);
  if (ends.size() != begins.size() || axes.size() != begins.size() || steps.size() != begins.size()) {
    return Bad("its starts, ends, axes and steps differ in their number");
  }
  const auto bounded = [](int64_t n) { return static_cast<int32_t>(std::clamp<int64_t>(n, -INT32_MAX, INT32_MAX)); };
  v1::Slice slice;
  for (size_t i = 0; i < x.dims.size(); ++i) slice.add_axes();
  for (size_t i = 0; i < begins.size(); ++i) {
    const bool whole = begins[i] == 0 && ends[i] >= INT32_MAX && steps[i] == 1;
    if (axes[i] == x.batch && whole) continue;  // keeps all examples
    if (steps[i] == 0) return Bad("it goes in steps of 0");
    CAIRN_ASSIGN_OR_RETURN(const int at, x.AxisOf(axes[i]));
    v1::Slice::Axis* axis = slice.mutable_axes(at);
    axis->set_begin(bounded(begins[i]));
    axis->set_end(bounded(ends[i]));
    axis->set_step(bounded(steps[i]));
  }
  return slice;
}

absl::Status ImportOnnxSlice(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.LaidViewOf(0));
  v1::Layer layer;
  CAIRN_ASSIGN_OR_RETURN(*layer.mutable_slice(), OnnxSliceOf(importer, x));
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, SameOrder(x.dims.size())));
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kSlice, layer, {from}));
  importer.SetLaidView(OnnxView::Of(id, importer.layers().ShapeOf(id)).WithBatchAt(x.batch));
  return absl::OkStatus();
}

}  // namespace cairn
