// A chunked HDF5 array: the library finds the chunks, hdf5_filters.h undoes their filters. A chunk that sticks out of
// the array is stored whole.
//
// A free function; the caller holds the library's lock. Invariant: a chunk is bounded before it is read.
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
