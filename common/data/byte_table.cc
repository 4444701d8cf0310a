#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/data/table.h"

namespace cairn {

absl::Status ExampleTable::ReadBytes(int64_t, uint8_t*, float*) const {
  CAIRN_CHECK(false, "asked of tables of bytes only");
  return absl::OkStatus();
}

ByteTable::ByteTable(Buffer pixels, std::vector<uint8_t> labels, int64_t example_size)
    : pixels_(std::move(pixels)), labels_(std::move(labels)), example_size_(example_size) {
  CAIRN_CHECK(pixels_.size() == labels_.size() * static_cast<size_t>(example_size), "pixels and labels do not match");
}

absl::Status ByteTable::Read(int64_t index, float* example, float* label) const {
  BytesToFloats(pixels_.data() + index * example_size_, example_size_, example);
  *label = labels_[index];
  return absl::OkStatus();
}

absl::Status ByteTable::ReadBytes(int64_t index, uint8_t* example, float* label) const {
  std::memcpy(example, pixels_.data() + index * example_size_, static_cast<size_t>(example_size_));
  *label = labels_[index];
  return absl::OkStatus();
}

}  // namespace cairn
