// A chunk of an HDF5 array, as a file may hold it, with any filters: just the chunk's bytes, or an error.
//
//   input := element_bytes:u8 elements:u8 skipped:u8 n:u8 filter:u8^(n modulo 5) Rest
#include "common/base/check.h"
#include "common/formats/hdf5_filters.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  ByteSource in(data, size);
  const size_t element_bytes = in.Below(8) + 1;
  const uint64_t chunk_bytes = element_bytes * in.Byte();
  const uint32_t skipped = in.Byte();
  std::vector<Hdf5Filter> filters(in.Below(5));
  for (Hdf5Filter& filter : filters) filter = static_cast<Hdf5Filter>(in.Below(3));
  const std::string_view stored = in.Bytes(StoredChunkBytesMax(chunk_bytes));
  const auto bytes = UndoHdf5Filters({stored.begin(), stored.end()}, filters, skipped, element_bytes, chunk_bytes);
  CAIRN_CHECK(!bytes.ok() || bytes->size() == chunk_bytes, "not a chunk's bytes");
  return 0;
}
