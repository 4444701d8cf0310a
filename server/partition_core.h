// PartitionCore: the state machine of one copy of one partition of one job: ordering, barrier, staleness, exactly-once,
// apply; as a primary, what backups get; as a backup, what it takes. docs/architecture.md#the-walk-of-one-gradient
//
// Not thread-safe: one strand drives it. No I/O, no threads, no clock. An accepted update goes through three stages:
//
//   accepted    a root sum (synchronous), a push (asynchronous) or a REPLICATE (backup) gets the next version; it
//               leaves as REPLICATE to every backup and as Persist
//   kept        the driver says PersistedEvent{version}: the log entry is in the store (SNAPSHOT: needs no log); and
//               every backup that is waited for (BackupLink::required) has confirmed it
//   applied     at that moment, in order of version: the optimizer runs, and whoever waits is answered
//
// A backup confirms an update when its log has it, too (LOGGED_AND_REPLICATED), or before (REPLICATED).
//
// Invariants:
//   1. What a reply or an image shows is kept: nothing is applied before it is.
//   2. Each (replica, sequence) is applied exactly once, in order of
//      sequence; a repeated one is answered with the present values.
//   3. Several updates may be on their way to the store (asynchronous
//      modes); Persist effects come in order of version without gaps.
//   4. Waiting requests, open sums and updates under way are bounded (limits below).
//   5. The values of version - 1 are kept until a push for the next update is accepted: its sender has seen the
//      present version of every partition, so that nobody can need the older one to make up a consistent cut.
//   6. Buffers: a frame's payload belongs to the core, which writes
//      into it if it is unique(); a reply's payload is shared and
//      must not be written to.
//   7. A backup that nothing gets across to is reported as lost after a bounded time, and waited for all the same: only
//      the coordinator takes it away, by an assignment of a higher generation where the backup was in sync.
//   8. The figures of an update's training steps (EpochFigures) are the update's: added to the first partition's when
//      it is applied, in its log entry, at its backups, in images. The primary tells the coordinator of them when
//      nothing can take them back (Settled).
//   9. A backup refuses updates of a lower generation; whom it refuses serves nobody until a newer assignment comes
//      (fenced). So only the primary of the newest generation acknowledges.
//  10. A partition of an ended job takes no pushes. Once its values are on the disk, alone, it is at rest: they leave
//      the memory, and are loaded for as long as somebody waits for them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/storage.pb.h"
#include "common/tensor/frame.h"
#include "server/backup_link.h"
#include "server/follower.h"
#include "server/limits.h"
#include "server/partition_image.h"
#include "server/partition_state.h"
#include "server/pending_sums.h"
#include "server/snapshot_stride.h"

