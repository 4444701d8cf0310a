// The numbers of kernels: any of the three types in memory, float32 in registers.
//
// Conversions are those of common/tensor/dtype.h, bit for bit (kernels_test): round to nearest, ties to even.
#pragma once

#include <cstdint>

#include "worker/backend/cudnn/kernels/launch.h"

namespace cairn::cudnn::kernels {

CAIRN_DEVICE uint32_t BitsOf(float f) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(f);
#else
  return __builtin_bit_cast(uint32_t, f);
#endif
}

CAIRN_DEVICE float FloatOf(uint32_t u) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(u);
#else
  return __builtin_bit_cast(float, u);
#endif
}

CAIRN_DEVICE uint16_t ToBfloat16(float f) {
  const uint32_t u = BitsOf(f);
  if ((u & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((u >> 16) | 0x40);  // a quiet NaN
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

CAIRN_DEVICE float FromBfloat16(uint16_t h) { return FloatOf(static_cast<uint32_t>(h) << 16); }

CAIRN_DEVICE uint16_t ToFloat16(float f) {
  const uint32_t u = BitsOf(f);
  const uint32_t sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (a >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to 65536 or more
  // Below 2^-14 it is subnormal: adding 0.5 leaves the rounded bits at the end.
  if (a < 0x38800000) return static_cast<uint16_t>(sign | (BitsOf(FloatOf(a) + 0.5f) - BitsOf(0.5f)));
  return static_cast<uint16_t>(sign | ((a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13));
}

CAIRN_DEVICE float FromFloat16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, mantissa = h & 0x3ff;
#if defined(__CUDA_ARCH__)
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f == f ? f : FloatOf(sign | 0x7f800000 | (mantissa << 13));  // the instruction does not keep the bits of a NaN
#else
  const uint32_t exponent = (h >> 10) & 0x1f;
  if (exponent == 31) return FloatOf(sign | 0x7f800000 | (mantissa << 13));
  if (exponent == 0) return FloatOf(sign | BitsOf(static_cast<float>(mantissa) * 0x1.0p-24f));
  return FloatOf(sign | ((exponent + 112) << 23) | (mantissa << 13));
#endif
}

CAIRN_DEVICE float FromBits(uint16_t h, DType type) {
  return type == DType::kBFloat16 ? FromBfloat16(h) : FromFloat16(h);
}
CAIRN_DEVICE uint16_t ToBits(float f, DType type) { return type == DType::kBFloat16 ? ToBfloat16(f) : ToFloat16(f); }

// The numbers of a tensor.
struct In {
  const void* data;
  DType type;
};
struct Out {
  void* data;
  DType type;
};

// V adjacent numbers: 1, or 8, which are read and written 16 bytes at a time.
inline constexpr int kWide = 8;

template <int V>
struct Numbers {
  float at[V];
};

namespace internal {

// Sixteen bytes in one access.
struct Words {
  uint32_t at[4];
};
CAIRN_DEVICE Words LoadWords(const void* from) {
#if defined(__CUDA_ARCH__)
  const uint4 w = *static_cast<const uint4*>(from);
  return {{w.x, w.y, w.z, w.w}};
#else
  return *static_cast<const Words*>(from);
#endif
}
struct Pair {
  uint32_t at[2];
};
CAIRN_DEVICE Pair LoadPair(const void* from) {
#if defined(__CUDA_ARCH__)
  const uint2 w = *static_cast<const uint2*>(from);
  return {{w.x, w.y}};
#else
  return *static_cast<const Pair*>(from);
#endif
}
CAIRN_DEVICE void StoreWords(void* to, const Words& w) {
#if defined(__CUDA_ARCH__)
  __stwb(static_cast<uint4*>(to),
         make_uint4(w.at[0], w.at[1], w.at[2], w.at[3]));  // an assignment would be compiled to four stores
#else
  *static_cast<Words*>(to) = w;
#endif
}

// Eight numbers of 16 bits. On the device one instruction rounds two; it does not keep the bits of a NaN.
CAIRN_DEVICE Words ToWords(const Numbers<8>& n, DType type) {
  Words words;
#if defined(__CUDA_ARCH__)
  bool any_nan = false;
  CAIRN_UNROLL
  for (int k = 0; k < 8; ++k) any_nan |= n.at[k] != n.at[k];
  if (!any_nan) {
    CAIRN_UNROLL
    for (int k = 0; k < 4; ++k) {
      if (type == DType::kBFloat16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words.at[k]) : "f"(n.at[2 * k + 1]), "f"(n.at[2 * k]));
      } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(words.at[k]) : "f"(n.at[2 * k + 1]), "f"(n.at[2 * k]));
      }
    }
    return words;
  }
#endif
  CAIRN_UNROLL
  for (int k = 0; k < 4; ++k)
    words.at[k] = ToBits(n.at[2 * k], type) | static_cast<uint32_t>(ToBits(n.at[2 * k + 1], type)) << 16;
  return words;
}

}  // namespace internal

