// RingWriter and RingReader: messages in one direction between two processes, through memory that both may write.
//
// Thread rule: one thread at a time uses a writer, one a reader. Invariants, whatever the other process does to the
// memory:
//   1. No access leaves the ring; no count of the other end is used before it was checked against what is possible.
//   2. A message's header is copied before anybody looks at it. Its payload is in the ring or in the writer's arena,
//      and may change while it is read: copy it once, and let nothing depend on reading it twice.
//   3. A message is seen whole or not at all.
//
// Grammar, all numbers in the machine's own byte order, everything from multiples of 64 bytes (modulo the ring's size):
//   message := (A) uint32 header bytes   (B) uint32 payload bytes   (C) the header
//              padding to 64             (D) the payload            padding to 64
// With kInArena added to (B) the payload is in the writer's arena (shared_arena.h), and (D) is its uint64 offset there.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/shared_memory/shared_arena.h"

namespace cairn {

// What one end tells the other. In shared memory, zero at first. All accesses are sequentially consistent: SharedLink
// sleeps and wakes by them.
struct LinkEnd {
  alignas(64) std::atomic<uint64_t> written;      // bytes in its outgoing ring, ever
  alignas(64) std::atomic<uint64_t> read;         // bytes from its incoming ring, ever
  alignas(64) std::atomic<uint32_t> parked;       // 1: its thread sleeps (futex)
  alignas(64) std::atomic<uint32_t> room_wanted;  // wake it when so many bytes of its outgoing ring are free; 0: no
  std::atomic<uint32_t> closed;                   // 1: payloads in its arena may change, also those not yet read
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(LinkEnd) == 256);

// A payload in an arena.
struct ArenaPlace {
  uint64_t offset = 0;
  uint32_t bytes = 0;
};
inline constexpr uint32_t kInArena = uint32_t{1} << 31;

// Of one message, with its padding. The payload of one that is in an arena: sizeof(ArenaPlace::offset).
inline constexpr size_t kRingAlignment = 64;
constexpr size_t RingAligned(size_t bytes) { return (bytes + kRingAlignment - 1) / kRingAlignment * kRingAlignment; }
constexpr size_t RingMessageBytes(size_t header, size_t payload) {
  return RingAligned(2 * sizeof(uint32_t) + header) + RingAligned(payload);
}

class RingWriter {
 public:
  // bytes: of the ring, a power of two.
  RingWriter(uint8_t* ring, size_t bytes, LinkEnd* own, const LinkEnd* other)
      : ring_(ring), bytes_(bytes), own_(own), other_(other) {}

  // Free bytes now. 0 also if the other end claims what cannot be.
  size_t Room() const;
  // REQUIRED: Room() >= RingMessageBytes of it.
  void Write(absl::Span<const uint8_t> header, absl::Span<const uint8_t> payload);
  // The same, with a payload of the own arena, which must not change before the message was read.
  void Write(absl::Span<const uint8_t> header, ArenaPlace payload);
  // Bytes ever written; those of them that have been read, as the other end claims.
  uint64_t written() const { return written_; }
  uint64_t read() const { return other_->read; }

 private:
  void Put(absl::Span<const uint8_t> header, uint32_t payload_bytes, absl::Span<const uint8_t> payload);
  void Put(uint64_t at, const void* from, size_t bytes);

  uint8_t* const ring_;
  const size_t bytes_;
  LinkEnd* const own_;
  const LinkEnd* const other_;
  uint64_t written_ = 0;  // our own count: the shared one may be overwritten
};

struct RingMessage {
  // After the payload was copied: whether it was what the writer sent. A writer in good faith changes it only where
  // this is false.
  bool Intact() const {
    if (closed == nullptr) return true;
    std::atomic_thread_fence(std::memory_order_acquire);
    return *closed == 0;
  }

  std::string header;                             // a copy
  absl::Span<const uint8_t> payload[2];           // in the ring, the second one where it wraps; or in the arena
  size_t ring_bytes = 0;                          // that Release frees
  const std::atomic<uint32_t>* closed = nullptr;  // of a payload in an arena: the writer's
};

class RingReader {
 public:
  struct Limits {  // a message with more is an error
    size_t header = 0, payload = 0, payload_in_arena = 0;
  };

  // arena: of the writer; null: it has none that this end knows. It outlives the reader.
  RingReader(const uint8_t* ring, size_t bytes, LinkEnd* own, const LinkEnd* other, const Limits& limits,
             const ArenaView* arena = nullptr)
      : ring_(ring), bytes_(bytes), own_(own), other_(other), limits_(limits), arena_(arena) {}

  bool empty() const { return other_->written == read_; }
  // The next message, without taking it; nullopt: there is none yet.
  // Errors: INVALID_ARGUMENT: what is there cannot have been written by RingWriter; UNAVAILABLE: the writer has closed.
  absl::StatusOr<std::optional<RingMessage>> Peek() const;
  // Frees the space of the message that Peek returned.
  void Release(size_t ring_bytes);
  // Bytes of messages that are there; at most the ring.
  size_t Pending() const { return std::min<uint64_t>(other_->written - read_, bytes_); }
  // Free bytes of the ring: what its writer sees as room.
  size_t Free() const { return bytes_ - (other_->written - read_); }

 private:
  void Get(uint64_t at, void* to, size_t bytes) const;
  absl::Status FindPayload(ArenaPlace place, RingMessage& message) const;

  const uint8_t* const ring_;
  const size_t bytes_;
  LinkEnd* const own_;
  const LinkEnd* const other_;
  const Limits limits_;
  const ArenaView* const arena_;
  uint64_t read_ = 0;
};

}  // namespace cairn
