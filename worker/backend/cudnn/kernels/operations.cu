// Operations number by number, of up to three operands that are repeated along axes.
#include "worker/backend/cudnn/kernels/op_formulas.h"
#include "worker/backend/cudnn/kernels/strides.h"

namespace cairn::cudnn::kernels {
namespace {

// The operands, and where their numbers are that meet in one number of the result.
struct Operands {
  AxisPlaces axes;
  AlongAxes of[kOperandsMax];
  bool dense = true;  // all of them
  float low, high, nan;
  explicit Operands(const Operation& o) : axes(o.dims), low(o.low), high(o.high), nan(o.nan) {
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
    for (int k = 0; k < V; ++k) fn(k, Arguments{a.at[k], b.at[k], c.at[k], low, high, nan});
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
        Arguments v{operands.of[0].Of<1>(i, at).at[0], 0, 0, operands.low, operands.high, operands.nan};
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
    CAIRN_OP(kFloorDivide)
    CAIRN_OP(kMod)
    CAIRN_OP(kArcTan2)
    CAIRN_OP(kSquaredDifference)
    CAIRN_OP(kLog2)
    CAIRN_OP(kLog10)
    CAIRN_OP(kTan)
    CAIRN_OP(kArcSin)
    CAIRN_OP(kArcCos)
    CAIRN_OP(kArcTan)
    CAIRN_OP(kSinh)
    CAIRN_OP(kCosh)
    CAIRN_OP(kArcSinh)
    CAIRN_OP(kArcCosh)
    CAIRN_OP(kArcTanh)
    CAIRN_OP(kErf)
    CAIRN_OP(kCeil)
    CAIRN_OP(kTrunc)
    CAIRN_OP(kLogicalNot)
    CAIRN_OP(kIsNan)
    CAIRN_OP(kIsInf)
    CAIRN_OP(kIsFinite)
    CAIRN_OP(kLogicalAnd)
    CAIRN_OP(kLogicalOr)
    CAIRN_OP(kLogicalXor)
    CAIRN_OP(kNanToNum)
    CAIRN_OP(kFullLike)
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
