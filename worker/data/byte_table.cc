#include <utility>

#include "common/base/check.h"
#include "worker/data/table.h"

namespace cairn {

ByteTable::ByteTable(Buffer pixels, std::vector<uint8_t> labels, int64_t example_size)
    : pixels_(std::move(pixels)), labels_(std::move(labels)), example_size_(example_size) {
  CAIRN_CHECK(pixels_.size() == labels_.size() * static_cast<size_t>(example_size), "pixels and labels do not match");
}

absl::Status ByteTable::Read(int64_t index, float* example, float* label) const {
  BytesToFloats(pixels_.data() + index * example_size_, example_size_, example);
  *label = labels_[index];
  return absl::OkStatus();
}

void BytesToFloats(const uint8_t* in, int64_t count, float* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = in[i];
}

}  // namespace cairn
