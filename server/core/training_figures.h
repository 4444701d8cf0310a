// TrainingFigures: the figures of the training's steps, which come with pushes, are counted with updates
// (PartitionState::figures), and of whose sums the coordinator is told.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. Figures are counted with their update and with nothing else, at the job's first partition alone.
//   2. The coordinator is told only of what nothing can take back (Replication::Settled).
//   3. Pushes of an epoch for which the list has no room are refused until older ones are stored.
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

  // None where the push has none. Errors are to be answered.
  absl::StatusOr<v1::EpochFigures> Of(const Frame& push) const;
  void OnStored(const FiguresStoredEvent& event);
  void TellAgain() { wanted_ = true; }
  // After every event.
  void Tell();

 private:
  CopyContext& copy_;
  const Updates& updates_;
  Replication& replication_;
  uint64_t told_ = 0;      // of which version the coordinator was told
  bool wanted_ = true;     // it is to be told, whatever the version is
  uint64_t question_ = 0;  // the newest that was asked
  absl::Time told_at_ = absl::InfinitePast();
};

}  // namespace cairn
