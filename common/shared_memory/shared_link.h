// SharedLink: one end of a two-way connection in shared memory.
//
// It has a thread that reads what comes, and sleeps when there is nothing: an end that is awake costs the other one no
// system call. It does not notice that the other process has died: whoever owns it learns that elsewhere, and calls
// Finish or Stop. A large payload that is in the sender's arena (shared_arena.h) is not copied into the link: the
// receiver gets it where it is.
//
// Thread rule: TryWrite from one thread at a time; Pause within OnMessage; Stop and the destructor from any thread but
// the link's own; the others from any thread. Invariants:
//   1. User is called on the link's thread only, never after OnEnd, and OnEnd comes once.
//   2. After a TryWrite that returned false, OnRoom comes once, perhaps before it has returned. It comes also when the
//      link ends; from then on what is written is dropped.
//   3. Whatever the other process writes, this one does not crash, and Stop returns: nonsense ends the link.
//   4. A payload in an arena is held until the other end has read it, and at most kLinkLookEvery longer, or the link
//      ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/shared_memory/byte_ring.h"
#include "common/shared_memory/held_payloads.h"
#include "common/shared_memory/limits.h"
#include "common/shared_memory/shared_arena.h"
#include "common/shared_memory/shared_region.h"

namespace cairn {

class SharedLink {
 public:
  class User {
   public:
    virtual ~User() = default;
    // Must not block. The payload is not there after it.
    virtual void OnMessage(RingMessage message) = 0;
    // There is room for what TryWrite refused, or the link ends.
    virtual void OnRoom() = 0;
    // The link's thread ends with this. OK: after Finish or Stop. Else the other process wrote nonsense.
    virtual void OnEnd(absl::Status status) = 0;
  };

  // Which of the two: each end of a region is one of them.
  enum class End { kGiver, kTaker };
  static constexpr size_t kRegionBytes = 4096 + 2 * kRingBytes;

  struct Arenas {
    const SharedArena* own = nullptr;  // that the other end reads; null: it reads none
    const ArenaView* read = nullptr;   // the other end's; null: none is read
  };

  // region: of kRegionBytes. `user` outlives the link's thread, and the arenas outlive the link.
  SharedLink(SharedRegion region, End end, User* user) : SharedLink(std::move(region), end, user, Arenas()) {}
  SharedLink(SharedRegion region, End end, User* user, const Arenas& arenas);
  ~SharedLink();

  // Once. The thread begins. Errors: RESOURCE_EXHAUSTED: the system has no thread; User is not called then.
  absl::Status Start();
  // The largest piece of this payload that TryWrite takes: more of what is in the arena.
  size_t PayloadBytesMax(absl::Span<const uint8_t> payload) const;
  // False: there is no room; try again in OnRoom. header: at most kFrameHeaderBytesMax, payload: PayloadBytesMax.
  // owner: keeps the payload as it is; null: it is copied, and is at most kRingPayloadBytesMax.
  bool TryWrite(absl::Span<const uint8_t> header, absl::Span<const uint8_t> payload,
                std::shared_ptr<const void> owner = nullptr);
  // No OnMessage until Resume.
  void Pause() { asked_.pause = true; }
  void Resume();
  // The other end writes no more that counts: what is here is delivered, then the link ends.
  void Finish();
  // The link ends, with what was not read. Does not wait for it.
  void Cancel();
  // Cancel, and waits for the thread. Idempotent.
  void Stop();

 private:
  struct Asked {
    std::atomic<bool> pause{false}, finish{false}, cancel{false};
  };

  void Run();
  // Until there is nothing more, or it is not wanted now.
  absl::Status ReadAll();
  bool ReadsNow() const { return !asked_.pause && !asked_.cancel && left_ != 0 && !reader_.empty(); }
  bool RoomNow() const;
  void GiveRoom();
  bool EndsNow();
  void Park();
  void WakeOwn();
  void WakeOther();

  SharedRegion region_;
  LinkEnd* const own_;
  LinkEnd* const other_;
  RingWriter writer_;
  RingReader reader_;
  HeldPayloads held_;
  User* const user_;
  Asked asked_;
  std::atomic<uint32_t> room_awaited_{0};  // as room_wanted, which the other process may change
  std::atomic<bool> drops_{false};         // what is written
  std::atomic<bool> asleep_{false};        // as parked
  std::atomic<bool> ended_{false};
  std::atomic<int> refusing_{0};  // TryWrite that return false are at work
  std::optional<size_t> left_;    // bytes that are still read after Finish; of the thread
  std::thread thread_;
};

}  // namespace cairn
