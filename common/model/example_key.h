// What an example of data.external is: its split and its index, as the 8 bytes of a batch's input. The index stands
// first, little-endian; the last byte is the split.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "cairn/v1/types.pb.h"
#include "common/model/limits.h"

namespace cairn {

inline constexpr int64_t kExampleKeyBytes = 8;
inline constexpr int kExampleIndexBytes = 7;
static_assert(kExternalExamplesMax < int64_t{1} << (8 * kExampleIndexBytes));

struct ExampleKey {
  v1::Split split = v1::TRAIN;
  int64_t index = 0;
};

inline void WriteExampleKey(const ExampleKey& key, uint8_t* to) {
  for (int i = 0; i < kExampleIndexBytes; ++i)
    to[i] = static_cast<uint8_t>(static_cast<uint64_t>(key.index) >> (8 * i));
  to[kExampleIndexBytes] = static_cast<uint8_t>(key.split);
}

inline ExampleKey ReadExampleKey(const uint8_t* from) {
  uint64_t index = 0;
  for (int i = 0; i < kExampleIndexBytes; ++i) index |= static_cast<uint64_t>(from[i]) << (8 * i);
  return {static_cast<v1::Split>(from[kExampleIndexBytes]), static_cast<int64_t>(index)};
}

}  // namespace cairn
