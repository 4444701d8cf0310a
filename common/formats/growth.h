// Limits how much larger than a file its contents may be: numbers of a trained model hardly compress, so a file that
// expands far beyond its size was made to exhaust the memory.
#pragma once

#include <cstdint>

#include "common/formats/limits.h"

namespace cairn {

inline constexpr uint64_t kGrowthFreeBytes = uint64_t{64}
                                             << 20;  // small contents are allowed: zeros compress a thousandfold

constexpr bool GrowsTooMuch(uint64_t stored_bytes, uint64_t bytes) {
  return bytes > kGrowthFreeBytes && bytes / kGrowthMax > stored_bytes;
}

}  // namespace cairn