// The numbers i .. i + V - 1. With V == 8, i is a multiple of 8 and the tensor is aligned to 16 bytes.
template <int V>
CAIRN_DEVICE Numbers<V> Load(const In& x, int64_t i) {
  Numbers<V> n;
  if constexpr (V == 1) {
    n.at[0] = x.type == DType::kFloat32 ? static_cast<const float*>(x.data)[i]
                                        : FromBits(static_cast<const uint16_t*>(x.data)[i], x.type);
  } else if (x.type == DType::kFloat32) {
    const float* from = static_cast<const float*>(x.data) + i;
    const internal::Words low = internal::LoadWords(from), high = internal::LoadWords(from + 4);
    CAIRN_UNROLL
    for (int k = 0; k < 4; ++k) {
      n.at[k] = FloatOf(low.at[k]);
      n.at[k + 4] = FloatOf(high.at[k]);
    }
  } else {
    const internal::Words words = internal::LoadWords(static_cast<const uint16_t*>(x.data) + i);
    CAIRN_UNROLL
    for (int k = 0; k < 4; ++k) {
      n.at[2 * k] = FromBits(static_cast<uint16_t>(words.at[k]), x.type);
      n.at[2 * k + 1] = FromBits(static_cast<uint16_t>(words.at[k] >> 16), x.type);
    }
  }
  return n;
}

// The same for bytes; with V == 8 they are read 8 at a time.
template <int V>
CAIRN_DEVICE Numbers<V> LoadBytes(const uint8_t* from, int64_t i) {
  Numbers<V> n;
  if constexpr (V == 1) {
    n.at[0] = static_cast<float>(from[i]);
  } else {
    const internal::Pair words = internal::LoadPair(from + i);
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) n.at[k] = static_cast<float>(words.at[k / 4] >> (8 * (k % 4)) & 0xff);
  }
  return n;
}

template <int V>
CAIRN_DEVICE void Store(const Out& y, int64_t i, const Numbers<V>& n) {
  if constexpr (V == 1) {
    if (y.type == DType::kFloat32) {
      static_cast<float*>(y.data)[i] = n.at[0];
    } else {
      static_cast<uint16_t*>(y.data)[i] = ToBits(n.at[0], y.type);
    }
  } else if (y.type == DType::kFloat32) {
    float* to = static_cast<float*>(y.data) + i;
    internal::StoreWords(to, {{BitsOf(n.at[0]), BitsOf(n.at[1]), BitsOf(n.at[2]), BitsOf(n.at[3])}});
    internal::StoreWords(to + 4, {{BitsOf(n.at[4]), BitsOf(n.at[5]), BitsOf(n.at[6]), BitsOf(n.at[7])}});
  } else {
    const internal::Words words = internal::ToWords(n, y.type);
    internal::StoreWords(static_cast<uint16_t*>(y.data) + i, words);
  }
}

CAIRN_DEVICE float At(const In& x, int64_t i) { return Load<1>(x, i).at[0]; }
CAIRN_DEVICE void Set(const Out& y, int64_t i, float value) { Store<1>(y, i, {{value}}); }
// y[i] = value, or y[i] += value if the tensor already has the gradient of another reader.
CAIRN_DEVICE void SetOrAdd(const Out& y, int64_t i, float value, bool add) {
  Set(y, i, add ? At({y.data, y.type}, i) + value : value);
}

template <int V>
CAIRN_DEVICE void StoreOrAdd(const Out& y, int64_t i, Numbers<V> n, bool add) {
  if (add) {
    const Numbers<V> before = Load<V>({y.data, y.type}, i);
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) n.at[k] = before.at[k] + n.at[k];
  }
  Store<V>(y, i, n);
}

// Division by a number that is known at launch: by a multiplication (Granlund & Montgomery 1994) if all dividends are
// below 2^31.
class Divider {
 public:
  Divider() = default;
  // For dividends in [0, end).
  Divider(int64_t divisor, int64_t end)
      : divisor_(divisor), small_(end <= (int64_t{1} << 31) && divisor < (int64_t{1} << 31)) {
    if (!small_) return;
    while ((int64_t{1} << shift_) < divisor) ++shift_;
    factor_ = static_cast<uint32_t>(
        ((uint64_t{1} << 32) * static_cast<uint64_t>((int64_t{1} << shift_) - divisor)) / divisor + 1);
  }
  CAIRN_DEVICE int64_t operator()(int64_t n) const {
    if (!small_) return n / divisor_;
    const uint32_t low = static_cast<uint32_t>(n);
    return (static_cast<uint32_t>((static_cast<uint64_t>(low) * factor_) >> 32) + low) >> shift_;
  }
  CAIRN_DEVICE int64_t divisor() const { return divisor_; }
  // n = *quotient * divisor + the result.
  CAIRN_DEVICE int64_t Split(int64_t n, int64_t* quotient) const {
    *quotient = (*this)(n);
    return n - *quotient * divisor_;
  }

 private:
  int64_t divisor_ = 1;
  uint32_t factor_ = 1, shift_ = 0;
  bool small_ = false;
};

}  // namespace cairn::cudnn::kernels
