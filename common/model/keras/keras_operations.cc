#include "common/model/keras/keras_operations.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_split.h"

namespace cairn {
namespace {

using O = v1::Operation;
using R = v1::Reduce;

constexpr char kNumpy[] = "keras.src.ops.numpy", kNn[] = "keras.src.ops.nn", kMath[] = "keras.src.ops.math",
               kCore[] = "keras.src.ops.core", kLinalg[] = "keras.src.ops.linalg";

// If a kind has several, the first is written.
constexpr KerasOperation kOperations[] = {
    {O::ADD, kNumpy, "Add", "math.add __operators__.add nn.bias_add add"},
    {O::SUBTRACT, kNumpy, "Subtract", "math.subtract __operators__.sub subtract"},
    {O::MULTIPLY, kNumpy, "Multiply", "math.multiply __operators__.mul multiply"},
    {O::DIVIDE, kNumpy, "TrueDivide", "math.truediv __operators__.truediv math.divide divide truediv"},
    {O::DIVIDE, kNumpy, "Divide", ""},
    {O::POWER, kNumpy, "Power", "math.pow __operators__.pow pow"},
    {O::MAXIMUM, kNumpy, "Maximum", "math.maximum maximum"},
    {O::MINIMUM, kNumpy, "Minimum", "math.minimum minimum"},
    {O::MATMUL, kNumpy, "Matmul", "linalg.matmul __operators__.matmul matmul"},
    {O::NEGATIVE, kNumpy, "Negative", "math.negative __operators__.neg negative"},
    {O::ABSOLUTE, kNumpy, "Absolute", "math.abs abs __operators__.abs"},
    {O::ABSOLUTE, kNumpy, "Abs", ""},
    {O::ABSOLUTE, kNumpy, "Fabs", ""},
    {O::SQUARE, kNumpy, "Square", "math.square square"},
    {O::SQRT, kNumpy, "Sqrt", "math.sqrt sqrt"},
    {O::RSQRT, kMath, "Rsqrt", "math.rsqrt"},
    {O::EXP, kNumpy, "Exp", "math.exp exp"},
    {O::LOG, kNumpy, "Log", "math.log"},
    {O::LOG1P, kNumpy, "Log1p", "math.log1p"},
    {O::EXPM1, kNumpy, "Expm1", "math.expm1"},
    {O::SIN, kNumpy, "Sin", "math.sin sin"},
    {O::COS, kNumpy, "Cos", "math.cos cos"},
    {O::TANH, kNumpy, "Tanh", "math.tanh tanh nn.tanh"},
    {O::SIGMOID, kNn, "Sigmoid", "math.sigmoid sigmoid nn.sigmoid"},
    {O::RECIPROCAL, kNumpy, "Reciprocal", "math.reciprocal"},
    {O::CLIP, kNumpy, "Clip", "clip_by_value"},
    {O::SIGN, kNumpy, "Sign", "math.sign sign"},
    {O::FLOOR, kNumpy, "Floor", "math.floor floor"},
    {O::ROUND, kNumpy, "Round", "math.round round"},
    {O::CAST, kCore, "Cast", "cast"},
    {O::STOP_GRADIENT, kCore, "StopGradient", "stop_gradient"},
    {O::EQUAL, kNumpy, "Equal", "math.equal equal __operators__.eq"},
    {O::NOT_EQUAL, kNumpy, "NotEqual", "math.not_equal not_equal __operators__.ne"},
    {O::GREATER, kNumpy, "Greater", "math.greater greater __operators__.gt"},
    {O::GREATER_EQUAL, kNumpy, "GreaterEqual", "math.greater_equal greater_equal __operators__.ge"},
    {O::LESS, kNumpy, "Less", "math.less less __operators__.lt"},
    {O::LESS_EQUAL, kNumpy, "LessEqual", "math.less_equal less_equal __operators__.le"},
    {O::WHERE, kNumpy, "Where", "where compat.v1.where"},
    {O::SOFTMAX, kNn, "Softmax", "nn.softmax"},
    {O::L2_NORMALIZE, kNn, "Normalize", "math.l2_normalize linalg.l2_normalize nn.l2_normalize"},
    {O::CUMSUM, kNumpy, "Cumsum", "math.cumsum cumsum"},
    {O::CUMPROD, kNumpy, "Cumprod", "math.cumprod"},
    {O::LOG2, kNumpy, "Log2", ""},
    {O::LOG10, kNumpy, "Log10", ""},
    {O::TAN, kNumpy, "Tan", "math.tan tan"},
    {O::ARCSIN, kNumpy, "Arcsin", "math.asin asin"},
    {O::ARCCOS, kNumpy, "Arccos", "math.acos acos"},
    {O::ARCTAN, kNumpy, "Arctan", "math.atan atan"},
    {O::SINH, kNumpy, "Sinh", "math.sinh sinh"},
    {O::COSH, kNumpy, "Cosh", "math.cosh cosh"},
    {O::ARCSINH, kNumpy, "Arcsinh", "math.asinh asinh"},
    {O::ARCCOSH, kNumpy, "Arccosh", "math.acosh acosh"},
    {O::ARCTANH, kNumpy, "Arctanh", "math.atanh atanh"},
    {O::ERF, kMath, "Erf", "math.erf"},
    {O::CEIL, kNumpy, "Ceil", "math.ceil"},
    {O::TRUNC, kNumpy, "Trunc", ""},
    {O::IS_NAN, kNumpy, "Isnan", "math.is_nan"},
    {O::IS_INF, kNumpy, "Isinf", "math.is_inf"},
    {O::IS_FINITE, kNumpy, "Isfinite", "math.is_finite"},
    {O::LOGICAL_NOT, kNumpy, "LogicalNot", "math.logical_not logical_not"},
    {O::LOGICAL_AND, kNumpy, "LogicalAnd", "math.logical_and logical_and"},
    {O::LOGICAL_OR, kNumpy, "LogicalOr", "math.logical_or logical_or"},
    {O::LOGICAL_XOR, kNumpy, "LogicalXor", "math.logical_xor"},
    {O::FLOOR_DIVIDE, kNumpy, "FloorDivide", "math.floordiv __operators__.floordiv"},
    {O::MOD, kNumpy, "Mod", "math.floormod math.mod __operators__.mod"},
    {O::SQUARED_DIFFERENCE, kMath, "", "math.squared_difference"},  // Keras 3 has none
    {O::ARCTAN2, kNumpy, "Arctan2", "math.atan2 atan2"},
    {O::NAN_TO_NUM, kNumpy, "NanToNum", ""},
    {O::FULL_LIKE, kNumpy, "FullLike", ""},
    {O::FULL_LIKE, kNumpy, "ZerosLike", "zeros_like compat.v1.zeros_like"},
    {O::FULL_LIKE, kNumpy, "OnesLike", "ones_like compat.v1.ones_like"},
    {O::FULL_LIKE, kNumpy, "Imag", "math.imag"},  // of real numbers: 0
};

constexpr KerasReduction kReductions[] = {
    {R::MEAN, kNumpy, "Mean", "math.reduce_mean reduce_mean"},
    {R::SUM, kNumpy, "Sum", "math.reduce_sum reduce_sum"},
    {R::MAX, kNumpy, "Max", "math.reduce_max reduce_max"},
    {R::MAX, kNumpy, "Amax", ""},
    {R::MIN, kNumpy, "Min", "math.reduce_min reduce_min"},
    {R::MIN, kNumpy, "Amin", ""},
    {R::VARIANCE, kNumpy, "Var", "math.reduce_variance"},
    {R::STDDEV, kNumpy, "Std", "math.reduce_std"},
    {R::L2_NORM, kLinalg, "Norm", "norm linalg.norm math.reduce_euclidean_norm"},
    {R::PROD, kNumpy, "Prod", "math.reduce_prod reduce_prod"},
    {R::LOGSUMEXP, kMath, "Logsumexp", "math.reduce_logsumexp reduce_logsumexp"},
    {R::ARGMAX, kNumpy, "Argmax", "math.argmax argmax"},
    {R::ARGMIN, kNumpy, "Argmin", "math.argmin argmin"},
    {R::L1_NORM, kLinalg, "Norm", ""},
    {R::ANY, kNumpy, "Any", "math.reduce_any reduce_any"},
    {R::ALL, kNumpy, "All", "math.reduce_all reduce_all"},
    {R::COUNT_NONZERO, kNumpy, "CountNonzero", "math.count_nonzero"},
};

template <typename Row, size_t kCount, typename Is>
const Row* Find(const Row (&rows)[kCount], Is is) {
  const Row* found = std::find_if(std::begin(rows), std::end(rows), is);
  return found == std::end(rows) ? nullptr : found;
}

bool HasFunction(const char* functions, absl::string_view function) {
  const std::vector<absl::string_view> all = absl::StrSplit(functions, ' ');
  return !function.empty() && std::find(all.begin(), all.end(), function) != all.end();
}

}  // namespace

const KerasOperation* KerasOperationOf(O::Kind kind) {
  return Find(kOperations, [&](const KerasOperation& row) { return row.kind == kind; });
}
const KerasReduction* KerasReductionOf(R::Kind kind) {
  return Find(kReductions, [&](const KerasReduction& row) { return row.kind == kind; });
}
const KerasOperation* FindKerasOperation(absl::string_view name) {
  return Find(kOperations, [&](const KerasOperation& row) { return name == row.name; });
}
const KerasReduction* FindKerasReduction(absl::string_view name) {
  return Find(kReductions, [&](const KerasReduction& row) { return name == row.name; });
}
const KerasOperation* FindTfOperation(absl::string_view function) {
  return Find(kOperations, [&](const KerasOperation& row) { return HasFunction(row.functions, function); });
}
const KerasReduction* FindTfReduction(absl::string_view function) {
  return Find(kReductions, [&](const KerasReduction& row) { return HasFunction(row.functions, function); });
}

const char* KerasOperationModule(const Node& node) {
  switch (node.kind) {
    case LayerKind::kOperation: return KerasOperationOf(node.layer.operation().kind())->module;
    case LayerKind::kReduce: return KerasReductionOf(node.layer.reduce().kind())->module;
    case LayerKind::kSlice:
    case LayerKind::kStack:
    case LayerKind::kPad:
    case LayerKind::kTile:
    case LayerKind::kTake:
    case LayerKind::kEinsum: return kNumpy;
    case LayerKind::kOneHot: return kNn;
    case LayerKind::kTopK: return kMath;
    case LayerKind::kActivation: return node.activation == v1::GLU ? kNn : nullptr;
    default: return nullptr;
  }
}

}  // namespace cairn
