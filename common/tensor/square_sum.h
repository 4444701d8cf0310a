// SquareSum: a sum of squares of float32 numbers that has the same bits however the numbers are split into runs, and
// in whatever order the runs are added. Norms over several partitions are computed from it.
//
// A plain value, 80 bytes. Why it is exact:
//   - The square of a float32 has 48 bits: float64 holds it exactly.
//   - Blocks of 16 numbers (kSpaceAlignment: no partition and no variable begins within one) are summed in float64 in a
//     fixed tree: the only rounding, by less than 2^-51 of the sum, and the same for every split.
//   - A block's sum is a multiple of 2^-298 and below 2^260. It is added to a fixed-point number of 640 bits, 320 of
//     them below the point, with integer additions, which are exact and associative. 2^36 numbers sum to less than
//     2^296: it cannot overflow.
// An infinity or a NaN makes the sum not finite for good.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace cairn {

class SquareSum {
 public:
  static constexpr int kWords = 10;
  static constexpr size_t kBytes = kWords * sizeof(uint64_t);

  // Adds the squares of numbers[i] / divisor, with the quotients rounded to float32. The run must begin at a block
  // boundary.
  void Add(absl::Span<const float> numbers, float divisor);
  void Add(const SquareSum& other);

  bool finite() const { return words_[kWords - 1] >> 63 == 0; }
  // Within 2^-50 of the true root; NaN where the sum is not finite.
  double Root() const;

  // Appends 80 bytes, little-endian, lowest word first; all ones if the sum is not finite.
  void AppendTo(std::string* out) const;
  static SquareSum From(std::string_view bytes);  // of kBytes

  friend bool operator==(const SquareSum&, const SquareSum&) = default;

 private:
  void AddBlock(double sum);
  void Spoil() { words_.fill(~uint64_t{0}); }

  std::array<uint64_t, kWords> words_ = {};
};

}  // namespace cairn
