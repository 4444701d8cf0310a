// A chunked HDF5 array. The library finds the chunks; their filters are undone here, because it (1.10) takes a chunk that
// holds less than it should for a whole one and copies what lies behind it in memory.
//
//   chunk := filters applied, in the order of the array's list, to the elements of one box of the array, row by row; a box
//            that sticks out of the array is stored whole
//   shuffle    first bytes of all elements, then all second bytes, ...
//   deflate    a zlib stream
//   fletcher32 the bytes, then their checksum (uint32, little-endian)
//
// A free function; the caller holds the library's lock. Invariant: a chunk is bounded before it is read, and gives just as
// many bytes as a chunk has.
#pragma once

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/formats/hdf5_handle.h"
#include "common/tensor/buffer.h"

namespace cairn {

// An array of this type (floating-point numbers) and shape, whose list of properties is `plist`. out.size() ==
// NumElements(shape). Errors: DATA_LOSS; UNIMPLEMENTED another filter.
absl::Status ReadHdf5Chunks(hid_t dataset, hid_t plist, hid_t type, const Shape& shape, absl::Span<float> out);

}  // namespace cairn
