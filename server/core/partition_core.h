// PartitionCore: one copy of one partition of one job: ordering, barrier, staleness, exactly-once, apply; as a primary,
// what backups get; as a backup, what it takes. docs/architecture.md#the-walk-of-one-gradient
//
// Not thread-safe: one strand drives it. No I/O, no threads, no clock. It dispatches events to its parts, from the
// ground up, the left column first:
//
//   CopyContext      configuration, state, effects      WaitingRequests     requests without an answer
//   StoredImages     images in the store                Primary             the requests of clients
//   Updates          accepted, persisted, applied       Follower            what a backup takes
//   Replication      what backups get                   RestoredCheckpoint  the state that a worker restores
//   TrainingFigures  figures of the training            RestingValues       values that are on the disk alone
//   OpenStep         the barrier of the next update,
//                    its clipping
//
// A part calls parts before it alone (tests/lint/component_graph.py). What follows from an event for several of them is
// done here.
//
// An accepted update goes through three stages:
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
//   2. Each (replica, sequence) is applied exactly once, in order of sequence; a repeated one is answered with the
//      present values.
//   3. Several updates may be on their way to the store (asynchronous modes); Persist effects come in order of version
//      without gaps.
//   4. Waiting requests, open sums and updates under way are bounded (limits.h).
//   5. The values of version - 1 are kept until a push for the next update is accepted: its sender has seen the present
//      version of every partition, so that nobody can need the older one to make up a consistent cut.
//   6. Buffers: a frame's payload belongs to the core, which writes into it if it is unique(); a reply's payload is
//      shared and must not be written to.
//   7. A backup refuses updates of a lower generation; whom it refuses serves nobody until a newer assignment comes. So
//      only the primary of the newest generation acknowledges.
//   8. A partition of an ended job takes no pushes. Once its values are on the disk, alone, it is at rest.
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

  // This copy ends here (it is moved away, or its store failed): the answers to all that wait for one. Nothing is to be
  // called after it but the destructor.
  std::vector<PartitionReply> End(const absl::Status& why);

  const PartitionConfig& config() const { return copy_.config; }
  const PartitionState& state() const { return copy_.state; }
  Generation generation() const { return config().generation; }
  // Applied, hence persisted (SNAPSHOT: where it is not in_memory).
  uint64_t version() const { return state().version; }
  bool image_due() const { return images_.Due(activity()); }
  bool in_memory() const { return images_.in_memory(); }
  size_t waiting() const { return waiting_.size(); }
  bool at_rest() const { return state().at_rest(); }
  // An image is wanted by a backup; one is on its way to a backup.
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
  // The image takes the place of all that this copy has.
  void Adopt(Image image);
  // Applies, in order, what is kept.
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
