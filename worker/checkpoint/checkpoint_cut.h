// CheckpointCut: the state of all partitions of a job at one moment, gathered from the answers to the chief's
// TakeCheckpoint, and what a checkpoint says of it.
//
// No I/O. Thread rule: Add and End of different partitions may come from different threads, those of one partition come
// one at a time; Contents when all have ended. Invariants:
//   1. Its memory is (1 + slots) x the parameter space; each partition's answer writes into its own range.
//   2. Contents exist only where every partition answered whole, with the version that was wanted.
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
#include "worker/checkpoint/checkpoint_writer.h"

namespace cairn {

class CheckpointCut {
 public:
  // step, want_version: as in TakeCheckpoint. It takes as many answers as the assignment has routes.
  CheckpointCut(int64_t step, std::optional<uint64_t> want_version,
                std::shared_ptr<const v1::AssignReplicas> assignment);

  const v1::AssignReplicas& assignment() const { return *assignment_; }
  int64_t step() const { return step_; }

  // One tensor of the answer of a partition.
  void Add(size_t partition, const Frame& tensor);
  // Its answer is over. Errors: `end`, or what did not fit; with the ps' name.
  absl::Status End(size_t partition, absl::Status end);
  // Asynchronous: manifest.step is the slowest replica's. Errors: the model cannot be built, or is not the routes'.
  absl::StatusOr<CheckpointContents> Contents(JobId job) const;

 private:
  struct Part {
    v1::PartitionRange range;
    std::string ps;
    bool header = false;  // tensor 0 has come
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
