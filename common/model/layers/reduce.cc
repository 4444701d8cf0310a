// Reduce: sums, means, maxima and the like over axes of each example.
#include <algorithm>
#include <vector>

#include "common/model/keras/keras_operations.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_operations.h"

namespace cairn::layers {
namespace {

using R = v1::Reduce;

absl::Status InferReduce(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  R* reduce = node->layer.mutable_reduce();
  const Shape& input = inputs[0];
  const int rank = static_cast<int>(input.size());
  if (reduce->kind() == R::KIND_UNSPECIFIED || !R::Kind_IsValid(reduce->kind())) {
    return Bad("kind ", static_cast<int>(reduce->kind()), " is missing or not known; use MEAN, SUM or MAX, say");
  }
  std::vector<int32_t> axes;
  for (const int32_t given : reduce->axis()) {
    const int32_t axis = given < 0 ? given + rank + 1 : given;
    if (axis < 1 || axis > rank) {
      return Bad("axis: its input ", ToString(input), " has no axis ", given, "; use 1 .. ", rank);
    }
    if (std::count(axes.begin(), axes.end(), axis) > 0) return Bad("axis names ", axis, " twice; name it once");
    axes.push_back(axis);
  }
  for (int axis = 1; reduce->axis().empty() && axis <= rank; ++axis) axes.push_back(axis);
  if ((reduce->kind() == R::ARGMAX || reduce->kind() == R::ARGMIN) && axes.size() > 1) {
    return Bad("axis: kind ", R::Kind_Name(reduce->kind()), " is along one axis; give one number");
  }
  if (reduce->kind() == R::COUNT_NONZERO && reduce->keepdims()) {
    return Bad("keepdims is not for kind COUNT_NONZERO, as in Keras; put a reshape after it");
  }
  std::sort(axes.begin(), axes.end());
  reduce->mutable_axis()->Assign(axes.begin(), axes.end());
  node->output.clear();
  for (int axis = 1; axis <= rank; ++axis) {
    const bool reduced = std::count(axes.begin(), axes.end(), axis) > 0;
    if (reduced && reduce->keepdims()) node->output.push_back(1);
    if (!reduced) node->output.push_back(input[static_cast<size_t>(axis) - 1]);
  }
  if (node->output.empty()) node->output = {1};
  return absl::OkStatus();
}

void WriteKeras(const Node& node, KerasWriter& c) {
  const R& reduce = node.layer.reduce();
  c.Clear();  // without a name: see operation.cc
  if (reduce.kind() == R::L1_NORM && reduce.axis_size() > 1) {
    c.Refuse(
        "Keras' norm of order 1 over several axes is another one, that of matrices; use ABSOLUTE and SUM, or "
        "export safetensors");
  }
  if (reduce.axis_size() == 1) {
    c["axis"] = reduce.axis(0);
  } else {
    c.Ints("axis", reduce.axis());
  }
  if (reduce.kind() != R::COUNT_NONZERO) c["keepdims"] = reduce.keepdims();
  if (reduce.kind() == R::L2_NORM) c["ord"] = nullptr;
  if (reduce.kind() == R::L1_NORM) c["ord"] = 1;
}

constexpr OnnxOperator kOnnx[] = {{"ReduceSum", ImportOnnxReduce},       {"ReduceMin", ImportOnnxReduce},
                                  {"ReduceL2", ImportOnnxReduce},        {"ReduceProd", ImportOnnxReduce},
                                  {"ReduceLogSumExp", ImportOnnxReduce}, {"ArgMax", ImportOnnxReduce},
                                  {"ArgMin", ImportOnnxReduce},          {"ReduceL1", ImportOnnxReduce}};

}  // namespace

constinit const LayerType kReduceLayer = {
    .kind = LayerKind::kReduce,
    .field = v1::Layer::kReduce,
    .name = "reduce",
    .infer = InferReduce,
    .keras = {},
    .keras_class = [](const Node& node) { return KerasReductionOf(node.layer.reduce().kind())->name; },
    .write_keras = WriteKeras,
    .write_onnx = WriteOnnxReduce,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
