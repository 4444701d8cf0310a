// CheckpointBook: which checkpoints of a job a worker knows of, and which of them are too many.
//
// No I/O, not thread-safe. A checkpoint is known by its step, the best one by being that. Invariants:
//   1. It names for removal only steps that it was told of.
//   2. The newest keep_max stay, the best one, and with save_best those at the end of an epoch that still wait to be
//      compared: the newest kComparedLaterMax of them.
//   3. What was removed does not come back with an older list of the coordinator's.
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
    std::vector<int64_t> steps;         // whose checkpoints are to be removed
    std::vector<int64_t> not_compared;  // those of them that waited
  };

  // Those that the coordinator knows of. Returns whether one was compared since.
  bool Know(const google::protobuf::RepeatedPtrField<v1::CheckpointInfo>& checkpoints);
  // It was written just now, perhaps in place of one.
  void Written(const v1::CheckpointInfo& info);
  // The best one; the former one's name is this one's now.
  void Best(const v1::CheckpointInfo& info);
  // Forgets what is beyond keep_max.
  Pruned Prune(const v1::Checkpoints& rule, int64_t steps_per_epoch);
  // It is not there, whoever said so.
  void Forget(int64_t step);

  std::optional<v1::CheckpointInfo> Find(int64_t step) const;              // not as the best one
  const std::vector<v1::CheckpointInfo>& known() const { return known_; }  // oldest first
  const std::deque<int64_t>& deleted() const { return deleted_; }          // steps, lately

 private:
  std::vector<v1::CheckpointInfo> known_;
  std::deque<int64_t> deleted_;
};

}  // namespace cairn
