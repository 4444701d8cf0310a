#include "common/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

#include "common/base/words.h"

namespace cairn {
namespace {

constexpr uint32_t kMask = 0xa282ead8;
constexpr size_t kPartBytes = size_t{1} << 30;  // ISA-L counts in int

std::string_view Bytes(const void* from, size_t size) { return {static_cast<const char*>(from), size}; }

}  // namespace

uint32_t Crc32c(const void* data, size_t size) {
  auto* bytes = const_cast<unsigned char*>(static_cast<const unsigned char*>(data));  // ISA-L only reads
  uint32_t crc = ~uint32_t{0};
  while (size > 0) {
    const size_t part = std::min(size, kPartBytes);
    crc = crc32_iscsi(bytes, static_cast<int>(part), crc);
    bytes += part;
    size -= part;
  }
  return ~crc;
}

uint32_t MaskedCrc32c(const void* data, size_t size) {
  const uint32_t crc = Crc32c(data, size);
  return ((crc >> 15) | (crc << 17)) + kMask;
}

void AppendRecord(std::string_view data, std::string* out) {
  const size_t at = out->size();
  AppendWord(data.size(), out);
  AppendLittleEndian(MaskedCrc32c(out->data() + at, 8), 4, out);
  out->append(data);
  AppendLittleEndian(MaskedCrc32c(data.data(), data.size()), 4, out);
}

bool ParseRecordHeader(const void* header, uint64_t* length) {
  const std::string_view bytes = Bytes(header, kRecordHeaderBytes);
  if (ReadLittleEndian(bytes.substr(8)) != MaskedCrc32c(header, 8)) return false;
  *length = WordAt(bytes, 0);
  return true;
}

bool RecordIsWhole(std::string_view data, const void* footer) {
  return ReadLittleEndian(Bytes(footer, kRecordFooterBytes)) == MaskedCrc32c(data.data(), data.size());
}

}  // namespace cairn
