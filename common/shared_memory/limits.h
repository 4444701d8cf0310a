// Limits of shared memory between processes, their reasons, and how they depend on one another.
#pragma once

#include <cstddef>

#include "absl/time/time.h"
#include "common/base/limits.h"

namespace cairn {

// One direction of a link. Small, so that it stays in a processor's cache; several chunks, so that one is read while
// the next one is written.
inline constexpr size_t kRingBytes = size_t{2} << 20;
// The payload of one message.
inline constexpr size_t kRingPayloadBytesMax = size_t{256} << 10;
static_assert(kRingBytes >= 4 * (kRingPayloadBytesMax + kFrameHeaderBytesMax));
static_assert((kRingBytes & (kRingBytes - 1)) == 0, "positions wrap");

// The payload of one message that is in an arena: a whole tensor, for which the receiver makes its memory at once.
inline constexpr size_t kReferencedPayloadBytesMax = kPartitionBytesMax;
// Such payloads that are not read yet, or a single larger one. They hold memory that the sender would have freed.
inline constexpr size_t kReferencedBytesMax = size_t{16} << 20;
static_assert(kReferencedBytesMax >= 2 * static_cast<size_t>(kPartitionBytesDefault),
              "one is read, the next one waits");
// A smaller payload is sent in the ring.
inline constexpr size_t kReferenceBytesMin = size_t{16} << 10;

// Address space of an arena. What does not fit in is sent in the ring.
inline constexpr size_t kArenaBytes = size_t{1} << 30;
// Links of one ps whose clients' arenas it reads. A client that takes memory away from its arena while the ps reads it
// makes the ps pay for it: kArenaBytes for each of them at most.
inline constexpr size_t kClientArenasMax = 16;

// Links of one ps: each has a thread and two rings, the rings until the last request of its stream is handled. Further
// streams use their socket.
inline constexpr size_t kSharedLinksMax = 64;
// A thread that sleeps looks that often, for the other process may have taken away who sleeps on a word (futex(2),
// FUTEX_REQUEUE).
inline constexpr absl::Duration kLinkLookEvery = absl::Milliseconds(500);

// Connections that wait for memory, and how long one may take to say its ticket, or the ps to answer.
inline constexpr size_t kHandoverConnectionsMax = 64;
inline constexpr absl::Duration kHandoverPatience = absl::Seconds(10);
// After the system has refused what a socket needs.
inline constexpr absl::Duration kHandoverRetryAfter = absl::Milliseconds(100);

}  // namespace cairn
