// SharedArena and ArenaView: memory of one process that others of its host may read.
//
// The owner makes buffers of it and tells another process where bytes lie, in place of sending them
// (common/shared_memory/shared_link.h).
//
// SharedArena: thread-safe. Invariants: 1. Memory that is not taken is the system's: of the arena's size, only what is
// in use costs something. 2. No process of another user can write to it. One of the same user that was given it can
// have the system open it for writing: let only bytes lie there that do no harm whatever they are, as numbers.
//
// ArenaView: any thread. Invariants: 1. No access leaves the arena, and reading never faults, whatever its owner does.
// 2. The owner may change what is read: copy it once, and let nothing depend on reading it twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/base/files.h"
#include "common/base/page_source.h"
#include "common/base/status.h"

namespace cairn {

class SharedArena : public PageSource {
 public:
  // bytes: of address space; memory is used as it is taken and written to. Errors: UNIMPLEMENTED, RESOURCE_EXHAUSTED
  // say what the system refused.
  static absl::StatusOr<std::unique_ptr<SharedArena>> Create(size_t bytes);
  ~SharedArena() override;

  void* Take(size_t bytes) override;
  void Give(void* p, size_t bytes) override;
  void Discard(void* p, size_t bytes) override;
  bool Contains(const void* p) const override { return OffsetOf(p, 1).has_value(); }
  size_t bytes_used() const override;

  // Where these bytes lie; nullopt: not in the arena.
  std::optional<uint64_t> OffsetOf(const void* p, size_t bytes) const;
  // For another process, which can only read. Errors: the system's.
  absl::StatusOr<FileDescriptor> OpenReadOnly() const;
  size_t size() const { return size_; }

 private:
  SharedArena(FileDescriptor fd, uint8_t* data, size_t size) : fd_(std::move(fd)), data_(data), size_(size) {
    free_[0] = size;
  }

  const FileDescriptor fd_;
  uint8_t* const data_;
  const size_t size_;
  absl::Mutex mutex_;
  std::map<size_t, size_t> free_ ABSL_GUARDED_BY(mutex_);  // offset -> bytes; no two of them touch
};

class ArenaView {
 public:
  // fd: what the owner opened for this process. bytes_max: a larger one is an error. Errors: INVALID_ARGUMENT: it is no
  // arena; PERMISSION_DENIED: it is another user's; the system's.
  static absl::StatusOr<ArenaView> Open(FileDescriptor fd, size_t bytes_max);
  ArenaView(ArenaView&& other) noexcept
      : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  ArenaView& operator=(ArenaView&&) = delete;
  ~ArenaView();

  bool Has(uint64_t offset, size_t bytes) const { return offset <= size_ && bytes <= size_ - offset; }
  // REQUIRED: Has(offset, bytes). nullopt: a part of it was never written to, or was taken away.
  std::optional<absl::Span<const uint8_t>> Find(uint64_t offset, size_t bytes) const;
  size_t size() const { return size_; }

 private:
  ArenaView(FileDescriptor fd, const uint8_t* data, size_t size) : fd_(std::move(fd)), data_(data), size_(size) {}
  bool IsThere(uint64_t offset, size_t bytes) const;  // in memory

  FileDescriptor fd_;
  const uint8_t* data_;
  size_t size_;
};

}  // namespace cairn
