// 64-bit words in bytes, little-endian, whatever the machine's order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cairn {

inline void AppendWord(uint64_t word, std::string* out) {
  for (int shift = 0; shift < 64; shift += 8) out->push_back(static_cast<char>(word >> shift));
}

// at + 8 <= bytes.size().
inline uint64_t WordAt(std::string_view bytes, size_t at) {
  uint64_t word = 0;
  for (size_t i = 0; i < 8; ++i) word |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[at + i])) << 8 * i;
  return word;
}

}  // namespace cairn
