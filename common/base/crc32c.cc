#include "common/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace cairn {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41, its bits in reverse
constexpr uint32_t kMask = 0xa282ead8;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

uint32_t ByTable(uint32_t crc, const uint8_t* data, size_t size) {
  for (; size > 0; --size) crc = (crc >> 8) ^ kTable[(crc ^ *data++) & 0xff];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ByInstruction(uint32_t crc, const uint8_t* data, size_t size) {
  uint64_t wide = crc;
  for (; size >= 8; size -= 8, data += 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; size > 0; --size) crc = _mm_crc32_u8(crc, *data++);
  return crc;
}
#endif

uint32_t LittleEndian32(const void* from) {
  uint8_t b[4];
  std::memcpy(b, from, 4);
  return uint32_t{b[0]} | uint32_t{b[1]} << 8 | uint32_t{b[2]} << 16 | uint32_t{b[3]} << 24;
}

void AppendLittleEndian(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

uint32_t Crc32c(const void* data, size_t size) {
  const uint8_t* bytes = static_cast<const uint8_t*>(data);
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~ByInstruction(~uint32_t{0}, bytes, size);
#endif
  return ~ByTable(~uint32_t{0}, bytes, size);
}

uint32_t MaskedCrc32c(const void* data, size_t size) {
  const uint32_t crc = Crc32c(data, size);
  return ((crc >> 15) | (crc << 17)) + kMask;
}

void AppendRecord(std::string_view data, std::string* out) {
  const size_t at = out->size();
  AppendLittleEndian(data.size(), 8, out);
  AppendLittleEndian(MaskedCrc32c(out->data() + at, 8), 4, out);
  out->append(data);
  AppendLittleEndian(MaskedCrc32c(data.data(), data.size()), 4, out);
}

bool ParseRecordHeader(const void* header, uint64_t* length) {
  const uint8_t* bytes = static_cast<const uint8_t*>(header);
  if (LittleEndian32(bytes + 8) != MaskedCrc32c(bytes, 8)) return false;
  *length = LittleEndian32(bytes) | uint64_t{LittleEndian32(bytes + 4)} << 32;
  return true;
}

bool RecordIsWhole(std::string_view data, const void* footer) {
  return LittleEndian32(footer) == MaskedCrc32c(data.data(), data.size());
}

}  // namespace cairn
