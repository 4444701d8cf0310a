// Encodes integers of at most 8 bytes in a given byte order, independent of the machine's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cairn {

inline void AppendLittleEndian(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}
inline uint64_t ReadLittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

inline void AppendBigEndian(uint64_t value, int bytes, std::string* out) {
  for (int i = bytes; i-- > 0;) out->push_back(static_cast<char>(value >> (8 * i)));
}
inline uint64_t ReadBigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

// 64 bits, little-endian.
inline void AppendWord(uint64_t word, std::string* out) { AppendLittleEndian(word, 8, out); }
// at + 8 <= bytes.size().
inline uint64_t WordAt(std::string_view bytes, size_t at) { return ReadLittleEndian(bytes.substr(at, 8)); }

}  // namespace cairn
