// Layers with several inputs.
#include <cmath>

#include "worker/backend/cudnn/kernels/places.h"

namespace cairn::cudnn::kernels {
namespace {

struct Plus {
  CAIRN_DEVICE static float Of(float a, float b) { return a + b; }
};
struct Times {
  CAIRN_DEVICE static float Of(float a, float b) { return a * b; }
};
struct Larger {
  CAIRN_DEVICE static float Of(float a, float b) { return a < b ? b : a; }
};

template <class Op, int V>
CAIRN_DEVICE void JoinInto(Numbers<V>& all, const Numbers<V>& n) {
  CAIRN_UNROLL
  for (int j = 0; j < V; ++j) all.at[j] = Op::Of(all.at[j], n.at[j]);
}

// Inputs of one shape, in their order.
template <class Op>
struct Joined {
  Inputs in;
  float factor;
  DType type;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    Numbers<V> all = Load<V>({in.x[0], type}, i);
    for (int k = 1; k < in.count; ++k) JoinInto<Op>(all, Load<V>({in.x[k], type}, i));
    if (factor != 1) {
      CAIRN_UNROLL
      for (int j = 0; j < V; ++j) all.at[j] *= factor;
    }
    Store<V>(y, i, all);
  }
};

template <int V>
CAIRN_DEVICE void RoundTo(DType type, float down, float up, Numbers<V>& n) {
  if (type == DType::kFloat32) return;
  CAIRN_UNROLL
  for (int j = 0; j < V; ++j) n.at[j] = FromBits(ToBits(n.at[j] * down, type), type) * up;
}

struct JoinedAndRounded {
  Inputs in;
  float factor;
  DType rounding;
  float down, up;  // powers of two: what numbers are multiplied by before and after they are rounded
  Out y;
  template <int V>
  CAIRN_DEVICE Numbers<V> Part(int k, int64_t i) const {
    Numbers<V> n = Load<V>({in.x[k], DType::kFloat32}, i);
    if (factor != 1) {
      CAIRN_UNROLL
      for (int j = 0; j < V; ++j) n.at[j] *= factor;
    }
    RoundTo<V>(rounding, down, up, n);
    return n;
  }
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    Numbers<V> all = Part<V>(0, i);
    for (int k = 1; k < in.count; ++k) {
      JoinInto<Plus>(all, Part<V>(k, i));
      RoundTo<V>(rounding, down, up, all);
    }
    Store<V>(y, i, all);
  }
};

struct MaximumOfBackward {
  Inputs in;
  int which;
  bool add;
  DType type;
  In dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Numbers<V> own = Load<V>({in.x[which], type}, i);
    Numbers<V> d = Load<V>(dy, i);
    for (int k = 0; k < in.count; ++k) {
      if (k == which) continue;
      const Numbers<V> n = Load<V>({in.x[k], type}, i);
      CAIRN_UNROLL
      for (int j = 0; j < V; ++j) {
        if (k < which ? n.at[j] >= own.at[j] : n.at[j] > own.at[j]) d.at[j] = 0;
      }
    }
    StoreOrAdd<V>(dx, i, d, add);
  }
};

// The indices of the inputs' numbers that meet in one number of the output.
struct Strided {
  Divider dims[4];  // the first is not used
  int64_t strides[kJoinMax][4];
  Strided(const Broadcast& b, int64_t n) {
    for (int d = 0; d < 4; ++d) dims[d] = Divider(b.dims[d], n);
    for (int k = 0; k < kJoinMax; ++k) {
      for (int d = 0; d < 4; ++d) strides[k][d] = b.strides[k][d];
    }
  }
  CAIRN_DEVICE void Split(int64_t i, int64_t at[4]) const {
    at[0] = i;
    CAIRN_UNROLL
    for (int d = 3; d > 0; --d) at[d] = dims[d].Split(at[0], &at[0]);
  }
  CAIRN_DEVICE int64_t Of(int k, const int64_t at[4]) const {
    return at[0] * strides[k][0] + at[1] * strides[k][1] + at[2] * strides[k][2] + at[3] * strides[k][3];
  }
};

// Whether eight numbers along the last axis lie side by side in every input.
bool WideJoin(const Broadcast& b, int count) {
  bool wide = Wide(b.dims[3]);
  for (int k = 0; k < count; ++k)
    wide = wide && b.strides[k][3] == 1 && Wide(b.strides[k][0], b.strides[k][1], b.strides[k][2]);
  return wide;
}

struct Product {
  Strided places;
  Inputs in;
  DType type;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t at[4];
    places.Split(i, at);
    Numbers<V> product = Load<V>({in.x[0], type}, places.Of(0, at));
    for (int k = 1; k < in.count; ++k) JoinInto<Times>(product, Load<V>({in.x[k], type}, places.Of(k, at)));
    Store<V>(y, i, product);
  }
};

