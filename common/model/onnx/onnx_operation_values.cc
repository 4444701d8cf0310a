#include "common/model/onnx/onnx_operation_values.h"

#include <limits>

#include "common/base/check.h"
#include "common/base/lacks.h"

namespace cairn {
namespace {

using O = v1::Operation;

struct NamedKind {
  O::Kind kind;
  const char* op;
};
constexpr NamedKind kKinds[] = {
    {O::ADD, "Add"},
    {O::SUBTRACT, "Sub"},
    {O::MULTIPLY, "Mul"},
    {O::DIVIDE, "Div"},
    {O::POWER, "Pow"},
    {O::MAXIMUM, "Max"},
    {O::MINIMUM, "Min"},
    {O::MATMUL, "MatMul"},
    {O::NEGATIVE, "Neg"},
    {O::ABSOLUTE, "Abs"},
    {O::SQRT, "Sqrt"},
    {O::EXP, "Exp"},
    {O::LOG, "Log"},
    {O::SIN, "Sin"},
    {O::COS, "Cos"},
    {O::TANH, "Tanh"},
    {O::SIGMOID, "Sigmoid"},
    {O::SIGN, "Sign"},
    {O::FLOOR, "Floor"},
    {O::ROUND, "Round"},
    {O::CAST, "Identity"},
    {O::STOP_GRADIENT, "Identity"},
    {O::RECIPROCAL, "Reciprocal"},
    {O::TAN, "Tan"},
    {O::ARCSIN, "Asin"},
    {O::ARCCOS, "Acos"},
    {O::ARCTAN, "Atan"},
    {O::SINH, "Sinh"},
    {O::COSH, "Cosh"},
    {O::ARCSINH, "Asinh"},
    {O::ARCCOSH, "Acosh"},
    {O::ARCTANH, "Atanh"},
    {O::ERF, "Erf"},
    {O::CEIL, "Ceil"},
    {O::IS_NAN, "IsNaN"},
    {O::IS_INF, "IsInf"},
};

std::string Compared(OnnxWriter& w, O::Kind kind, const OnnxWriter::Names& x) {
  switch (kind) {
    case O::EQUAL: return w.Op("Equal", x);
    case O::NOT_EQUAL: return w.Op("Not", {w.Op("Equal", x)});
    case O::GREATER: return w.Op("Greater", x);
    case O::GREATER_EQUAL: return w.Op("GreaterOrEqual", x);
    case O::LESS: return w.Op("Less", x);
    default: return w.Op("LessOrEqual", x);
  }
}

std::string AlongAxis(const O& operation, OnnxWriter& w, const std::string& x) {
  const int64_t axis = operation.axis(0);
  if (operation.kind() == O::CUMSUM) return w.Op("CumSum", {x, w.Whole("axis", {axis})});
  if (operation.kind() == O::SOFTMAX) {
    const std::string y = w.Op("Softmax", {x});
    w.Int("axis", axis);
    return y;
  }
  const std::string length = w.Op("ReduceL2", {x});
  w.Ints("axes", {axis});
  w.Int("keepdims", 1);
  return w.Op("Div", {x, w.Op("Max", {length, w.Scalar("shortest", 1e-6f)})});
}

// Whether each number is true: not 0.
std::string IsTrue(OnnxWriter& w, const std::string& x) {
  return w.Op("Not", {w.Op("Equal", {x, w.Scalar("zero", 0)})});
}

// The kinds that ask what a number is.
std::string AnswerOf(OnnxWriter& w, O::Kind kind, const std::string& x) {
  switch (kind) {
    case O::IS_NAN: return w.Op("IsNaN", {x});
    case O::IS_INF: return w.Op("IsInf", {x});
    case O::IS_FINITE: return w.Op("Not", {w.Op("Or", {w.Op("IsNaN", {x}), w.Op("IsInf", {x})})});
    default: return w.Op("Equal", {x, w.Scalar("zero", 0)});
  }
}

std::string Remainder(OnnxWriter& w, const OnnxWriter::Names& x) {
  return w.Op("Sub", {x[0], w.Op("Mul", {x[1], w.Op("Floor", {w.Op("Div", x)})})});
}

// Infinity is what is beyond the largest number.
std::string Replaced(OnnxWriter& w, const O& operation, const std::string& x) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const auto where = [&](const std::string& is, float number, const std::string& value) {
    return w.Op("Where", {is, w.Scalar("number", number), value});
  };
  std::string y = where(w.Op("IsNaN", {x}), operation.nan(), x);
  y = where(w.Op("Greater", {x, w.Scalar("largest", kLargest)}), operation.high(), y);
  return where(w.Op("Less", {x, w.Scalar("least", -kLargest)}), operation.low(), y);
}

// The kinds that are several operators of ONNX; "": another kind.
std::string Further(const O& operation, OnnxWriter& w, const OnnxWriter::Names& x) {
  switch (operation.kind()) {
    case O::LOG2: return w.Op("Mul", {w.Op("Log", {x[0]}), w.Scalar("factor", 1.44269504f)});
    case O::LOG10: return w.Op("Mul", {w.Op("Log", {x[0]}), w.Scalar("factor", 0.434294482f)});
    case O::TRUNC: return w.Op("Mul", {w.Op("Sign", {x[0]}), w.Op("Floor", {w.Op("Abs", {x[0]})})});
    case O::LOGICAL_NOT:
    case O::IS_NAN:
    case O::IS_INF:
    case O::IS_FINITE: return OnnxAsFloat(w, AnswerOf(w, operation.kind(), x[0]));
    case O::LOGICAL_AND: return OnnxAsFloat(w, w.Op("And", {IsTrue(w, x[0]), IsTrue(w, x[1])}));
    case O::LOGICAL_OR: return OnnxAsFloat(w, w.Op("Or", {IsTrue(w, x[0]), IsTrue(w, x[1])}));
    case O::LOGICAL_XOR: return OnnxAsFloat(w, w.Op("Xor", {IsTrue(w, x[0]), IsTrue(w, x[1])}));
    case O::FLOOR_DIVIDE: return w.Op("Floor", {w.Op("Div", x)});
    case O::MOD: return Remainder(w, x);
    case O::NAN_TO_NUM: return Replaced(w, operation, x[0]);
    case O::FULL_LIKE: return w.Op("Expand", {x[1], w.Op("Shape", {x[0]})});
    case O::SQUARED_DIFFERENCE: {
      const std::string difference = w.Op("Sub", x);
      return w.Op("Mul", {difference, difference});
    }
    default: return "";
  }
}

}  // namespace

