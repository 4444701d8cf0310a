// HeldPayloads: what a sender's messages name in its arena: where payloads lie there, and the payloads until their
// messages have been read.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/shared_memory/byte_ring.h"
#include "common/shared_memory/limits.h"
#include "common/shared_memory/shared_arena.h"

namespace cairn {

class HeldPayloads {
 public:
  // arena: outlives this; null: there is none.
  explicit HeldPayloads(const SharedArena* arena) : arena_(arena) {}

  // nullopt: the payload is sent in the ring.
  std::optional<ArenaPlace> PlaceOf(absl::Span<const uint8_t> payload) const {
    if (arena_ == nullptr || payload.size() < kReferenceBytesMin) return std::nullopt;
    const std::optional<uint64_t> offset = arena_->OffsetOf(payload.data(), payload.size());
    if (!offset.has_value()) return std::nullopt;
    return ArenaPlace{*offset, static_cast<uint32_t>(payload.size())};
  }
  // message_end: of the ring's bytes ever written.
  void Hold(uint64_t message_end, size_t bytes, std::shared_ptr<const void> owner) {
    absl::MutexLock lock(&mutex_);
    held_.push_back({message_end, bytes, std::move(owner)});
    bytes_ += bytes;
    first_end_ = held_.front().message_end;
  }
  // read: of the ring's bytes, as the other end claims: if it claims too much it alone gets what it did not expect.
  void Release(uint64_t read) {
    if (read < first_end_) return;
    std::deque<Held> released;  // without the lock
    absl::MutexLock lock(&mutex_);
    while (!held_.empty() && held_.front().message_end <= read) {
      bytes_ -= held_.front().bytes;
      released.push_back(std::move(held_.front()));
      held_.pop_front();
    }
    first_end_ = held_.empty() ? kNone : held_.front().message_end;
  }
  // How far the other end must have read before so many bytes may be held too; 0: they may be now. Half of all are
  // released then, so that the two threads change over less often. A single payload may always be held.
  uint64_t AwaitedFor(size_t bytes) const {
    absl::MutexLock lock(&mutex_);
    if (held_.empty() || bytes_ + bytes <= kReferencedBytesMax) return 0;
    size_t left = bytes_;
    for (const Held& held : held_) {
      left -= held.bytes;
      if (left + bytes <= kReferencedBytesMax / 2 || left == 0) return held.message_end;
    }
    return 0;
  }

 private:
  struct Held {
    uint64_t message_end = 0;
    size_t bytes = 0;
    std::shared_ptr<const void> owner;
  };

  static constexpr uint64_t kNone = ~uint64_t{0};

  const SharedArena* const arena_;
  std::atomic<uint64_t> first_end_{kNone};  // message_end of the first one
  mutable absl::Mutex mutex_;
  std::deque<Held> held_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn
