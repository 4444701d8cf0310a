// Operations number by number, of up to three operands that are repeated along axes.
#include <cmath>

#include "worker/backend/cudnn/kernels/activation.h"
#include "worker/backend/cudnn/kernels/strides.h"

namespace cairn::cudnn::kernels {
namespace {

// Of x / pi: no reduction of large arguments, which would need local memory.
#if defined(__CUDA_ARCH__)
CAIRN_DEVICE float Sine(float x) { return static_cast<float>(sinpi(x * 0.31830988618379067154)); }
CAIRN_DEVICE float Cosine(float x) { return static_cast<float>(cospi(x * 0.31830988618379067154)); }
#else
CAIRN_DEVICE float Sine(float x) { return sinf(x); }
CAIRN_DEVICE float Cosine(float x) { return cosf(x); }
#endif

struct Arguments {
  float a, b, c;
  float low, high;
};

CAIRN_DEVICE float ValueOf(Op op, const Arguments& v) {
  const float a = v.a, b = v.b;
  switch (op) {
    case Op::kAdd: return a + b;
    case Op::kSubtract: return a - b;
    case Op::kMultiply: return a * b;
    case Op::kDivide: return a / b;
    case Op::kPower: return b == 2 ? a * a : powf(a, b);
    case Op::kMaximum: return a < b ? b : a;
    case Op::kMinimum: return b < a ? b : a;
    case Op::kNegative: return -a;
    case Op::kAbsolute: return fabsf(a);
    case Op::kSquare: return a * a;
    case Op::kSqrt: return sqrtf(a);
    case Op::kRsqrt: return 1 / sqrtf(a);
    case Op::kExp: return expf(a);
    case Op::kLog: return logf(a);
    case Op::kLog1p: return log1pf(a);
    case Op::kExpm1: return expm1f(a);
    case Op::kSin: return Sine(a);
    case Op::kCos: return Cosine(a);
    case Op::kTanh: return tanhf(a);
    case Op::kSigmoid: return Sigmoid(a);
    case Op::kReciprocal: return 1 / a;
    case Op::kClip: return Clamp(a, v.low, v.high);
    case Op::kSign: return a > 0 ? 1.0f : (a < 0 ? -1.0f : 0.0f);
    case Op::kFloor: return floorf(a);
    case Op::kRound: return rintf(a);  // halves to the even number
    case Op::kEqual: return a == b ? 1.0f : 0.0f;
    case Op::kNotEqual: return a != b ? 1.0f : 0.0f;
    case Op::kGreater: return a > b ? 1.0f : 0.0f;
    case Op::kGreaterEqual: return a >= b ? 1.0f : 0.0f;
    case Op::kLess: return a < b ? 1.0f : 0.0f;
    case Op::kLessEqual: return a <= b ? 1.0f : 0.0f;
    case Op::kWhere: return a != 0 ? b : v.c;
    default: return a;  // kCast, kStopGradient
  }
}

CAIRN_DEVICE float FirstSlope(Op op, const Arguments& v) {
  const float a = v.a, b = v.b;
  switch (op) {
    case Op::kAdd:
    case Op::kSubtract:
    case Op::kCast: return 1.0f;
    case Op::kMultiply: return b;
    case Op::kDivide: return 1 / b;
    case Op::kPower: return b == 2 ? 2 * a : (b == 0 ? 0.0f : b * powf(a, b - 1));
    case Op::kMaximum: return a >= b ? 1.0f : 0.0f;
    case Op::kMinimum: return a <= b ? 1.0f : 0.0f;
    case Op::kNegative: return -1.0f;
    case Op::kAbsolute: return a > 0 ? 1.0f : (a < 0 ? -1.0f : 0.0f);
    case Op::kSquare: return 2 * a;
    case Op::kSqrt: return 0.5f / sqrtf(a);
    case Op::kRsqrt: return -0.5f / (a * sqrtf(a));
    case Op::kExp:
    case Op::kExpm1: return expf(a);
    case Op::kLog: return 1 / a;
    case Op::kLog1p: return 1 / (1 + a);
    case Op::kSin: return Cosine(a);
    case Op::kCos: return -Sine(a);
    case Op::kTanh: {
      const float y = tanhf(a);
      return 1 - y * y;
    }
    case Op::kSigmoid: {
      const float y = Sigmoid(a);
      return y * (1 - y);
    }
    case Op::kReciprocal: return -1 / (a * a);
    case Op::kClip: return a >= v.low && a <= v.high ? 1.0f : 0.0f;
    default: return 0.0f;
  }
}

CAIRN_DEVICE float SlopeOf(Op op, int which, const Arguments& v) {
  const float a = v.a, b = v.b;
  if (which == 0) return FirstSlope(op, v);
  if (which == 2) return a != 0 ? 0.0f : 1.0f;  // kWhere
  switch (op) {
    case Op::kAdd: return 1.0f;
    case Op::kSubtract: return -1.0f;
    case Op::kMultiply: return a;
    case Op::kDivide: return -a / (b * b);
    case Op::kPower: return a > 0 ? powf(a, b) * logf(a) : 0.0f;
    case Op::kMaximum: return a >= b ? 0.0f : 1.0f;
    case Op::kMinimum: return a <= b ? 0.0f : 1.0f;
    case Op::kWhere: return a != 0 ? 1.0f : 0.0f;
    default: return 0.0f;
  }
}

constexpr int OperandsOf(Op op) {
  if (op == Op::kWhere) return 3;
  return op <= Op::kMinimum || (op >= Op::kEqual && op <= Op::kLessEqual) ? 2 : 1;
}

// The operands, and where their numbers are that meet in one number of the result.
struct Operands {
  AxisPlaces axes;
  AlongAxes of[kOperandsMax];
  bool dense = true;  // all of them
  float low, high;
  explicit Operands(const Operation& o) : axes(o.dims), low(o.low), high(o.high) {
    for (int k = 0; k < o.count; ++k) {
      of[k] = AlongAxes(o.dims, o.of[k].strides, o.of[k].x, o.of[k].type);
      dense = dense && of[k].dense;
    }
  }
  // Calls fn(k, arguments) for the numbers i + k.
  template <int kCount, int V, class Fn>
  CAIRN_DEVICE void ForEach(int64_t i, const Fn& fn) const {
    int64_t at[kAxesMax] = {};
    if (!dense) axes.Split(i, at);
    const Numbers<V> a = of[0].template Of<V>(i, at);
    Numbers<V> b = {}, c = {};
    if constexpr (kCount > 1) b = of[1].template Of<V>(i, at);
    if constexpr (kCount > 2) c = of[2].template Of<V>(i, at);
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) fn(k, Arguments{a.at[k], b.at[k], c.at[k], low, high});
  }
};

bool WideOperands(const Operation& o) {
  bool wide = true;
  for (int k = 0; k < o.count; ++k) wide = wide && Wide(o.dims, o.of[k].strides);
  return wide;
}

template <Op kOp>
struct Operating {
  Operands operands;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    Numbers<V> n;
    operands.ForEach<OperandsOf(kOp), V>(i, [&](int k, const Arguments& v) { n.at[k] = ValueOf(kOp, v); });
    Store<V>(y, i, n);
  }
};

