// Launchers of layers on tensors: operations, parts, reductions (operations.cu, parts.cu, reductions.cu), and of
// numbers that depend on their place: noise, factors, penalties (places.cu). The invariants of kernels.h hold.
#pragma once

#include "worker/backend/cudnn/kernels/kernels.h"

namespace cairn::cudnn::kernels {

// The sizes of a tensor's axes, the examples first; missing axes come first, with size 1.
struct Dims {
  int64_t of[kAxesMax] = {1, 1, 1, 1, 1, 1};
  int64_t Count() const {
    int64_t n = 1;
    for (const int64_t size : of) n *= size;
    return n;
  }
};
// How a tensor is read along the axes of another one. 0: it is repeated along that axis.
struct Strides {
  int64_t of[kAxesMax] = {};
  int64_t begin = 0;
};

// ---- parts (parts.cu) ----

Error Fill(Stream stream, int64_t n, float value, void* y, DType type);
// to[along to_strides] = from[along from_strides]. What lies between keeps its value.
Error CopyPart(Stream stream, const Dims& dims, const Strides& from_strides, const void* from,
               const Strides& to_strides, void* to, DType type, bool add);

// ---- operations (operations.cu): the formulas of worker/backend/tensor_functors.h ----

// The numbers of v1::Operation::Kind.
enum class Op : int32_t {
  kAdd = 1,
  kSubtract = 2,
  kMultiply = 3,
  kDivide = 4,
  kPower = 5,
  kMaximum = 6,
  kMinimum = 7,
  kFloorDivide = 9,
  kMod = 10,
  kArcTan2 = 11,
  kSquaredDifference = 12,
  kNegative = 20,
  kAbsolute = 21,
  kSquare = 22,
  kSqrt = 23,
  kRsqrt = 24,
  kExp = 25,
  kLog = 26,
  kLog1p = 27,
  kExpm1 = 28,
  kSin = 29,
  kCos = 30,
  kTanh = 31,
  kSigmoid = 32,
  kReciprocal = 33,
  kClip = 34,
  kSign = 35,
  kFloor = 36,
  kRound = 37,
  kCast = 38,
  kStopGradient = 39,
  kEqual = 40,
  kNotEqual = 41,
  kGreater = 42,
  kGreaterEqual = 43,
  kLess = 44,
  kLessEqual = 45,
  kWhere = 46,
  kLog2 = 50,
  kLog10 = 51,
  kTan = 52,
  kArcSin = 53,
  kArcCos = 54,
  kArcTan = 55,
  kSinh = 56,
  kCosh = 57,
  kArcSinh = 58,
  kArcCosh = 59,
  kArcTanh = 60,
  kErf = 61,
  kCeil = 62,
  kTrunc = 63,
  kLogicalNot = 64,
  kIsNan = 65,
  kIsInf = 66,
  kIsFinite = 67,
  kLogicalAnd = 68,
  kLogicalOr = 69,
  kLogicalXor = 70,
  kNanToNum = 72,
  kFullLike = 73,
};
struct Operand {
  const void* x = nullptr;
  DType type = DType::kFloat32;
  Strides strides;
};
// y = f of up to three operands, each read along the axes of y. low, high: the bounds of kClip; with nan what kNanToNum
// puts in the place of -inf, inf and what is not a number. SIN, COS and TAN have
// float32's precision for arguments below 1e8.
struct Operation {
  Op op = Op::kAdd;
  float low = 0, high = 0, nan = 0;
  Dims dims;
  int count = 0;
  Operand of[kOperandsMax];
};
Error Operate(Stream stream, const Operation& o, void* y, DType type);
// dx of operand `which`, summed over the axes along which it is repeated.
Error OperateBackward(Stream stream, const Operation& o, int which, const void* dy, void* dx, DType type, bool add);

// ---- along axes (reductions.cu): the formulas of worker/backend/tensor_reductions.h ----

// The numbers of v1::Reduce::Kind.
enum class Reducing : int32_t {
  kMean = 1,
  kSum = 2,
  kMax = 3,
  kMin = 4,
  kVariance = 5,
  kStddev = 6,
  kL2Norm = 7,
  kProd = 8,
  kLogSumExp = 9,
  kArgMax = 10,
  kArgMin = 11,
  kL1Norm = 12,
  kAny = 13,
  kAll = 14,
  kCountNonzero = 15,
};
struct Reduction {
  Reducing kind = Reducing::kMean;
  Dims dims;                    // of x
  bool reduced[kAxesMax] = {};  // which axes
};
// statistics: takes two numbers for each of y, for the way back.
Error Reduce(Stream stream, const Reduction& r, const void* x, void* y, float* statistics, DType type);
Error ReduceBackward(Stream stream, const Reduction& r, const float* statistics, const void* x, const void* dy,
                     void* dx, DType type, bool add);

enum class Line : int32_t { kSoftmax, kUnit, kCumulative, kCumulativeProduct };
// Along the middle axis of [outer, size, inner]: softmax; x / its length, but at least `shortest`; sums or
// products so far.
struct Lines {
  Line kind = Line::kSoftmax;
  int64_t outer = 1, size = 1, inner = 1;
  float shortest = 0;
};
Error AlongLines(Stream stream, const Lines& lines, const void* x, void* y, DType type);
Error AlongLinesBackward(Stream stream, const Lines& lines, const void* x, const void* y, const void* dy, void* dx,
                         DType type, bool add);

// ---- by place (places.cu) ----

enum class NoiseKind : int32_t { kDropout, kAlpha, kGaussian, kGaussianFactor };
// y = x * factor + offset with the random factors and offsets of worker/backend/noise.h, those of a tensor that is read
// along the axes of x.
struct Noise {
  NoiseKind kind = NoiseKind::kDropout;
  Draw draw;
  float kept = 1, kept_offset = 0, dropped_offset = 0;  // kDropout, kAlpha
  double spread = 0;                                    // of the normal numbers
  Dims dims;
  Strides strides;
};
Error AddNoise(Stream stream, const Noise& noise, const StepKey* key, const void* x, void* y, DType type);
Error AddNoiseBackward(Stream stream, const Noise& noise, const StepKey* key, const void* dy, void* dx, DType type,
                       bool add);

// y = (x - shift) * scale + offset, with factors that are read along the axes of x. shift and offset may be null.
// Backward: dx = dy * scale, without both.
struct PlaceFactors {
  Dims dims;
  Strides strides;
  const float *shift = nullptr, *scale = nullptr, *offset = nullptr;
};
Error ScaleByPlace(Stream stream, const PlaceFactors& factors, const void* x, void* y, DType type, bool add);
// scale = 1 / deviation, or the deviation if `inverts`; the deviation is sqrt(variance), but at least `least`.
Error DeviationScale(Stream stream, int64_t n, const float* variance, float least, bool inverts, float* scale);

// ---- attention by a sum of bent numbers (bent_scores.cu): worker/backend/score_attention.h ----

// The score of query t and key s: the sum over i of g_i * tanh(a * (q_ti + k_si)). scale: [features], g of an additive
// score, or one number, a of the other kind, whose g is the weight; null: 1. q: [examples, queries, features].
struct BentScores {
  bool additive = false;
  int64_t examples = 0, queries = 0, keys = 0, features = 0;
  const float *scale = nullptr, *weight = nullptr;
};
Error ScoreBent(Stream stream, const BentScores& b, const void* q, const void* k, void* scores, DType type);
// of_queries: dx is that of q, else that of k. d: the gradient of the scores.
Error ScoreBentBackward(Stream stream, const BentScores& b, bool of_queries, const void* q, const void* k,
                        const void* d, void* dx, DType type, bool add);
// Sums over the keys of d times tanh (bent) and of d times the derivative with respect to a (slopes; may be null):
// [examples * queries, features].
Error ScoreBentSums(Stream stream, const BentScores& b, const void* q, const void* k, const void* d, float* bent,
                    float* slopes, DType type);

// ---- penalties (places.cu): common/model/activity.h ----

// penalties[e] = l1 * sum(|x|) + l2 * sum(x^2) over the numbers of example e.
Error ActivityPenalty(Stream stream, int64_t examples, int64_t numbers, double l1, double l2, const void* x,
                      double* penalties, DType type);
// *total += the sum of n numbers, in a tree of fixed shape.
Error AddDoubles(Stream stream, int64_t n, const double* in, double* total);
// dx = dy + (l1 * sign(x) + 2 * l2 * x) times the loss scale of the key, if there is one.
Error ActivityBackward(Stream stream, int64_t n, float l1, float l2, const StepKey* key, const void* x, const void* dy,
                       void* dx, DType type, bool add);

}  // namespace cairn::cudnn::kernels
