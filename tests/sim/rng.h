// The simulator's only source of randomness: everything in a run is a function of its seed.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace cairn::sim {

// SplitMix64 (Steele, Lea, Flood, OOPSLA'14).
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // [low, high]
  int64_t Between(int64_t low, int64_t high) { return low + static_cast<int64_t>(Next() % (high - low + 1)); }
  bool Chance(double p) { return static_cast<double>(Next() >> 11) * 0x1p-53 < p; }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return absl::Microseconds(Between(absl::ToInt64Microseconds(low), absl::ToInt64Microseconds(high)));
  }
  template <typename T>
  auto& Pick(T& items) {
    return items[static_cast<size_t>(Between(0, static_cast<int64_t>(items.size()) - 1))];
  }

 private:
  uint64_t state_;
};

}  // namespace cairn::sim