// Of an operand that is not repeated.
template <Op kOp>
struct OperatingBackward {
  Operands operands;
  int which;
  bool add;
  In dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    Numbers<V> n = Load<V>(dy, i);
    operands.ForEach<OperandsOf(kOp), V>(
        i, [&](int k, const Arguments& v) { n.at[k] *= SlopeOf(kOp, OperandsOf(kOp) == 1 ? 0 : which, v); });
    StoreOrAdd<V>(dx, i, n, add);
  }
};

// Of one that is: 32 of its numbers and 8 lanes of what meets with each a block.
struct RepeatedOperandBackward {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kAcross = 32, kLanes = kThreads / kAcross;
  static constexpr int kSharedBytes = kThreads * 4;
  Op op;
  int count;
  Operands operands;
  Divider kept[kAxesMax], repeated[kAxesMax];  // the axes: those of the operand, those of its repetition; 1 where not
  int64_t numbers, meetings;
  int which;
  bool add;
  In dy;
  Out dx;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    float* values = block.template Shared<float>();
    block.ForEachThread([&](int thread) {
      const int64_t number = block.index() * kAcross + thread % kAcross;
      float sum = 0;
      for (int64_t meeting = thread / kAcross; meeting < meetings && number < numbers; meeting += kLanes) {
        int64_t i = 0, scale = 1, of_number = number, of_meeting = meeting;
        CAIRN_UNROLL
        for (int d = kAxesMax - 1; d >= 0; --d) {
          i += (kept[d].Split(of_number, &of_number) + repeated[d].Split(of_meeting, &of_meeting)) * scale;
          scale *= operands.axes.dims[d].divisor();
        }
        int64_t at[kAxesMax] = {};
        if (!operands.dense) operands.axes.Split(i, at);
        Arguments v{operands.of[0].Of<1>(i, at).at[0], 0, 0, operands.low, operands.high};
        if (count > 1) v.b = operands.of[1].Of<1>(i, at).at[0];
        if (count > 2) v.c = operands.of[2].Of<1>(i, at).at[0];
        sum += At(dy, i) * SlopeOf(op, which, v);
      }
      values[thread] = sum;
    });
    for (int half = kLanes / 2; half > 0; half /= 2) {
      block.ForEachThread([&](int thread) {
        if (thread / kAcross < half) values[thread] += values[thread + half * kAcross];
      });
    }
    block.ForEachThread([&](int thread) {
      const int64_t number = block.index() * kAcross + thread;
      if (thread < kAcross && number < numbers) SetOrAdd(dx, number, values[thread], add);
    });
  }
};

