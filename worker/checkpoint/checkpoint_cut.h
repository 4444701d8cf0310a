// CheckpointCut: a consistent cut of all partitions of a job, assembled from the answers to the chief's TakeCheckpoint,
// and the contents of a checkpoint made from it.
//
// No I/O. Thread rule: Add and End may be called from different threads for different partitions, but one at a time for
// each partition; Contents only after all have ended. Invariants:
//   1. Its memory is (1 + slots) x the parameter space; each partition's answer writes into its own range.
//   2. Contents succeeds only if every partition answered completely, with the wanted version.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/tensor/frame.h"
#include "worker/checkpoint/checkpoint_contents.h"

namespace cairn {

class CheckpointCut {
 public:
  // step, want_version: as in TakeCheckpoint. One answer is expected for each route of the assignment.
  CheckpointCut(int64_t step, std::optional<uint64_t> want_version,
                std::shared_ptr<const v1::AssignReplicas> assignment);

  const v1::AssignReplicas& assignment() const { return *assignment_; }
  int64_t step() const { return step_; }

  // Adds one tensor of a partition's answer.
  void Add(size_t partition, const Frame& tensor);
  // The partition's answer is complete. Errors: `end`, or what did not fit; both name the ps.
  absl::Status End(size_t partition, absl::Status end);
  // Asynchronous: manifest.step is the slowest replica's. Errors: the model cannot be built or does not fit the routes.
  absl::StatusOr<CheckpointContents> Contents(JobId job) const;

 private:
  struct Part {
    v1::PartitionRange range;
    std::string ps;
    bool header = false;  // tensor 0 has arrived
    v1::PartitionImage image;
    absl::Status status;  // of a tensor that does not fit
  };
  absl::Status Keep(Part& part, const Frame& frame);

  const int64_t step_;
  const std::optional<uint64_t> want_version_;
  const std::shared_ptr<const v1::AssignReplicas> assignment_;
  Buffer values_;
  std::vector<Buffer> slots_;
  std::vector<Part> parts_;
};

}  // namespace cairn
