#include "common/tensor/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/tensor/buffer_pages.h"

namespace cairn {
namespace {

PageSource* shared_pages = nullptr;  // null: there are none

// Memory of large buffers, in whole pages outside the heap. Tensors come in few sizes, over and over: freed memory is
// kept for the next buffer of the same size, so that its pages need not be mapped (and zeroed) again. In the heap,
// small blocks would settle in the gaps that tensors leave: a ps with 64 MiB of parameters grew to twice its size.
// Thread-safe.
class LargeMemory {
 public:
#ifdef __SANITIZE_ADDRESS__
  static constexpr size_t kBytesMin = SIZE_MAX;  // the sanitizer checks only the heap
#else
  static constexpr size_t kBytesMin = size_t{128} << 10;  // smaller buffers are in the heap
#endif
  static constexpr size_t kPageBytes = 4096;
  // Memory kept idle: up to as much as is in use, which covers the variation during a step, and at least this much.
  static constexpr size_t kIdleBytesMin = size_t{32} << 20;

  static LargeMemory& Get() {
    static LargeMemory* const memory = new LargeMemory;  // never destroyed: buffers may outlive all static objects
    return *memory;
  }

  void* Allocate(size_t bytes) {
    const size_t size = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    {
      absl::MutexLock lock(&mutex_);
      in_use_ += size;
      if (const auto it = idle_.find(size); it != idle_.end()) {
        void* p = it->second;
        idle_.erase(it);
        idle_bytes_ -= size;
        return p;
      }
    }
    void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CAIRN_CHECK(
        p != MAP_FAILED,
        "out of memory: the system refuses this process more (ulimit -v, a limit of its container, or the machine's "
        "memory); give it more, or a worker smaller batches, or the job another ps");
    return p;
  }

  void Free(void* p, size_t bytes) {
    const size_t size = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    absl::MutexLock lock(&mutex_);
    in_use_ -= size;
    idle_.emplace(size, p);
    idle_bytes_ += size;
    while (idle_bytes_ > std::max(kIdleBytesMin, in_use_)) {
      const auto largest = std::prev(idle_.end());
      munmap(largest->second, largest->first);
      idle_bytes_ -= largest->first;
      idle_.erase(largest);
    }
  }

 private:
  absl::Mutex mutex_;
  std::multimap<size_t, void*> idle_ ABSL_GUARDED_BY(mutex_);  // by size
  size_t idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t in_use_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

Buffer Buffer::Allocate(size_t bytes) {
  Buffer b;
  if (bytes == 0) return b;
  b.size_ = bytes;
  if (bytes >= LargeMemory::kBytesMin) {
    b.data_ = std::shared_ptr<uint8_t>(static_cast<uint8_t*>(LargeMemory::Get().Allocate(bytes)),
                                       [bytes](uint8_t* q) { LargeMemory::Get().Free(q, bytes); });
    return b;
  }
  void* p = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  CAIRN_CHECK(p != nullptr, "out of memory");
  b.data_ = std::shared_ptr<uint8_t>(static_cast<uint8_t*>(p), [](uint8_t* q) { std::free(q); });
  return b;
}

void SetSharedPages(PageSource* pages) { shared_pages = pages; }

size_t SharedPagesUsed() { return shared_pages == nullptr ? 0 : shared_pages->bytes_used(); }

Buffer AllocateInSharedPages(size_t bytes) {
  if (shared_pages == nullptr || bytes < LargeMemory::kBytesMin) return Buffer::Allocate(bytes);
  void* const p = shared_pages->Take(bytes);
  if (p == nullptr) return Buffer::Allocate(bytes);
  return Buffer::Wrap(std::shared_ptr<void>(p, [bytes](void* q) { shared_pages->Give(q, bytes); }), p, bytes);
}

Buffer Buffer::Zeros(size_t bytes) {
  Buffer b = Allocate(bytes);
  if (bytes > 0) std::memset(b.mutable_data(), 0, bytes);
  return b;
}

Buffer Buffer::CopyOf(const void* data, size_t bytes) {
  Buffer b = Allocate(bytes);
  if (bytes > 0) std::memcpy(b.mutable_data(), data, bytes);
  return b;
}

Buffer Buffer::Wrap(std::shared_ptr<const void> owner, const void* data, size_t bytes) {
  Buffer b;
  // The aliasing constructor keeps `owner` alive; data() restores the const.
  b.data_ = std::shared_ptr<uint8_t>(std::const_pointer_cast<void>(std::move(owner)),
                                     static_cast<uint8_t*>(const_cast<void*>(data)));
  b.size_ = bytes;
  return b;
}

void Buffer::Discard(size_t offset, size_t bytes) {
  CAIRN_CHECK(offset <= size_ && bytes <= size_ - offset, "discarded range outside of the buffer");
  if (size_ < LargeMemory::kBytesMin) return;  // it is in the heap
  constexpr uintptr_t kPage = LargeMemory::kPageBytes;
  const auto begin = (reinterpret_cast<uintptr_t>(data_.get()) + offset + kPage - 1) / kPage * kPage;
  // The last page belongs to this buffer alone.
  const bool to_end = offset + bytes == size_;
  const auto end =
      (reinterpret_cast<uintptr_t>(data_.get()) + offset + bytes + (to_end ? kPage - 1 : 0)) / kPage * kPage;
  if (begin >= end) return;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the address of a page
  void* const p = reinterpret_cast<void*>(begin);
  if (shared_pages != nullptr && shared_pages->Contains(p)) return shared_pages->Discard(p, end - begin);
  madvise(p, end - begin, MADV_DONTNEED);
}

Buffer Buffer::Slice(size_t offset, size_t bytes) const {
  CAIRN_CHECK(offset <= size_ && bytes <= size_ - offset, "slice outside of the buffer");
  Buffer b;
  b.data_ = std::shared_ptr<uint8_t>(data_, data_.get() + offset);
  b.size_ = bytes;
  return b;
}

int64_t NumElements(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

std::string ToString(const Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ","), "]"); }

}  // namespace cairn
