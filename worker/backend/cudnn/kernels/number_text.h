// The hashes of common/base/fingerprint.h, of the decimal digits of a whole number: what Keras makes of numbers where
// TensorFlow hashes texts. The text is in three words, the first character in the lowest byte, so that a thread keeps
// it in registers.
#pragma once

#include <cstdint>

#include "worker/backend/cudnn/kernels/launch.h"

namespace cairn::cudnn::kernels {

struct NumberText {
  uint64_t low = 0, middle = 0, high = 0;
  int32_t length = 0;

  CAIRN_DEVICE explicit NumberText(int64_t number) {
    // The lowest number has no positive counterpart among the signed ones.
    uint64_t rest = number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    do {
      Prepend('0' + static_cast<uint64_t>(rest % 10));
      rest /= 10;
    } while (rest != 0);
    if (number < 0) Prepend('-');
  }
  CAIRN_DEVICE void Prepend(uint64_t character) {
    high = high << 8 | middle >> 56;
    middle = middle << 8 | low >> 56;
    low = low << 8 | character;
    ++length;
  }
  // Eight, four and one characters from `at` on.
  CAIRN_DEVICE uint64_t Word(int32_t at) const {
    const uint64_t first = at < 8 ? low : at < 16 ? middle : high, next = at < 8 ? middle : at < 16 ? high : 0;
    const int32_t shift = at % 8 * 8;
    return shift == 0 ? first : first >> shift | next << (64 - shift);
  }
  CAIRN_DEVICE uint64_t Half(int32_t at) const { return Word(at) & 0xffffffff; }
  CAIRN_DEVICE uint64_t Character(int32_t at) const { return Word(at) & 0xff; }
};

CAIRN_DEVICE uint64_t RotatedRight(uint64_t x, int32_t by) { return x >> by | x << (64 - by); }
CAIRN_DEVICE uint64_t ShiftMixed(uint64_t x) { return x ^ (x >> 47); }

inline constexpr uint64_t kFarmK0 = 0xc3a5c85c97cb3127, kFarmK1 = 0xb492b66fbe98f273, kFarmK2 = 0x9ae16a3b2f90404f;

CAIRN_DEVICE uint64_t FarmHash16(uint64_t u, uint64_t v, uint64_t factor) {
  const uint64_t a = ShiftMixed((u ^ v) * factor);
  return ShiftMixed((v ^ a) * factor) * factor;
}

// FarmHash's Fingerprint64 of up to 32 characters (farmhashna: HashLen0to16, HashLen17to32).
CAIRN_DEVICE uint64_t FarmFingerprint(const NumberText& text) {
  const int32_t n = text.length;
  const uint64_t length = static_cast<uint64_t>(n), factor = kFarmK2 + length * 2;
  if (n > 16) {
    const uint64_t a = text.Word(0) * kFarmK1, b = text.Word(8), c = text.Word(n - 8) * factor,
                   d = text.Word(n - 16) * kFarmK2;
    return FarmHash16(RotatedRight(a + b, 43) + RotatedRight(c, 30) + d, a + RotatedRight(b + kFarmK2, 18) + c, factor);
  }
  if (n >= 8) {
    const uint64_t a = text.Word(0) + kFarmK2, b = text.Word(n - 8);
    return FarmHash16(RotatedRight(b, 37) * factor + a, (RotatedRight(a, 25) + b) * factor, factor);
  }
  if (n >= 4) return FarmHash16(length + (text.Half(0) << 3), text.Half(n - 4), factor);
  const uint64_t y = text.Character(0) + (text.Character(n / 2) << 8), z = length + (text.Character(n - 1) << 2);
  return ShiftMixed(y * kFarmK2 ^ z * kFarmK0) * kFarmK2;
}

// SipHash-2-4 (Aumasson and Bernstein 2012).
struct SipRounds {
  uint64_t v0, v1, v2, v3;
  CAIRN_DEVICE static uint64_t Left(uint64_t x, int32_t by) { return RotatedRight(x, 64 - by); }
  CAIRN_DEVICE void Round() {
    v0 += v1, v2 += v3;
    v1 = Left(v1, 13) ^ v0, v3 = Left(v3, 16) ^ v2;
    v0 = Left(v0, 32);
    v2 += v1, v0 += v3;
    v1 = Left(v1, 17) ^ v2, v3 = Left(v3, 21) ^ v0;
    v2 = Left(v2, 32);
  }
  CAIRN_DEVICE void Take(uint64_t word) {
    v3 ^= word;
    Round(), Round();
    v0 ^= word;
  }
};
CAIRN_DEVICE uint64_t SipFingerprint(uint64_t key0, uint64_t key1, const NumberText& text) {
  SipRounds s{key0 ^ 0x736f6d6570736575, key1 ^ 0x646f72616e646f6d, key0 ^ 0x6c7967656e657261,
              key1 ^ 0x7465646279746573};
  int32_t at = 0;
  for (; text.length - at >= 8; at += 8) s.Take(text.Word(at));
  s.Take(static_cast<uint64_t>(text.length) << 56 | text.Word(at));  // behind the text are zeros
  s.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) s.Round();
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

inline constexpr uint64_t kCrossedKey = 0xDECAFCAFFE;  // kCrossingKey
CAIRN_DEVICE uint64_t JoinedFingerprints(uint64_t first, uint64_t second) {
  constexpr uint64_t kFactor = 0xc6a4a7935bd1e995;
  uint64_t joined = first ^ kFactor;
  joined ^= ShiftMixed(second * kFactor) * kFactor;
  joined *= kFactor;
  return ShiftMixed(ShiftMixed(joined) * kFactor);
}

}  // namespace cairn::cudnn::kernels
