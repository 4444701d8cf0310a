// Buffer: reference-counted bytes, aligned to 64 bytes; and Shape.
//
// Copies share the bytes. Thread rule: the reference count is thread-safe; the bytes are written by one owner, before
// they are shared.
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
  // True: this is the only reference, and all accesses through released ones happened before, so that the bytes may be
  // written.
  bool unique() const {
    if (data_.use_count() != 1) return false;
#ifdef __SANITIZE_THREAD__  // it does not model fences, but does model changes of the count
    const std::shared_ptr<uint8_t> acquired = data_;
#else
    std::atomic_thread_fence(std::memory_order_acquire);
#endif
    return true;
  }

  // The same bytes as float32; size() is a multiple of 4.
  absl::Span<const float> floats() const { return {reinterpret_cast<const float*>(data()), size_ / 4}; }
  absl::Span<float> mutable_floats() { return {reinterpret_cast<float*>(mutable_data()), size_ / 4}; }

  // Returns the memory of whole pages in this range to the system; the bytes then read as 0 or as before. Only for
  // buffers from Allocate, not for slices.
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
