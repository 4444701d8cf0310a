// Whether numbers are the same bits: -0 is not 0, and a NaN is itself.
#pragma once

#include <cstring>
#include <vector>

namespace cairn {

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace cairn
