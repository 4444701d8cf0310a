#include "common/tensor/square_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/words.h"
#include "common/tensor/vectorize.h"

namespace cairn {
namespace {

constexpr int kBlock = 16;
static_assert(kBlock == kSpaceAlignment, "a block that a partition could cut would round differently on both sides");
constexpr int kBelowPoint = 320;  // bits
constexpr int64_t kBlocksAtOnce = 64;

// Adds in a tree: number j to j + 8, then to the next 4, 2 and 1.
CAIRN_VECTORIZED void SquareBlocks(const float* __restrict numbers, double* __restrict sums, int64_t blocks,
                                   float divisor) {
  for (int64_t b = 0; b < blocks; ++b) {
    double s[8];
    for (int j = 0; j < 8; ++j) {
      const double x = numbers[b * kBlock + j] / divisor, y = numbers[b * kBlock + j + 8] / divisor;
      s[j] = x * x + y * y;
    }
    for (int half = 4; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) s[j] += s[j + half];
    }
    sums[b] = s[0];
  }
}

}  // namespace

void SquareSum::Add(absl::Span<const float> numbers, float divisor) {
  double sums[kBlocksAtOnce];
  size_t at = 0;
  while (numbers.size() - at >= kBlock) {
    const int64_t blocks = std::min<int64_t>(kBlocksAtOnce, static_cast<int64_t>(numbers.size() - at) / kBlock);
    SquareBlocks(numbers.data() + at, sums, blocks, divisor);
    for (int64_t b = 0; b < blocks; ++b) AddBlock(sums[b]);
    at += static_cast<size_t>(blocks * kBlock);
  }
  if (at == numbers.size()) return;
  float last[kBlock] = {};  // the end of a variable, padded with zeros
  std::copy(numbers.begin() + static_cast<int64_t>(at), numbers.end(), last);
  SquareBlocks(last, sums, 1, divisor);
  AddBlock(sums[0]);
}

void SquareSum::AddBlock(double sum) {
  if (!finite()) return;
  if (!std::isfinite(sum)) return Spoil();
  if (sum == 0) return;
  const uint64_t bits = std::bit_cast<uint64_t>(sum);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);  // of a multiple of 2^-298: never subnormal
  const uint64_t mantissa = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  // mantissa * 2^(exponent - 1023 - 52). The trailing zeros of a small sum are below the bits of the last word.
  const int place = exponent - 1023 - 52 + kBelowPoint;
  CAIRN_CHECK(place >= -52 && place < 64 * (kWords - 1), "a sum of squares of float32");
  const int shift = std::max(place, 0) % 64;
  size_t word = static_cast<size_t>(std::max(place, 0) / 64);
  const unsigned __int128 term = static_cast<unsigned __int128>(place < 0 ? mantissa >> -place : mantissa) << shift;
  unsigned __int128 carry = term;
  for (; carry != 0 && word < kWords; ++word) {
    const unsigned __int128 total = static_cast<unsigned __int128>(words_[word]) + static_cast<uint64_t>(carry);
    words_[word] = static_cast<uint64_t>(total);
    carry = (carry >> 64) + (total >> 64);
  }
}

void SquareSum::Add(const SquareSum& other) {
  if (!finite() || !other.finite()) return Spoil();
  unsigned __int128 carry = 0;
  for (size_t i = 0; i < kWords; ++i) {
    carry += static_cast<unsigned __int128>(words_[i]) + other.words_[i];
    words_[i] = static_cast<uint64_t>(carry);
    carry >>= 64;
  }
  if (!finite()) Spoil();  // not a sum of parameters: bytes from a peer
}

double SquareSum::Root() const {
  if (!finite()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;  // starts at the lowest word: each is rounded once, and higher words dominate
  for (int i = 0; i < kWords; ++i) {
    sum += std::ldexp(static_cast<double>(words_[static_cast<size_t>(i)]), 64 * i - kBelowPoint);
  }
  return std::sqrt(sum);
}

void SquareSum::AppendTo(std::string* out) const {
  for (uint64_t word : words_) AppendWord(word, out);
}

SquareSum SquareSum::From(std::string_view bytes) {
  CAIRN_CHECK(bytes.size() == kBytes, "a SquareSum has 80 bytes");
  SquareSum sum;
  for (size_t i = 0; i < bytes.size(); ++i) {
    sum.words_[i / 8] |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << 8 * (i % 8);
  }
  if (!sum.finite()) sum.Spoil();
  return sum;
}

}  // namespace cairn
