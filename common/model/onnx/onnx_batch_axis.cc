#include "common/model/onnx/onnx_batch_axis.h"

#include <set>
#include <string>

#include "common/model/onnx/onnx_attributes.h"
#include "common/model/onnx/onnx_recurrence.h"

namespace cairn {
namespace {

bool IsNumberByNumber(const std::string& type) {
  static const std::set<std::string> types = {
      "Abs",       "Acos",           "Acosh",    "Add",       "Asin", "Asinh", "Atan",
      "Atanh",     "Cast",           "Ceil",     "Celu",      "Clip", "Cos",   "Cosh",
      "Div",       "Dropout",        "Elu",      "Erf",       "Exp",  "Floor", "Gelu",
      "HardSwish", "HardSigmoid",    "Identity", "LeakyRelu", "Log",  "Max",   "Mean",
      "Min",       "Mish",           "Mul",      "Neg",       "Pow",  "Relu",  "Reciprocal",
      "Round",     "Selu",           "Shrink",   "Sigmoid",   "Sign", "Sin",   "Sinh",
      "Softplus",  "Softsign",       "Sqrt",     "Sub",       "Sum",  "Swish", "Tan",
      "Tanh",      "ThresholdedRelu"};
  return types.contains(type);
}

}  // namespace

int BatchAxisOfInput(const OnnxGraph& graph, const onnx::ValueInfoProto& input) {
  const onnx::TensorShapeProto& shape = input.type().tensor_type().shape();
  const auto users = graph.users.find(input.name());
  if (users != graph.users.end()) {
    for (const onnx::NodeProto* user : users->second) {
      if (user != nullptr && IsRecurrentOperator(user->op_type())) return 1;
    }
  }
  bool recurrent = false, only_second = shape.dim_size() >= 2;
  for (const onnx::NodeProto* node : graph.nodes) recurrent = recurrent || IsRecurrentOperator(node->op_type());
  for (int i = 0; i < shape.dim_size(); ++i) only_second = only_second && shape.dim(i).has_dim_value() == (i != 1);
  return recurrent && only_second ? 1 : 0;
}

int OnnxBatchAxis(const onnx::NodeProto& node, absl::Span<const OnnxOperand> operands) {
  const OnnxView* first = nullptr;
  for (const OnnxOperand& operand : operands) {
    if (operand.view == nullptr) continue;
    if (first == nullptr) first = operand.view;
    if (operand.view->batch != first->batch || operand.view->dims.size() != first->dims.size()) return 0;
  }
  if (first == nullptr || first->batch == 0) return 0;
  const int rank = static_cast<int>(first->dims.size()) + 1, batch = first->batch;
  const std::string& type = node.op_type();
  if (IsNumberByNumber(type)) {
    for (const OnnxOperand& operand : operands) {
      const bool behind = static_cast<int>(operand.dims.size()) < rank - batch;  // its axes are the value's last ones
      if (operand.view == nullptr && !behind) return 0;
    }
    return batch;
  }
  if (type == "MatMul") {
    const bool weight = operands.size() == 2 && operands[0].view != nullptr && operands[1].dims.size() == 2;
    return weight && batch < rank - 1 ? batch : 0;
  }
  if (type == "Gather") return operands.size() == 2 && operands[0].dims.size() == 2 ? batch : 0;  // an embedding of ids
  if (type == "LayerNormalization") {
    const int64_t axis = OnnxAttributes(node).Int("axis", -1);
    return (axis < 0 ? axis + rank : axis) > batch ? batch : 0;
  }
  return 0;
}

}  // namespace cairn
