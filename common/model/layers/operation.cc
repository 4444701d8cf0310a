// Operation: what a Functional model records for x + y, x * 2, -x, exp(x): an elementwise function of one tensor, of
// two, or of one and a constant, or a choice between two; also matrix products, softmax, norms and cumulative sums
// along one axis.
#include <cmath>
#include <limits>

#include "common/model/keras/keras_operations.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/broadcasting.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_operations.h"
#include "common/model/operation_operands.h"

namespace cairn::layers {
namespace {

using O = v1::Operation;

bool AlongAxis(O::Kind kind) {
  return kind == O::SOFTMAX || kind == O::L2_NORMALIZE || kind == O::CUMSUM || kind == O::CUMPROD;
}

bool OfTwo(O::Kind kind) {
  return (kind >= O::ADD && kind <= O::SQUARED_DIFFERENCE) || (kind >= O::EQUAL && kind <= O::LESS_EQUAL) ||
         (kind >= O::LOGICAL_AND && kind <= O::LOGICAL_XOR) || kind == O::FULL_LIKE;
}

// name: of the field with the numbers; sides: of the one with their shape.
template <typename Numbers, typename Sides>
absl::Status CheckNumbers(const char* name, const Numbers& numbers, const char* shape_name, const Sides& sides) {
  int64_t count = 1;
  for (const int32_t dim : sides) {
    if (dim < 1) return Bad(shape_name, " has a side ", dim, ", which is not positive");
    count = SaturatingMultiply(count, dim);
  }
  if (numbers.empty() && !sides.empty()) {
    return Bad(shape_name, " is given without ", name == std::string("constant") ? "a constant" : name,
               "; give its numbers");
  }
  if (!numbers.empty() && count != numbers.size()) {
    return Bad(name, " has ", numbers.size(), " numbers, ", shape_name, " holds ", count,
               "; make them equal, or give one number and no shape");
  }
  for (const float number : numbers) {
    if (!std::isfinite(number)) return Bad(name, " ", number, " is not finite; use a number");
  }
  return absl::OkStatus();
}

absl::Status CheckConstants(const O& operation) {
  CAIRN_RETURN_IF_ERROR(CheckNumbers("constant", operation.constant(), "constant_shape", operation.constant_shape()));
  if (operation.constant().empty() && operation.constant_first()) {
    return Bad("constant_first is given without a constant; leave it out");
  }
  CAIRN_RETURN_IF_ERROR(
      CheckNumbers("other_constant", operation.other_constant(), "other_shape", operation.other_shape()));
  if (operation.kind() != O::WHERE || operation.other_constant().empty()) {
    if (operation.other_constant().empty()) return absl::OkStatus();
    return Bad("other_constant is only for kind WHERE; leave it out");
  }
  if (operation.constant().empty() || !operation.constant_first()) {
    return Bad(
        "other_constant is the third operand where constant is the second; set constant_first too, or give the "
        "third one as constant alone");
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const O& operation) {
  const bool replaces = operation.kind() == O::NAN_TO_NUM;
  if (operation.has_nan() && !replaces) return Bad("nan is only for kind NAN_TO_NUM; leave it out");
  const bool clips = operation.has_low() || operation.has_high();
  if (operation.kind() == O::CLIP ? !clips : clips && !replaces) {
    return Bad(operation.kind() == O::CLIP ? "kind CLIP needs low, high or both"
                                           : "low and high are only for kinds CLIP and NAN_TO_NUM");
  }
  if (!std::isfinite(operation.low()) || !std::isfinite(operation.high()) || !std::isfinite(operation.nan())) {
    return Bad("low, high or nan is not finite; leave out the one that does not count");
  }
  if (!replaces && operation.has_low() && operation.has_high() && operation.low() > operation.high()) {
    return Bad("low ", operation.low(), " is above high ", operation.high());
  }
  return absl::OkStatus();
}

absl::Status CheckFields(const O& operation, size_t inputs) {
  const O::Kind kind = operation.kind();
  if (kind == O::KIND_UNSPECIFIED || !O::Kind_IsValid(kind)) {
    return Bad("kind ", static_cast<int>(kind), " is missing or not known; use ADD, MULTIPLY or EXP, say");
  }
  CAIRN_RETURN_IF_ERROR(CheckConstants(operation));
  const size_t needed = kind == O::WHERE ? 3 : OfTwo(kind) ? 2 : 1;
  const size_t constants = (operation.constant().empty() ? 0 : 1) + (operation.other_constant().empty() ? 0 : 1);
  if (constants > 0 && (needed == 1 || kind == O::MATMUL)) {
    return Bad("kind ", O::Kind_Name(kind), " takes no constant; leave it out");
  }
  if (kind == O::FULL_LIKE && (operation.constant_size() != 1 || inputs != 1 || operation.constant_first() ||
                               !operation.constant_shape().empty())) {
    return Bad("kind FULL_LIKE takes one input, and one number as constant; give these alone");
  }
  if (inputs + constants != needed) {
    return Bad("kind ", O::Kind_Name(kind), " is of ", needed, " operands, but it has ", inputs, " inputs and ",
               constants == 0   ? "no"
               : constants == 1 ? "a"
                                : "a second",
               " constant");
  }
  CAIRN_RETURN_IF_ERROR(CheckRange(operation));
  if (!operation.axis().empty() && !AlongAxis(kind)) {
    return Bad("axis is only for kinds SOFTMAX, L2_NORMALIZE, CUMSUM and CUMPROD; leave it out");
  }
  return absl::OkStatus();
}

// Keras' defaults.
void ResolveReplacements(O* operation) {
  if (!operation->has_nan()) operation->set_nan(0);
  if (!operation->has_low()) operation->set_low(std::numeric_limits<float>::lowest());
  if (!operation->has_high()) operation->set_high(std::numeric_limits<float>::max());
}

absl::Status ResolveAxis(const Shape& input, O* operation) {
  const int rank = static_cast<int>(input.size());
  if (operation->axis().empty()) operation->add_axis(-1);
  if (operation->axis_size() != 1) return Bad("axis has ", operation->axis_size(), " numbers; give one");
  const int32_t given = operation->axis(0), axis = given < 0 ? given + rank + 1 : given;
  if (axis < 1 || axis > rank) return Bad("axis: its input ", ToString(input), " has no axis ", given);
  operation->set_axis(0, axis);
  return absl::OkStatus();
}

absl::Status InferProduct(absl::Span<const Shape> inputs, Node* node) {
  const Shape &a = inputs[0], &b = inputs[1];
  bool fit = a.size() == b.size() && a.size() >= 2 && a.back() == b[b.size() - 2];
  for (size_t i = 0; fit && i + 2 < a.size(); ++i) fit = a[i] == b[i];
  if (!fit) {
    return Bad("its inputs ", ToString(a), " and ", ToString(b),
               " are not matrices [.., m, k] and [.., k, n] with equal other axes");
  }
  node->output.back() = b.back();
  return absl::OkStatus();
}

absl::Status InferOperation(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  O* operation = node->layer.mutable_operation();
  CAIRN_RETURN_IF_ERROR(CheckFields(*operation, inputs.size()));
  if (AlongAxis(operation->kind())) return ResolveAxis(inputs[0], operation);
  if (operation->kind() == O::MATMUL) return InferProduct(inputs, node);
  for (const Shape& input : inputs) {
    if (input.size() == inputs[0].size()) continue;
    return Bad("its inputs ", ToString(inputs[0]), " and ", ToString(input),
               " differ in the number of their axes; reshape one of them");
  }
  std::vector<Shape> operands(inputs.begin(), inputs.end());
  for (const OperationOperand& operand : OperandsOf(*operation, inputs.size())) {
    if (operand.input >= 0) continue;
    operands.push_back(operand.shape);
    if (operands.back().size() > inputs[0].size()) {
      return Bad("constant_shape ", ToString(operands.back()), " has more axes than its input ", ToString(inputs[0]),
                 "; give it without the batch");
    }
  }
  if (operation->kind() == O::NAN_TO_NUM) ResolveReplacements(operation);
  CAIRN_ASSIGN_OR_RETURN(node->output, BroadcastShape(operands));
  return absl::OkStatus();
}

const char* KerasClassOfOperation(const Node& node) { return KerasOperationOf(node.layer.operation().kind())->name; }

void WriteKeras(const Node& node, KerasWriter& c) {
  const O& operation = node.layer.operation();
  c.Clear();
  if (operation.kind() == O::SQUARED_DIFFERENCE) {
    c.Refuse("Keras 3 has no SQUARED_DIFFERENCE; use SUBTRACT and SQUARE, or export safetensors");
  }
  // Before Keras 3.9 operations that have arguments do not accept a name; it is in the entry around the config.
  const bool replaces = operation.kind() == O::NAN_TO_NUM;
  const bool arguments =
      operation.kind() == O::CLIP || operation.kind() == O::CAST || replaces || !operation.axis().empty();
  if (!arguments) c["name"] = node.name;
  if (replaces) {  // null is the largest number of the type
    const auto other_than = [](float number, float largest) {
      return number == largest ? OrderedJson() : OrderedJson(KerasWriter::Rounded(number));
    };
    c["nan"] = KerasWriter::Rounded(operation.nan());
    c["posinf"] = other_than(operation.high(), std::numeric_limits<float>::max());
    c["neginf"] = other_than(operation.low(), std::numeric_limits<float>::lowest());
  }
  if (operation.kind() == O::CLIP) {
    c["x_min"] = operation.has_low() ? OrderedJson(KerasWriter::Rounded(operation.low())) : OrderedJson();
    c["x_max"] = operation.has_high() ? OrderedJson(KerasWriter::Rounded(operation.high())) : OrderedJson();
  }
  if (!operation.axis().empty()) c["axis"] = operation.axis(0);
  if (operation.kind() == O::L2_NORMALIZE) c["order"] = 2;
  if (operation.kind() == O::CAST) c["dtype"] = "float32";
}

constexpr OnnxOperator kOnnx[] = {{"Pow", ImportOnnxOperation},         {"Sqrt", ImportOnnxOperation},
                                  {"Log", ImportOnnxOperation},         {"Neg", ImportOnnxOperation},
                                  {"Abs", ImportOnnxOperation},         {"Reciprocal", ImportOnnxOperation},
                                  {"Sin", ImportOnnxOperation},         {"Cos", ImportOnnxOperation},
                                  {"Floor", ImportOnnxOperation},       {"Round", ImportOnnxOperation},
                                  {"Sign", ImportOnnxOperation},        {"CumSum", ImportOnnxOperation},
                                  {"Equal", ImportOnnxOperation},       {"Greater", ImportOnnxOperation},
                                  {"Less", ImportOnnxOperation},        {"GreaterOrEqual", ImportOnnxOperation},
                                  {"LessOrEqual", ImportOnnxOperation}, {"Not", ImportOnnxOperation},
                                  {"Where", ImportOnnxOperation},       {"And", ImportOnnxOperation},
                                  {"Or", ImportOnnxOperation},          {"Xor", ImportOnnxOperation},
                                  {"Tan", ImportOnnxOperation},         {"Asin", ImportOnnxOperation},
                                  {"Acos", ImportOnnxOperation},        {"Atan", ImportOnnxOperation},
                                  {"Sinh", ImportOnnxOperation},        {"Cosh", ImportOnnxOperation},
                                  {"Asinh", ImportOnnxOperation},       {"Acosh", ImportOnnxOperation},
                                  {"Atanh", ImportOnnxOperation},       {"Erf", ImportOnnxOperation},
                                  {"Ceil", ImportOnnxOperation},        {"IsNaN", ImportOnnxOperation},
                                  {"IsInf", ImportOnnxOperation}};

}  // namespace

constinit const LayerType kOperationLayer = {
    .kind = LayerKind::kOperation,
    .field = v1::Layer::kOperation,
    .name = "operation",
    .inputs_min = 1,
    .inputs_max = 3,
    .infer = InferOperation,
    .keras = {},
    .keras_class = KerasClassOfOperation,
    .write_keras = WriteKeras,
    .write_onnx = WriteOnnxOperation,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
