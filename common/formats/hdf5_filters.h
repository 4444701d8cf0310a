// Undoes the filters of a chunked HDF5 array. The library (1.10) is not used for this, because it does not notice a
// chunk that is too short and copies the memory after it.
//
//   chunk := the filters, applied in the order of the array's list to the elements of one box of the array, row by row
//   shuffle    first bytes of all elements, then all second bytes, ...
//   deflate    a zlib stream
//   fletcher32 the bytes, then their checksum (uint32, little-endian)
//
// Free functions; any thread. Invariant: the result has exactly the size of a chunk.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace cairn {

enum class Hdf5Filter { kShuffle, kDeflate, kFletcher32 };

// DATA_LOSS that names the problem and says that the file is damaged.
absl::Status DamagedHdf5(absl::string_view what);

// The largest stored size of a chunk of this many bytes: incompressible data grows a little.
constexpr uint64_t StoredChunkBytesMax(uint64_t chunk_bytes) { return chunk_bytes + chunk_bytes / 64 + 1024; }

// `stored`: at most StoredChunkBytesMax(chunk_bytes). skipped: a bit for each filter that was not applied to the chunk.
// element_bytes >= 1. Errors: DATA_LOSS.
absl::StatusOr<std::vector<uint8_t>> UndoHdf5Filters(std::vector<uint8_t> stored,
                                                     const std::vector<Hdf5Filter>& filters, uint32_t skipped,
                                                     size_t element_bytes, uint64_t chunk_bytes);

}  // namespace cairn