namespace cairn {

// ---- events ----

struct FrameEvent {  // a whole request of this job and partition
  // The stream to answer; never used again after ClientGoneEvent. A stream opened later has a greater number.
  uint64_t client = 0;
  Frame frame;
};
// The coordinator's new assignment; a lower generation is ignored. A role changes only with a higher one.
struct AssignEvent {
  Generation generation;
  bool backup = false;                   // this copy follows
  std::vector<v1::BackupRoute> backups;  // of the primary
  bool keep = false;                     // PartitionConfig::keep
  bool ended = false;                    // PartitionConfig::ended; for good
};
// Primary: the stream to a backup's ps, which may serve many partitions. Every stream has an epoch greater than those
// before.
struct LinkUpEvent {
  std::string address;
  uint64_t epoch = 0;
};
struct LinkDownEvent {  // what was sent on it and not answered is not answered any more
  std::string address;
  uint64_t epoch = 0;
};
struct PeerFrameEvent {  // the answer to a PeerSend: ACK or ERROR, with its request_id
  std::string address;
  uint64_t epoch = 0;
  Frame frame;
};
// The driver has room for the images of this partition's backups, and image_to_send() says yes. All that want one get
// it.
struct SendImageEvent {};
struct PersistedEvent {  // all entries up to and including this version are in the store
  uint64_t version = 0;
};
struct ResetEvent {  // the state of PartitionEffects::reset is in the store, in place of all that was there
  uint64_t version = 0;
};
// The driver has room for an image and image_due() says yes. Images of many partitions fall due in the same step: the
// driver takes them one after another, so that the copies of their slots do not add up.
struct TakeImageEvent {};
struct ImageWrittenEvent {  // ok: it is in the store
  uint64_t version = 0;
  bool ok = true;
};
struct LoadedEvent {  // what Persistence::Recover gave for PartitionEffects::load
  PartitionState state;
};
// The coordinator has stored the figures of the epochs below `epochs`, and wants to know of the others now.
struct FiguresStoredEvent {
  int32_t epochs = 0;
};
struct ClientGoneEvent {  // its waiting requests are forgotten; what it contributed stays
  uint64_t client = 0;
};
// About once a second, and at PartitionEffects::wake_at: ends waits, tries again, says who is lost.
struct TickEvent {
  std::map<std::string, PeerState> peers;  // by address, where that is known
};
using PartitionEvent = std::variant<FrameEvent, AssignEvent, LinkUpEvent, LinkDownEvent, PeerFrameEvent, SendImageEvent,
                                    PersistedEvent, ResetEvent, TakeImageEvent, ImageWrittenEvent, LoadedEvent,
                                    FiguresStoredEvent, ClientGoneEvent, TickEvent>;

// ---- effects ----

struct PartitionReply {
  uint64_t client = 0;
  Frame frame;  // VALUES, IMAGE, ACK or ERROR; the payload is whole and shared
};
// One request to a backup: a REPLICATE, or all IMAGE frames of an image. It goes out on that stream, in order, or not
// at all where the stream is gone. request_id is unique for this core alone: a driver whose stream serves many maps it.
struct PeerSend {
  std::string address;
  uint64_t epoch = 0;
  std::vector<Frame> frames;
};
struct Persist {
  v1::LogEntry entry;  // xxh3 is filled in by Persistence
  Buffer gradient;     // the sum, in the type entry.dtype(); empty where entry.examples() == 0. Let go of it before
                       // PersistedEvent: the update reuses its memory
  uint64_t image_version = 0;  // > 0: that image stands; older ones and log entries up to it go in the same batch
};
// Carry out in this order. No reply depends on a persist or a reset of the same effects: those that do come with
// PersistedEvent and ResetEvent. Both are handed in before any other event.
struct PartitionEffects {
  std::vector<PeerSend> sends;
  std::vector<PartitionReply> replies;
  std::optional<Image> reset;  // Persistence::ResetTo, then ResetEvent
  std::vector<Persist> persists;
  std::optional<Image> image;                // to be written in the background, then ImageWrittenEvent
  bool load = false;                         // the values are wanted: to be read in the background, then LoadedEvent
  std::vector<v1::BackupReport> reports;     // to the coordinator
  std::optional<v1::FiguresReport> figures;  // likewise
  std::vector<std::string> connect;   // addresses: LinkUpEvent when there is a stream (at once where there is one)
  std::optional<absl::Time> wake_at;  // TickEvent then; one from earlier effects still stands
};

class PartitionCore {
 public:
  // `state`: PartitionState::Initial, or what Persistence::Open gave.
  PartitionCore(PartitionConfig config, PartitionState state);

  PartitionEffects Step(PartitionEvent event, absl::Time now);

  // This copy ends here (it is moved away, or its store failed): the answers to all that wait for one. Nothing is to be
  // called after it but the destructor.
  std::vector<PartitionReply> End(const absl::Status& why);

  bool image_due() const;
  uint64_t version() const { return state_.version; }  // applied, hence persisted (SNAPSHOT: where it is not in_memory)
  // A SNAPSHOT job's version has no image; or, where the job trains no more, none that survives power loss.
  bool in_memory() const {
    return config_.durability == v1::SNAPSHOT && state_.version > 0 &&
           (state_.version > state_.image_version || (config_.keep && !image_synced_));
  }
  Generation generation() const { return config_.generation; }
  const PartitionConfig& config() const { return config_; }
  const PartitionState& state() const { return state_; }
  size_t waiting() const { return waiters_.size(); }
  bool at_rest() const { return state_.at_rest(); }
  // An image is wanted by a backup; one is on its way to a backup.
  bool image_to_send(absl::Time now) const;
  bool sending_image() const;
  const std::vector<BackupLink>& links() const { return links_; }
  bool fenced() const { return fenced_; }

