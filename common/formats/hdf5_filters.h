// The filters of a chunked HDF5 array, undone. They are undone here, because the library (1.10) takes a chunk that
// holds less than it should for a whole one and copies what lies behind it in memory.
//
//   chunk := filters applied, in the order of the array's list, to the elements of one box of the array, row by row
//   shuffle    first bytes of all elements, then all second bytes, ...
//   deflate    a zlib stream
//   fletcher32 the bytes, then their checksum (uint32, little-endian)
//
// Free functions; any thread. Invariant: the result has just as many bytes as a chunk has.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace cairn {

enum class Hdf5Filter { kShuffle, kDeflate, kFletcher32 };

// DATA_LOSS: what is wrong, and that the file is damaged.
absl::Status DamagedHdf5(absl::string_view what);

// What may stand in a file for a chunk of so many bytes: one that is compressed and did not shrink is a little longer.
constexpr uint64_t StoredChunkBytesMax(uint64_t chunk_bytes) { return chunk_bytes + chunk_bytes / 64 + 1024; }

// `stored`: at most StoredChunkBytesMax(chunk_bytes). skipped: a bit for each filter that was left out of this chunk.
// element_bytes >= 1. Errors: DATA_LOSS.
absl::StatusOr<std::vector<uint8_t>> UndoHdf5Filters(std::vector<uint8_t> stored,
                                                     const std::vector<Hdf5Filter>& filters, uint32_t skipped,
                                                     size_t element_bytes, uint64_t chunk_bytes);

}  // namespace cairn
