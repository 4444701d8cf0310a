// BlockPool: recycles the memory of batches when their last reference is dropped. Fresh memory of this size would cause
// page faults each time.
//
// Thread-safe. Invariants:
//   1. A block returns to the pool when its last reference is dropped. Blocks may outlive the pool's owner.
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

// Must be owned by a shared_ptr: blocks in use hold the pool.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  BlockPool(size_t block_bytes, size_t kept_max) : block_bytes_(block_bytes), kept_max_(kept_max) {}

  // Returns a block with arbitrary contents.
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
    // The deleter owns the block and returns it to the pool instead of freeing it.
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
