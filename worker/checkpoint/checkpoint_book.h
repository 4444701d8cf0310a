// CheckpointBook: the checkpoints of a job that a worker knows of, and which of them to remove.
//
// No I/O, not thread-safe. A checkpoint is identified by its step; the best one is an entry of its own. Invariants:
//   1. It removes only steps that it was told of.
//   2. It keeps the newest keep_max, the best one, and with save_best those at the end of an epoch that still wait to
//      be compared: at most the newest kComparedLaterMax of them.
//      It removes none that is held.
//   3. A removed checkpoint does not come back with an outdated list from the coordinator.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "worker/limits.h"

namespace cairn {

class CheckpointBook {
 public:
  struct Pruned {
    std::vector<int64_t> steps;         // checkpoints of these steps are to be removed
    std::vector<int64_t> not_compared;  // those of `steps` that were never compared with the best one
  };

  // Adds the coordinator's list. Returns whether a checkpoint was compared since the last call.
  bool Know(const google::protobuf::RepeatedPtrField<v1::CheckpointInfo>& checkpoints);
  // The checkpoint was just written, perhaps in place of an older one of its step.
  void Written(const v1::CheckpointInfo& info);
  // `info` is now the best one; it has taken over the name of the former best.
  void Best(const v1::CheckpointInfo& info);
  // Prune leaves the checkpoint of this step until another one is held, or none.
  void Hold(std::optional<int64_t> step) { held_ = step; }
  // Forgets checkpoints beyond keep_max and returns them.
  Pruned Prune(const v1::Checkpoints& rule, int64_t steps_per_epoch);
  // A checkpoint that Prune gave is still there: it is known again.
  void NotRemoved(const v1::CheckpointInfo& info);
  // The checkpoint does not exist, even if it is listed.
  void Forget(int64_t step);

  std::optional<v1::CheckpointInfo> Find(int64_t step) const;              // without the entry of the best one
  const std::vector<v1::CheckpointInfo>& known() const { return known_; }  // oldest first
  const std::deque<int64_t>& deleted() const { return deleted_; }          // steps removed recently

 private:
  void SortKnown();

  std::vector<v1::CheckpointInfo> known_;
  std::deque<int64_t> deleted_;
  std::optional<int64_t> held_;
};

}  // namespace cairn
