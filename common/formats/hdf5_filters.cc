#include "common/formats/hdf5_filters.h"

#include <zlib.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

constexpr size_t kChecksumBytes = 4;

using Bytes = std::vector<uint8_t>;

absl::StatusOr<Bytes> Inflate(const Bytes& in, size_t size_max) {
  Bytes out(size_max);
  uLongf size = out.size();
  if (uncompress(out.data(), &size, in.data(), in.size()) != Z_OK) {
    return DamagedHdf5(absl::StrCat("a compressed chunk does not give at most ", size_max, " bytes"));
  }
  out.resize(size);
  return out;
}

Bytes Unshuffle(const Bytes& in, size_t element_bytes) {
  const size_t count = in.size() / element_bytes;
  Bytes out = in;  // a remainder at the end is not shuffled
  for (size_t b = 0; b < element_bytes; ++b) {
    for (size_t i = 0; i < count; ++i) out[i * element_bytes + b] = in[b * count + i];
  }
  return out;
}

// Fletcher's sums over big-endian words of 16 bits, modulo 65535.
uint32_t Fletcher32(const Bytes& bytes, size_t size) {
  const auto fold = [](uint32_t sum) { return (sum & 0xffff) + (sum >> 16); };
  uint32_t first = 0, second = 0;
  for (size_t i = 0; i < size; i += 2) {
    first = fold(first + (uint32_t{bytes[i]} << 8) + (i + 1 < size ? bytes[i + 1] : 0));
    second = fold(second + first);
  }
  return second << 16 | first;
}

absl::Status CheckFletcher32(Bytes& bytes) {
  if (bytes.size() < kChecksumBytes) return DamagedHdf5("a chunk is shorter than its checksum");
  const size_t size = bytes.size() - kChecksumBytes;
  uint32_t stored = 0;
  std::memcpy(&stored, bytes.data() + size, sizeof(stored));
  if (stored != Fletcher32(bytes, size)) return DamagedHdf5("the checksum of a chunk is wrong");
  bytes.resize(size);
  return absl::OkStatus();
}

}  // namespace

absl::Status DamagedHdf5(absl::string_view what) {
  return absl::DataLossError(absl::StrCat(what, "; the file is damaged"));
}

absl::StatusOr<Bytes> UndoHdf5Filters(Bytes stored, const std::vector<Hdf5Filter>& filters, uint32_t skipped,
                                      size_t element_bytes, uint64_t chunk_bytes) {
  for (size_t f = filters.size(); f-- > 0;) {
    if ((skipped >> f & 1) != 0) continue;
    switch (filters[f]) {
      case Hdf5Filter::kShuffle: stored = Unshuffle(stored, element_bytes); break;
      case Hdf5Filter::kDeflate: {
        CAIRN_ASSIGN_OR_RETURN(stored, Inflate(stored, StoredChunkBytesMax(chunk_bytes)));
        break;
      }
      case Hdf5Filter::kFletcher32: CAIRN_RETURN_IF_ERROR(CheckFletcher32(stored)); break;
    }
  }
  if (stored.size() != chunk_bytes)
    return DamagedHdf5(absl::StrCat("a chunk holds ", stored.size(), " bytes, not ", chunk_bytes));
  return stored;
}

}  // namespace cairn
