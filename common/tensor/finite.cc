#include "common/tensor/finite.h"

#include <bit>
#include <cstdint>

#include "common/tensor/vectorize.h"

namespace cairn {
namespace {

// Infinity and NaN have an exponent of all ones.
CAIRN_VECTORIZED bool NoneHasAllOnesAsExponent(const float* __restrict numbers, int64_t n) {
  uint32_t bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(numbers[i]);
    bad |= (bits & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
  }
  return bad == 0;
}

}  // namespace

bool AllFinite(absl::Span<const float> numbers) {
  return NoneHasAllOnesAsExponent(numbers.data(), static_cast<int64_t>(numbers.size()));
}

}  // namespace cairn
