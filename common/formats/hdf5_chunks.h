// Reads a chunked HDF5 array: the library locates the chunks, hdf5_filters.h undoes their filters. A chunk that extends
// beyond the array is stored whole.
//
// A free function; the caller holds the library's lock. Invariant: a chunk's size is checked before it is read.
#pragma once

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/formats/hdf5_handle.h"
#include "common/tensor/buffer.h"

namespace cairn {

// Reads an array of this type (floating-point numbers) and shape, with the property list `plist`. out.size() ==
// NumElements(shape). Errors: DATA_LOSS; UNIMPLEMENTED: another filter.
absl::Status ReadHdf5Chunks(hid_t dataset, hid_t plist, hid_t type, const Shape& shape, absl::Span<float> out);

}  // namespace cairn
