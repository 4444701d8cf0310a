// Buffer: reference-counted bytes, aligned to 64, and Shape.
//
// Copies share the bytes. Thread rule: the count is thread-safe; the bytes follow the owner's rule (written by one,
// before it is shared).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace cairn {

class Buffer {
 public:
  Buffer() = default;
  // Uninitialized bytes. size may be 0.
  static Buffer Allocate(size_t bytes);
  static Buffer Zeros(size_t bytes);
  static Buffer CopyOf(const void* data, size_t bytes);
  // Bytes owned by someone else, kept alive by `owner`.
  static Buffer Wrap(std::shared_ptr<const void> owner, const void* data, size_t bytes);

  const uint8_t* data() const { return data_.get(); }
  uint8_t* mutable_data() { return data_.get(); }  // only while the bytes are not shared with a reader
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // True: what others did with the bytes before they released them happened before this, so that they may be written
  // to.
  bool unique() const {
    if (data_.use_count() != 1) return false;
#ifdef __SANITIZE_THREAD__  // it knows of no fences, but of what changes the count
    const std::shared_ptr<uint8_t> acquired = data_;
#else
    std::atomic_thread_fence(std::memory_order_acquire);
#endif
    return true;
  }

  // The same bytes as float32; size() is a multiple of 4.
  absl::Span<const float> floats() const { return {reinterpret_cast<const float*>(data()), size_ / 4}; }
  absl::Span<float> mutable_floats() { return {reinterpret_cast<float*>(mutable_data()), size_ / 4}; }

  // The memory of the whole pages of this range goes back to the system; the bytes are 0, or as they were, when they
  // are read again. Of a buffer that Allocate gave, not of a slice of one.
  void Discard(size_t offset, size_t bytes);

  // offset + bytes <= size(). Shares the bytes.
  Buffer Slice(size_t offset, size_t bytes) const;

 private:
  std::shared_ptr<uint8_t> data_;
  size_t size_ = 0;
};

// Dimensions of a tensor, outermost first.
using Shape = std::vector<int64_t>;
int64_t NumElements(const Shape& shape);   // 1 for a scalar
std::string ToString(const Shape& shape);  // "[28,28,1]"

}  // namespace cairn