// dy times the other inputs at index `at` of the output.
template <int V>
CAIRN_DEVICE Numbers<V> TimesOthers(const Strided& places, const Inputs& in, DType type, int which, const In& dy,
                                    int64_t i, const int64_t at[4]) {
  Numbers<V> product = Load<V>(dy, i);
  for (int k = 0; k < in.count; ++k) {
    if (k != which) JoinInto<Times>(product, Load<V>({in.x[k], type}, places.Of(k, at)));
  }
  return product;
}

// For an input that is not repeated.
struct ProductBackward {
  Strided places;
  Inputs in;
  int which;
  bool add;
  DType type;
  In dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t at[4];
    places.Split(i, at);
    StoreOrAdd<V>(dx, i, TimesOthers<V>(places, in, type, which, dy, i, at), add);
  }
};

// For an input that is repeated: a block has 32 of its numbers and 8 lanes of the numbers that meet each.
struct RepeatedProductBackward {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kAcross = 32, kLanes = kThreads / kAcross;
  static constexpr int kSharedBytes = kThreads * 4;
  Strided places;
  Divider kept[4], repeated[4];  // the output's axes: those of the input, those along which it is repeated; 1 where not
  int64_t numbers, meetings;
  Inputs in;
  int which;
  bool add;
  DType type;
  In dy;
  Out dx;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    float* values = block.template Shared<float>();
    block.ForEachThread([&](int thread) {
      const int64_t number = block.index() * kAcross + thread % kAcross;
      float sum = 0;
      for (int64_t meeting = thread / kAcross; meeting < meetings && number < numbers; meeting += kLanes) {
        int64_t at[4], i = 0, of_number = number, of_meeting = meeting;
        CAIRN_UNROLL
        for (int d = 3; d >= 0; --d)
          at[d] = kept[d].Split(of_number, &of_number) + repeated[d].Split(of_meeting, &of_meeting);
        CAIRN_UNROLL
        for (int d = 0; d < 4; ++d) i = i * places.dims[d].divisor() + at[d];
        sum += TimesOthers<1>(places, in, type, which, dy, i, at).at[0];
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

}  // namespace

Error Sum(Stream stream, int64_t n, const Inputs& in, float factor, void* y, DType type) {
  return LaunchForEach(stream, n, true, Joined<Plus>{in, factor, type, {y, type}});
}

Error RoundedSum(Stream stream, int64_t n, const Inputs& in, float factor, float* y, DType rounding, int shift) {
  if (rounding != DType::kFloat16) shift = 0;
  return LaunchForEach(
      stream, n, true,
      JoinedAndRounded{in, factor, rounding, std::ldexp(1.0f, -shift), std::ldexp(1.0f, shift), {y, DType::kFloat32}});
}

Error Maximum(Stream stream, int64_t n, const Inputs& in, void* y, DType type) {
  return LaunchForEach(stream, n, true, Joined<Larger>{in, 1, type, {y, type}});
}

Error MaximumBackward(Stream stream, int64_t n, const Inputs& in, int which, const void* dy, void* dx, DType type,
                      bool add) {
  return LaunchForEach(stream, n, true, MaximumOfBackward{in, which, add, type, {dy, type}, {dx, type}});
}

Error Multiply(Stream stream, const Broadcast& b, const Inputs& in, void* y, DType type) {
  const int64_t n = b.dims[0] * b.dims[1] * b.dims[2] * b.dims[3];
  return LaunchForEach(stream, n, WideJoin(b, in.count), Product{Strided(b, n), in, type, {y, type}});
}

Error MultiplyBackward(Stream stream, const Broadcast& b, const Inputs& in, int which, const void* dy, void* dx,
                       DType type, bool add) {
  const int64_t n = b.dims[0] * b.dims[1] * b.dims[2] * b.dims[3];
  int64_t numbers = 1;
  for (int d = 0; d < 4; ++d) numbers *= b.strides[which][d] != 0 ? b.dims[d] : 1;
  if (numbers == n)
    return LaunchForEach(stream, n, WideJoin(b, in.count),
                         ProductBackward{Strided(b, n), in, which, add, type, {dy, type}, {dx, type}});
  RepeatedProductBackward kernel{Strided(b, n), {},  {},   numbers,    n / numbers, in,
                                 which,         add, type, {dy, type}, {dx, type}};
  for (int d = 0; d < 4; ++d) {
    const bool own = b.strides[which][d] != 0;
    kernel.kept[d] = Divider(own ? b.dims[d] : 1, n);
    kernel.repeated[d] = Divider(own ? 1 : b.dims[d], n);
  }
  return Launch(stream, CeilDivide(numbers, RepeatedProductBackward::kAcross), kernel);
}

}  // namespace cairn::cudnn::kernels
