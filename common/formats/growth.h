// How much larger than a file what it says may be: numbers of a trained model hardly shrink, so that a file which grows
// far beyond its size is one that was made to fill the memory.
#pragma once

#include <cstdint>

#include "common/formats/limits.h"

namespace cairn {

inline constexpr uint64_t kGrowthFreeBytes = uint64_t{64}
                                             << 20;  // small ones are not suspected: zeros shrink a thousandfold

constexpr bool GrowsTooMuch(uint64_t stored_bytes, uint64_t bytes) {
  return bytes > kGrowthFreeBytes && bytes / kGrowthMax > stored_bytes;
}

}  // namespace cairn
