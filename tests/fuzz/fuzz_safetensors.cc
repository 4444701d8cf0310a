// Bytes of a .safetensors file: no crash, nothing allocated beyond the file; what is read covers the data.
#include "common/base/check.h"
#include "common/formats/safetensors.h"
#include "common/tensor/dtype.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const cairn::Buffer bytes = cairn::Buffer::CopyOf(data, size);
  const auto file = cairn::ParseSafetensors(bytes, "input");
  if (!file.ok()) return 0;
  size_t total = 0;
  for (const cairn::Safetensor& t : file->tensors) {
    CAIRN_CHECK(t.data.size() == static_cast<size_t>(cairn::NumElements(t.shape)) * cairn::SizeOf(t.dtype), "size");
    for (size_t i = 0; i < t.data.size(); ++i) total += t.data.data()[i] * 0 + 1;  // every byte can be read
  }
  CAIRN_CHECK(total <= size, "more data than the file has");
  return 0;
}
