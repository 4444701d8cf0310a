// Bytes of a .safetensors file: no crash, nothing allocated beyond the file; what is read covers the data. The header
// alone says the same.
#include <string>

#include "common/base/check.h"
#include "common/formats/safetensors.h"
#include "common/tensor/dtype.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const cairn::Buffer bytes = cairn::Buffer::CopyOf(data, size);
  const auto file = cairn::ParseSafetensors(bytes, "input");
  const auto range = [&](uint64_t begin, uint64_t wanted) -> absl::StatusOr<std::string> {
    CAIRN_CHECK(begin <= size && wanted <= size - begin, "a range beyond the file");
    return std::string(reinterpret_cast<const char*>(data) + begin, wanted);
  };
  const auto header = cairn::ReadSafetensorsHeader(range, size, "input");
  CAIRN_CHECK(header.status() == file.status(), "the header alone says something else");
  if (!file.ok()) return 0;
  size_t total = 0;
  for (const cairn::Safetensor& t : file->tensors) {
    CAIRN_CHECK(t.data.size() == static_cast<size_t>(cairn::NumElements(t.shape)) * cairn::SizeOf(t.dtype), "size");
    for (size_t i = 0; i < t.data.size(); ++i) total += t.data.data()[i] * 0 + 1;  // every byte can be read
  }
  CAIRN_CHECK(total <= size, "more data than the file has");
  return 0;
}