 private:
  // A request without an answer: what it waits for, and what its answer says.
  struct Waiter {
    uint64_t client = 0;
    uint64_t request_id = 0;
    absl::Time since;
    bool is_push = false;  // or CLIP
    bool is_clip = false;
    bool is_snapshot = false;
    ReplicaId replica;  // whose sequence the reply shows
    bool shows_sequence = false;
    uint64_t sequence = 0;   // push: until applied
    uint64_t clock_min = 0;  // bounded staleness: until the slowest replica is there
    std::optional<uint64_t> want_version;
    v1::DataType reply_dtype = v1::FLOAT32;
    bool wants_values =
        true;  // PUSH and CLIP without reply_dtype: of a client that keeps none; it gets the version alone
  };
  struct ImageUnderWay {
    uint64_t version = 0;
    uint64_t log_bytes = 0;  // what it stands for
    bool synced = false;     // PartitionConfig::keep, when it was taken
    bool final = false;      // PartitionConfig::ended, likewise
  };
  struct OpenStep {  // what all its pushes have in common
    float learning_rate = 0;
    int32_t epoch = 0;  // of its figures
    bool operator==(const OpenStep&) const = default;
  };
  // A complete sum whose norms are told and whose factors are not known yet: partition_core_clip.cc.
  struct MeasuredSum {
    v1::LogEntry entry;
    Buffer gradient;
    size_t spanning = 0;  // records in entry.norms()
  };
  struct InFlight {
    v1::LogEntry entry;
    Buffer gradient;  // float32
    Buffer packed;    // the same as it is logged and replicated; empty until then
    const Buffer& Packed(const PartitionConfig& config) {
      if (packed.empty()) packed = PackGradient(config, entry, gradient);
      return packed;
    }
  };

  void OnFrame(FrameEvent event, absl::Time now, PartitionEffects& effects);
  void OnPersisted(const PersistedEvent& event, PartitionEffects& effects);
  void OnTakeImage(PartitionEffects& effects);
  void OnImageWritten(const ImageWrittenEvent& event, PartitionEffects& effects);
  void OnTick(const TickEvent& event, absl::Time now, PartitionEffects& effects);
  void OnClientGone(const ClientGoneEvent& event);

  // ---- primary and backup: partition_core_roles.cc ----
  void OnAssign(const AssignEvent& event, PartitionEffects& effects);
  void OnLinkUp(const LinkUpEvent& event);
  void OnLinkDown(const LinkDownEvent& event, PartitionEffects& effects);
  void OnPeerFrame(const PeerFrameEvent& event, absl::Time now, PartitionEffects& effects);
  void OnSendImage(absl::Time now, PartitionEffects& effects);
  void OnReset(const ResetEvent& event, PartitionEffects& effects);
  void BecomeBackup(PartitionEffects& effects);
  absl::Status TakeImageTensor(uint64_t client, Frame frame, absl::Time now, PartitionEffects& effects);
  absl::Status TakeUpdate(uint64_t client, Frame& frame, PartitionEffects& effects);
  absl::Status CheckServes() const;  // this copy answers clients
  BackupLink* LinkOf(const std::string& address, uint64_t epoch);
  void Replicate(BackupLink& link, InFlight& update, PartitionEffects& effects);
  void TendLinks(absl::Time now, PartitionEffects& effects);
  void Report(const BackupLink& link, PartitionEffects& effects, const BackupLink::Loss& loss = {}) const;
  void ReportLinks(const TickEvent& event, absl::Time now, PartitionEffects& effects);
  PartitionReply MakeAck(const Follower::Ack& ack) const;
  bool Kept(uint64_t version) const;
  // Whether the state that this copy began with as the primary is at all backups that are waited for. It may hold
  // updates that the last primary never acknowledged; shown before, they would be lost with this copy.
  bool Settled();
  // Applies, in order, what is kept.
  void Advance(PartitionEffects& effects);

  // ---- checkpoints: partition_core_snapshot.cc ----
  absl::Status Snapshot(uint64_t client, const Frame& frame, absl::Time now, PartitionEffects& effects);
  void Answer(const Waiter& w, PartitionEffects& effects);
  void Adopt(Image image, PartitionEffects& effects);
  absl::Status TakeRestoredTensor(uint64_t client, Frame frame, absl::Time now, PartitionEffects& effects);

  // ---- figures of the training: partition_core_figures.cc ----
  // None where the push has none. Errors are to be answered.
  absl::StatusOr<v1::EpochFigures> FiguresOf(const Frame& frame) const;
  void TellFigures(absl::Time now, PartitionEffects& effects);

  // ---- clipping by norm: partition_core_clip.cc ----
  void AcceptSum(v1::LogEntry entry, PendingSums::Sum sum, PartitionEffects& effects);
  absl::Status Clip(uint64_t client, const Frame& frame, absl::Time now, PartitionEffects& effects);
  void AcceptMeasured(v1::LogEntry entry, Buffer gradient, bool finite, PartitionEffects& effects);
  absl::StatusOr<bool> FiniteBy(absl::Span<const double> factors) const;
  bool ClipsInTwoPhases() const;
  PartitionReply MakeNorms(const Waiter& waiter) const;