std::string OnnxAsFloat(OnnxWriter& w, const std::string& value) {
  const std::string y = w.Op("Cast", {value});
  w.Int("to", onnx::TensorProto::FLOAT);
  return y;
}

O::Kind OnnxKindOf(const std::string& op) {
  O::Kind kind = O::KIND_UNSPECIFIED;
  for (const NamedKind& known : kKinds) {
    if (op == known.op) kind = known.kind;
  }
  return kind;
}

absl::Status CheckOperationOnnx(const Node& node) {
  if (node.kind == LayerKind::kGroupQueryAttention || node.kind == LayerKind::kSpectralNormalization) {
    return Lacks("it is not written as ONNX; write safetensors or Keras' format");
  }
  if (node.activation == v1::SPARSEMAX) {
    return Lacks("ONNX has no operator for SPARSEMAX; write safetensors or Keras' format");
  }
  const O::Kind kind = node.layer.operation().kind();
  if (node.kind != LayerKind::kOperation || (kind != O::ARCTAN2 && kind != O::CUMPROD)) return absl::OkStatus();
  return Lacks("ONNX has no operator for ", O::Kind_Name(kind), "; write safetensors or Keras' format");
}

std::string OnnxValueOf(const O& operation, OnnxWriter& w, const OnnxWriter::Names& x) {
  switch (operation.kind()) {
    case O::SQUARE: return w.Op("Mul", {x[0], x[0]});
    case O::RSQRT: return w.Op("Reciprocal", {w.Op("Sqrt", {x[0]})});
    case O::LOG1P: return w.Op("Log", {w.Op("Add", {x[0], w.Scalar("one", 1)})});
    case O::EXPM1: return w.Op("Sub", {w.Op("Exp", {x[0]}), w.Scalar("one", 1)});
    case O::CLIP: {
      OnnxWriter::Names inputs = {x[0], operation.has_low() ? w.Scalar("low", operation.low()) : ""};
      if (operation.has_high()) inputs.push_back(w.Scalar("high", operation.high()));
      return w.Op("Clip", inputs);
    }
    case O::WHERE: return w.Op("Where", {IsTrue(w, x[0]), x[1], x[2]});
    case O::SOFTMAX:
    case O::L2_NORMALIZE:
    case O::CUMSUM: return AlongAxis(operation, w, x[0]);
    case O::EQUAL:
    case O::NOT_EQUAL:
    case O::GREATER:
    case O::GREATER_EQUAL:
    case O::LESS:
    case O::LESS_EQUAL: return OnnxAsFloat(w, Compared(w, operation.kind(), x));
    default: break;
  }
  if (const std::string y = Further(operation, w, x); !y.empty()) return y;
  for (const NamedKind& known : kKinds) {
    if (known.kind == operation.kind()) return w.Op(known.op, x);
  }
  CAIRN_CHECK(false, "CheckOperationOnnx has refused it");
}

}  // namespace cairn
