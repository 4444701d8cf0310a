// SharedRegion: memory that two processes of one host map, without a name: who has no descriptor of it cannot open it.
//
// Thread rule: Create and Open are functions; data() from any thread. Invariants: 1. Its size is sealed: no process can
// shrink it, so that reading it never faults. 2. It is unmapped when the object ends; children of fork do not have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/base/files.h"
#include "common/base/status.h"

namespace cairn {

class SharedRegion {
 public:
  // Zeros. Errors: RESOURCE_EXHAUSTED, UNIMPLEMENTED (the system has no such memory) say what the system refused.
  static absl::StatusOr<SharedRegion> Create(size_t bytes);
  // fd: what another process created. Errors: INVALID_ARGUMENT: it has another size, or is not sealed.
  static absl::StatusOr<SharedRegion> Open(FileDescriptor fd, size_t bytes);
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&&) = delete;
  ~SharedRegion();

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Of Create: to be handed to the other process; the memory stays mapped. Once.
  FileDescriptor TakeDescriptor() { return std::move(fd_); }

 private:
  SharedRegion(FileDescriptor fd, uint8_t* data, size_t size) : fd_(std::move(fd)), data_(data), size_(size) {}
  static absl::StatusOr<SharedRegion> Map(FileDescriptor fd, size_t bytes);

  FileDescriptor fd_;
  uint8_t* data_;
  size_t size_;
};

}  // namespace cairn
