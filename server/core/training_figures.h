// TrainingFigures: the figures of training steps. They come with pushes, are counted with updates
// (PartitionState::figures), and their sums are reported to the coordinator.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. Figures are counted exactly when their update is, and only at the job's first partition.
//   2. Only figures that cannot be lost any more are reported to the coordinator (Replication::Settled).
//   3. Pushes of an epoch for which the list has no room are refused until older epochs are stored.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "server/core/replication.h"
#include "server/core/updates.h"

namespace cairn {

class TrainingFigures {
 public:
  TrainingFigures(CopyContext& copy, const Updates& updates, Replication& replication)
      : copy_(copy), updates_(updates), replication_(replication) {}

  // The figures of the push, or none. The caller answers with the error, if any.
  absl::StatusOr<v1::EpochFigures> Of(const Frame& push) const;
  void OnStored(const FiguresStoredEvent& event);
  void TellAgain() { wanted_ = true; }
  // Call after every event.
  void Tell();

 private:
  CopyContext& copy_;
  const Updates& updates_;
  Replication& replication_;
  uint64_t told_ = 0;      // the last version reported to the coordinator
  bool wanted_ = true;     // a report is due, whatever the version is
  uint64_t question_ = 0;  // the newest question
  absl::Time told_at_ = absl::InfinitePast();
};

}  // namespace cairn