// Calls fn.template Of<op>().
template <class Fn>
Error WithOp(Op op, const Fn& fn) {
  switch (op) {
#define CAIRN_OP(name) \
  case Op::name: return fn.template Of<Op::name>();
    CAIRN_OP(kAdd)
    CAIRN_OP(kSubtract)
    CAIRN_OP(kMultiply)
    CAIRN_OP(kDivide)
    CAIRN_OP(kPower)
    CAIRN_OP(kMaximum)
    CAIRN_OP(kMinimum)
    CAIRN_OP(kNegative)
    CAIRN_OP(kAbsolute)
    CAIRN_OP(kSquare)
    CAIRN_OP(kSqrt)
    CAIRN_OP(kRsqrt)
    CAIRN_OP(kExp)
    CAIRN_OP(kLog)
    CAIRN_OP(kLog1p)
    CAIRN_OP(kExpm1)
    CAIRN_OP(kSin)
    CAIRN_OP(kCos)
    CAIRN_OP(kTanh)
    CAIRN_OP(kSigmoid)
    CAIRN_OP(kReciprocal)
    CAIRN_OP(kClip)
    CAIRN_OP(kSign)
    CAIRN_OP(kFloor)
    CAIRN_OP(kRound)
    CAIRN_OP(kCast)
    CAIRN_OP(kStopGradient)
    CAIRN_OP(kEqual)
    CAIRN_OP(kNotEqual)
    CAIRN_OP(kGreater)
    CAIRN_OP(kGreaterEqual)
    CAIRN_OP(kLess)
    CAIRN_OP(kLessEqual)
    CAIRN_OP(kWhere)
#undef CAIRN_OP
  }
  return 1;  // no such operation: cudaErrorInvalidValue
}

struct LaunchOperation {
  Stream stream;
  const Operation& o;
  Out y;
  template <Op kOp>
  Error Of() const {
    return LaunchForEach(stream, o.dims.Count(), WideOperands(o), Operating<kOp>{Operands(o), y});
  }
};

struct LaunchOperationBackward {
  Stream stream;
  const Operation& o;
  int which;
  bool add;
  In dy;
  Out dx;
  template <Op kOp>
  Error Of() const {
    const int64_t n = o.dims.Count();
    const Strides& s = o.of[which].strides;
    int64_t numbers = 1;
    for (int d = 0; d < kAxesMax; ++d) numbers *= s.of[d] != 0 ? o.dims.of[d] : 1;
    if (numbers == n) {
      return LaunchForEach(stream, n, WideOperands(o), OperatingBackward<kOp>{Operands(o), which, add, dy, dx});
    }
    if constexpr (OperandsOf(kOp) > 1) {
      RepeatedOperandBackward kernel{kOp, o.count, Operands(o), {}, {}, numbers, n / numbers, which, add, dy, dx};
      for (int d = 0; d < kAxesMax; ++d) {
        const bool own = s.of[d] != 0;
        kernel.kept[d] = Divider(own ? o.dims.of[d] : 1, n);
        kernel.repeated[d] = Divider(own ? 1 : o.dims.of[d], n);
      }
      return Launch(stream, CeilDivide(numbers, RepeatedOperandBackward::kAcross), kernel);
    } else {
      return 1;  // the only operand is not repeated: cudaErrorInvalidValue
    }
  }
};

}  // namespace

Error Operate(Stream stream, const Operation& o, void* y, DType type) {
  return WithOp(o.op, LaunchOperation{stream, o, {y, type}});
}

Error OperateBackward(Stream stream, const Operation& o, int which, const void* dy, void* dx, DType type, bool add) {
  return WithOp(o.op, LaunchOperationBackward{stream, o, which, add, {dy, type}, {dx, type}});
}

}  // namespace cairn::cudnn::kernels
