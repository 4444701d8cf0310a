// ReplayPartitions: all partitions of a synchronous job in this process: the cores of its ps, without their stores,
// backups and threads. They sum, clip, and run the optimizer as in the job, hence the same bits.
//
// Not thread-safe. Invariants:
//   1. A request is answered within Handle, or within a later one that makes its update.
//   2. Memory: values and optimizer slots of the whole parameter space, and what an update takes.
#pragma once

#include <memory>
#include <vector>

#include "cairn/v1/commands.pb.h"
#include "common/base/status.h"
#include "common/tensor/frame.h"
#include "server/core/partition_core.h"
#include "worker/checkpoint/checkpoint_restore.h"

namespace cairn {

class ReplayPartitions {
 public:
  // Those of the routes, with their initial values. Errors: INVALID_ARGUMENT, a range does not fit the model.
  static absl::StatusOr<ReplayPartitions> Make(const v1::AssignReplicas& assignment);

  // Replaces the values and the slots, and the version, by those of a checkpoint.
  absl::Status Restore(const v1::AssignReplicas& assignment, const RestoredState& state);
  // The answers to this and to earlier requests, each with its request_id.
  std::vector<Frame> Handle(Frame request);
  // The figures of the epochs below this one are not needed any more.
  void ForgetEpochs(int32_t epochs);

 private:
  std::vector<std::unique_ptr<PartitionCore>> cores_;  // by partition
};

}  // namespace cairn
