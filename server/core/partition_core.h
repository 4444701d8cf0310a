// PartitionCore: one copy of one partition of one job: ordering, barrier, staleness, exactly-once, apply; replication,
// as a primary or as a backup. docs/architecture.md#the-walk-of-one-gradient
//
// Not thread-safe: one executor drives it. No I/O, no threads, no clock. It dispatches events to its parts, from the
// ground up, the left column first:
//
//   CopyContext      configuration, state, effects      WaitingRequests     requests without an answer
//   StoredImages     images in the store                Primary             the requests of clients
//   Updates          accepted, persisted, applied       Follower            the backup's side of replication
//   Replication      the primary's side of replication  RestoredCheckpoint  the state that a worker restores
//   TrainingFigures  figures of the training            RestingValues       values that are only on the disk
//   OpenStep         the barrier of the next update,
//                    its clipping
//
// A part calls only parts before it (tests/lint/component_graph.py). Consequences of an event for several parts are
// handled here.
//
// An accepted update goes through three stages:
//
//   accepted    a root sum (synchronous), a push (asynchronous) or a REPLICATE (backup) gets the next version; it is
//               sent as REPLICATE to every backup, and as Persist to the store
//   kept        the driver sends PersistedEvent{version}: the log entry is in the store (SNAPSHOT: needs no log); and
//               every required backup (BackupLink::required) has confirmed it
//   applied     at that moment, in order of version: the optimizer runs, and waiting requests are answered
//
// A backup confirms an update when it is in its log too (LOGGED_AND_REPLICATED), or before that (REPLICATED).
//
// Invariants:
//   1. Replies and images show only kept updates: no update is applied before it is kept.
//   2. Each (replica, sequence) is applied exactly once, in order of sequence; a repeated one is answered with the
//      present values.
//   3. Several updates may be in flight to the store (asynchronous modes); Persist effects come in order of version
//      without gaps.
//   4. Waiting requests, open sums and updates in flight are bounded (limits.h).
//   5. The values of version - 1 are kept until a push for the next update is accepted: its sender has seen the present
//      version of every partition, so no consistent cut can need the older one.
//   6. Buffers: a frame's payload belongs to the core, which writes into it if it is unique(); a reply's payload is
//      shared and must not be written to.
//   7. A backup refuses updates of a lower generation; a primary that is refused serves no requests until it gets a
//      newer assignment. So only the primary of the newest generation acknowledges.
//   8. A partition of an ended job takes no pushes. Once the disk holds its values and nothing else, it is at rest.
#pragma once

#include <cstdint>
#include <vector>

#include "server/core/copy_context.h"
#include "server/core/follower.h"
#include "server/core/open_step.h"
#include "server/core/partition_events.h"
#include "server/core/primary.h"
#include "server/core/replication.h"
#include "server/core/resting_values.h"
#include "server/core/restored_checkpoint.h"
#include "server/core/stored_images.h"
#include "server/core/training_figures.h"
#include "server/core/updates.h"
#include "server/core/waiting_requests.h"

namespace cairn {

class PartitionCore {
 public:
  // `state`: PartitionState::Initial, or what Persistence::Open gave.
  PartitionCore(PartitionConfig config, PartitionState state);

  PartitionEffects Step(PartitionEvent event, absl::Time now);

  // This copy ends (it is moved away, or its store failed). Returns the answers to all waiting requests. After it only
  // the destructor may be called.
  std::vector<PartitionReply> End(const absl::Status& why);

  const PartitionConfig& config() const { return copy_.config; }
  const PartitionState& state() const { return copy_.state; }
  Generation generation() const { return config().generation; }
  // The applied version, hence persisted (SNAPSHOT: unless in_memory).
  uint64_t version() const { return state().version; }
  bool image_due() const { return images_.Due(activity()); }
  bool in_memory() const { return images_.in_memory(); }
  size_t waiting() const { return waiting_.size(); }
  bool at_rest() const { return state().at_rest(); }
  // Whether a backup wants an image; whether one is in flight to a backup.
  bool image_to_send(absl::Time now) const { return !resting_.image_waits() && replication_.WantsImage(now); }
  bool sending_image() const { return resting_.image_waits() || replication_.sending_image(); }
  const std::vector<BackupLink>& links() const { return replication_.links(); }
  bool fenced() const { return replication_.fenced(); }

 private:
  void Dispatch(PartitionEvent event);
  void OnFrame(FrameEvent event);
  absl::Status Handle(uint64_t client, Frame& frame);
  absl::Status OnImageTensor(uint64_t client, Frame frame);
  void OnAssign(const AssignEvent& event);
  void OnReset(const ResetEvent& event);
  void OnClientGone(uint64_t client);
  void OnTick(const TickEvent& event);
  void BecomeBackup();
  void EndTraining();
  // The image replaces all state of this copy.
  void Adopt(Image image);
  // Applies kept updates, in order.
  void Advance();
  void LetValuesRest();
  CopyActivity activity() const { return {!updates_.empty(), follower_.receiving(), restored_.receiving()}; }

  CopyContext copy_;
  StoredImages images_;
  Updates updates_;
  Replication replication_;
  TrainingFigures figures_;
  OpenStep step_;
  WaitingRequests waiting_;
  Primary primary_;
  Follower follower_;
  RestoredCheckpoint restored_;
  RestingValues resting_;
};

}  // namespace cairn