  // ---- the partitions of jobs that have ended: partition_core_rest.cc ----
  void EndTraining(PartitionEffects& effects);
  absl::Status CheckTrains() const;
  bool WaitsForTraining(const Waiter& w) const;
  absl::Status CheckCanApply() const;
  bool Quiet() const;
  bool WantsValues(const PartitionEvent& event) const;
  bool ImageDeferred() const;
  void Defer(PartitionEvent event, PartitionEffects& effects);
  void OnLoaded(LoadedEvent event, absl::Time now, PartitionEffects& effects);
  Image FinalImage() const;
  void Rest();

  void Dispatch(PartitionEvent event, absl::Time now, PartitionEffects& effects);
  absl::Status Push(uint64_t client, Frame& frame, absl::Time now, PartitionEffects& effects);
  absl::Status Pull(uint64_t client, const Frame& frame, absl::Time now, PartitionEffects& effects);
  absl::Status CheckPush(const Frame& frame) const;
  absl::Status CheckGeneration(Generation generation) const;
  // OK too where the push is a repetition.
  absl::Status AcceptSynchronous(Frame& frame, PartitionEffects& effects);
  absl::Status AcceptAsynchronous(Frame& frame, PartitionEffects& effects);
  void Accept(v1::LogEntry entry, Buffer gradient, PartitionEffects& effects);
  // The gradient of a sum or push with the regularizers' in it: the log, the backups and images know that one alone.
  Buffer WithPenalty(Buffer gradient, uint64_t examples) const;
  absl::Status AnswerOrWait(Waiter waiter, PartitionEffects& effects);

  static absl::StatusOr<v1::DataType> ReplyType(const Frame& frame);
  bool Ready(const Waiter& waiter);
  // A push whose step's sum is measured.
  bool GetsNorms(const Waiter& w) const {
    return w.is_push && !w.is_clip && measured_ && w.sequence == measured_->entry.sequence();
  }
  size_t WaitersMax() const { return kWaitersPerReplicaMax * config_.replicas + kWaitersExtraMax; }
  uint64_t SlowestClock() const;
  uint64_t ClockMinFor(uint64_t sequence) const;
  void ReleaseWaiters(PartitionEffects& effects);
  void ForgetPrevious();
  PartitionReply MakeValues(const Waiter& waiter);
  Buffer ConvertedValues(v1::DataType dtype);
  PartitionReply MakeError(uint64_t client, uint64_t request_id, const absl::Status& status) const;

  PartitionConfig config_;
  PartitionState state_;
  PendingSums pending_;  // synchronous: of version + 1
  std::optional<OpenStep> open_;
  std::optional<MeasuredSum> measured_;  // of version + 1; then nothing is pending and nothing in flight
  std::deque<InFlight> in_flight_;
  uint64_t persisted_ = 0;                      // entries up to it are in the store
  std::vector<BackupLink> links_;               // primary
  uint64_t next_peer_request_id_ = 1;           // over all links
  bool settled_ = false;                        // primary: Settled was true
  bool fenced_ = false;                         // primary: a backup is in a higher generation
  absl::Time ticked_ = absl::InfiniteFuture();  // primary: when links were last looked at
  absl::Time report_lost_at_ = absl::InfinitePast();
  Follower follower_;                          // backup
  ImageReceiver restored_;                     // primary: a checkpoint that comes in
  std::optional<Follower::Ack> restored_ack_;  // to be given when it is in the store
  std::vector<uint64_t> accepted_;             // last accepted sequence, by replica: applied or in flight
  std::vector<Waiter> waiters_;
  Buffer converted_[2];  // present values as BFLOAT16, FLOAT16: one buffer for all who ask
  std::optional<ImageUnderWay> image_under_way_;
  bool image_synced_ = true;  // the newest one; what Recover gave counts as synced
  bool image_failed_ =
      false;  // the last one could not be written; one that the job's end waits for is tried again at the next tick
  SnapshotStride snapshots_;
  uint64_t figures_told_ = 0;                     // of which version the coordinator was told
  bool figures_wanted_ = true;                    // it is to be told, whatever the version is
  absl::Time figures_at_ = absl::InfinitePast();  // when it was
  uint64_t image_to_note_ = 0;                    // written; the next Persist drops what it makes superfluous
  // Of an ended job:
  bool ends_even_ = false;  // all its partitions are at the version that it ends with: nobody asks for the one before
  std::optional<uint64_t> final_image_;  // the store has the values of this version, and nothing else
  bool loading_ = false;                 // LoadedEvent comes
  std::deque<PartitionEvent> deferred_;  // until then: requests for values, images for backups
};

}  // namespace cairn
