// The seed of a test that draws what it tries: the same in every run, so that a failure is one of the change at hand.
// CAIRN_TEST_SEED tries others.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace cairn {

inline uint32_t TestSeed() {
  const char* given = std::getenv("CAIRN_TEST_SEED");
  return given == nullptr ? 20261124u : static_cast<uint32_t>(std::strtoul(given, nullptr, 10));
}

}  // namespace cairn
