// BlockPool: memory for batches that is used again. A batch needs large blocks, and fresh memory of that size costs a
// page fault for each page.
//
// Thread-safe. Invariants:
//   1. A block goes back to the pool when the last reference to it is gone, also after the pool's owner has gone.
//   2. The pool keeps at most kept_max free blocks; more are freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/tensor/buffer.h"

namespace cairn {

// Owned by a shared_ptr: the blocks that are in use hold the pool.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  BlockPool(size_t block_bytes, size_t kept_max) : block_bytes_(block_bytes), kept_max_(kept_max) {}

  // A block with arbitrary contents.
  Buffer Take() {
    Buffer block;
    {
      absl::MutexLock lock(&mutex_);
      if (!kept_.empty()) {
        block = std::move(kept_.back());
        kept_.pop_back();
      }
    }
    if (block.empty()) block = Buffer::Allocate(block_bytes_);
    const uint8_t* data = block.data();
    // The deleter holds the block and gives it back instead of freeing it.
    std::shared_ptr<const void> owner(data, [pool = shared_from_this(), block = std::move(block)](const void*) mutable {
      pool->GiveBack(std::move(block));
    });
    return Buffer::Wrap(std::move(owner), data, block_bytes_);
  }

 private:
  void GiveBack(Buffer block) {
    absl::MutexLock lock(&mutex_);
    if (kept_.size() < kept_max_) kept_.push_back(std::move(block));
  }

  const size_t block_bytes_, kept_max_;
  absl::Mutex mutex_;
  std::vector<Buffer> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
