// PartitionCore: the state machine of one partition of one job (design §5): ordering, barrier, staleness, exactly-once,
// apply.
//
// Not thread-safe: one strand drives it. No I/O, no threads, no clock. An accepted update goes through three stages:
//
//   accepted    a root sum (synchronous) or a push (asynchronous) gets the next version and leaves as Persist
//   persisted   the driver says PersistedEvent{version}: the log entry is in the store
//   applied     at that moment, in order of version: the optimizer runs, and whoever waits is answered
//
// Invariants:
//   1. What a reply or an image shows is persisted: nothing is applied before it is.
//   2. Each (replica, sequence) is applied exactly once, in order of sequence; a repeated one is answered with the
//   present values.
//   3. Several updates may be on their way to the store (asynchronous modes); Persist effects come in order of version
//   without gaps.
//   4. Waiting requests, open sums and updates under way are bounded (limits below).
//   5. The values of version - 1 are kept until a push for the next update is accepted: its sender has seen the
//      present version of every partition, so that nobody can need the older one to make up a consistent cut.
//   6. Buffers: a frame's payload belongs to the core, which writes into it if it is unique(); a reply's payload is
//   shared
//      and must not be written to.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/storage.pb.h"
#include "common/tensor/frame.h"
#include "server/partition_state.h"
#include "server/pending_sums.h"

namespace cairn {

// Requests that wait at one partition: every replica's push, as often again after broken streams, and pulls beside
// them.
inline constexpr size_t kWaitersPerReplicaMax = 4;
inline constexpr size_t kWaitersExtraMax = 64;
// Updates of one partition that are on their way to the store: each holds a gradient.
inline constexpr size_t kUpdatesInFlightMax = 32;
// A waiting pull is told to try again after this; a push waits for its barrier as long as its client stays.
inline constexpr absl::Duration kPullWaitMax = absl::Seconds(60);
// Examples in one push; sums over kReplicasMax pushes stay exact in 64 bits.
inline constexpr uint64_t kPushExamplesMax = uint64_t{1} << 40;

// ---- events ----

struct FrameEvent {     // a whole PUSH or PULL of this job and partition
  uint64_t client = 0;  // the stream to answer; opaque here, never used again after ClientGoneEvent
  Frame frame;
};
struct AssignEvent {  // the coordinator's new assignment; a lower generation is ignored
  Generation generation;
};
struct PersistedEvent {  // all entries up to and including this version are in the store
  uint64_t version = 0;
};
// The driver has room for an image and image_due() says yes. Images of many partitions fall due in the same step: the
// driver takes them one after another, so that the copies of their slots do not add up.
struct TakeImageEvent {};
struct ImageWrittenEvent {  // ok: it is in the store
  uint64_t version = 0;
  bool ok = true;
};
struct ClientGoneEvent {  // its waiting requests are forgotten; what it contributed stays
  uint64_t client = 0;
};
struct TickEvent {};  // about once a second: ends waits that took too long
using PartitionEvent = std::variant<FrameEvent, AssignEvent, PersistedEvent, TakeImageEvent, ImageWrittenEvent,
                                    ClientGoneEvent, TickEvent>;

// ---- effects ----

struct PartitionReply {
  uint64_t client = 0;
  Frame frame;  // VALUES or ERROR; the payload is whole and shared
};
struct Persist {
  v1::LogEntry entry;  // xxh3 is filled in by Persistence
  Buffer gradient;  // the sum; empty where entry.examples() == 0. Let go of it before PersistedEvent: the update reuses
                    // its memory
  uint64_t image_version = 0;  // > 0: that image stands; older ones and log entries up to it go in the same batch
};
struct Image {
  v1::PartitionImage header;    // without checksums
  std::vector<Buffer> tensors;  // values, then slots; nobody writes to them
};
struct PartitionEffects {  // carry out in this order
  std::vector<Persist> persists;
  std::vector<PartitionReply> replies;
  std::optional<Image> image;  // to be written in the background, then ImageWrittenEvent
};

class PartitionCore {
 public:
  // `state`: PartitionState::Initial, or what Persistence::Recover gave.
  PartitionCore(PartitionConfig config, PartitionState state);

  PartitionEffects Step(PartitionEvent event, absl::Time now);

  bool image_due() const;
  uint64_t version() const { return state_.version; }  // applied, hence persisted
  Generation generation() const { return config_.generation; }
  const PartitionConfig& config() const { return config_; }
  const PartitionState& state() const { return state_; }
  size_t waiting() const { return waiters_.size(); }

 private:
  // A request without an answer: what it waits for, and what its answer says.
  struct Waiter {
    uint64_t client = 0;
    uint64_t request_id = 0;
    absl::Time since;
    bool is_push = false;
    ReplicaId replica;  // whose sequence the reply shows
    bool shows_sequence = false;
    uint64_t sequence = 0;   // push: until applied
    uint64_t clock_min = 0;  // bounded staleness: until the slowest replica is there
    std::optional<uint64_t> want_version;
    v1::DataType reply_dtype = v1::FLOAT32;
  };
  struct ImageUnderWay {
    uint64_t version = 0;
    uint64_t log_bytes = 0;  // what it stands for
  };
  struct InFlight {
    v1::LogEntry entry;
    Buffer gradient;
  };

  void OnFrame(FrameEvent event, absl::Time now, PartitionEffects& effects);
  void OnPersisted(const PersistedEvent& event, PartitionEffects& effects);
  void OnTakeImage(PartitionEffects& effects);
  void OnImageWritten(const ImageWrittenEvent& event);
  void OnTick(absl::Time now, PartitionEffects& effects);

  absl::Status Push(uint64_t client, Frame& frame, absl::Time now, PartitionEffects& effects);
  absl::Status Pull(uint64_t client, const Frame& frame, absl::Time now, PartitionEffects& effects);
  absl::Status CheckPush(const Frame& frame) const;
  absl::Status CheckGeneration(Generation generation) const;
  // OK too where the push is a repetition.
  absl::Status AcceptSynchronous(Frame& frame, PartitionEffects& effects);
  absl::Status AcceptAsynchronous(Frame& frame, PartitionEffects& effects);
  void Accept(v1::LogEntry entry, Buffer gradient, PartitionEffects& effects);
  absl::Status AnswerOrWait(Waiter waiter, PartitionEffects& effects);

  bool Ready(const Waiter& waiter) const;
  uint64_t SlowestClock() const;
  uint64_t ClockMinFor(uint64_t sequence) const;
  void ReleaseWaiters(PartitionEffects& effects);
  void ForgetPrevious();
  PartitionReply MakeValues(const Waiter& waiter);
  Buffer ConvertedValues(v1::DataType dtype);
  PartitionReply MakeError(uint64_t client, uint64_t request_id, const absl::Status& status) const;

  PartitionConfig config_;
  PartitionState state_;
  PendingSums pending_;                 // synchronous: of version + 1
  std::optional<float> learning_rate_;  // of the open step
  std::deque<InFlight> in_flight_;
  std::vector<uint64_t> accepted_;  // last accepted sequence, by replica: applied or in flight
  std::vector<Waiter> waiters_;
  Buffer converted_[2];  // present values as BFLOAT16, FLOAT16: one buffer for all who ask
  std::optional<ImageUnderWay> image_under_way_;
  uint64_t image_to_note_ = 0;  // written; the next Persist drops what it makes superfluous
};

}  // namespace cairn
