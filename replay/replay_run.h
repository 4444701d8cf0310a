// ReplayRun: computes steps of a synchronous job again, in this process, one after the other: all replicas by the core
// and the batches of a worker, all partitions by the cores of the ps (partitions.h). Nothing of it is another
// implementation of training, so the values after each step have the bits of the job's.
//
// Called on one thread; replicas of a step are computed side by side on the slots of a pool. Invariants:
//   1. A step is computed only in Next; between two calls nothing changes.
//   2. Memory: three times the parameter space and the optimizer's slots, and a gradient of each replica.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/v1/commands.pb.h"
#include "common/base/status.h"
#include "replay/partitions.h"
#include "worker/core/replica_driver.h"
#include "worker/train/compute_pool.h"
#include "worker/train/training_data.h"

namespace cairn {

// A replica's part of a step. The gradient is the sum over its examples, without the gradients of penalties.
struct ReplayedReplica {
  ReplicaId replica;
  int64_t step = 0;  // from 0
  float loss_scale = 0;
  Buffer values, gradient;
  BatchSums sums;
};

struct ReplayedStep {
  int64_t step = 0;      // from 0
  Buffer before, after;  // the parameter space; `after` has step + 1 updates
  v1::MetricSums sums;   // over the step's examples, before the update
  float learning_rate = 0;
  float loss_scale = 0;  // of jobs that have one
};

class ReplayRun : private ReplicaEnvironment {
 public:
  // assignment: all replicas and partitions of the job (replay_job.h). batches: of its data. The pool outlives it.
  ReplayRun(const v1::AssignReplicas& assignment, TrainingBatches batches, ReplayPartitions partitions,
            ComputePool& pool);

  // Comes to the step that the partitions are at. Once, before Next.
  absl::Status Begin();
  // Computes the next step. on_replica: called for each replica that has examples, in order, before the update; it
  // keeps none of the buffers; may be null. Errors: those of the data and of the backend; INTERNAL: the cores refused
  // something.
  absl::StatusOr<ReplayedStep> Next(const std::function<void(const ReplayedReplica&)>& on_replica);

  const TrainingBatches& batches() const { return batches_; }

 private:
  // ---- ReplicaEnvironment ----
  absl::Time Now() override { return absl::UnixEpoch(); }
  void BeginAssignment(const Assignment&) override {}
  void SendToPs(replica::Send send) override;
  void Compute(replica::Compute compute) override { computes_.push_back(std::move(compute)); }
  void Evaluate(replica::Evaluate evaluate) override;
  void GiveWeights(const replica::WeightsHere&) override {}
  void StopWork(uint64_t) override {}
  void TakeCheckpoint(replica::TakeCheckpoint, const Assignment&) override {}
  void TakeDigest(replica::TakeDigest take) override { reached_ = std::move(take); }
  void Report(v1::ReplicaReport) override {}
  void WakeAt(absl::Time) override {}
  void Fail(const std::string& message) override { Note(absl::InternalError(message)); }

  void Note(absl::Status status) {
    if (trouble_.ok()) trouble_ = std::move(status);
  }
  absl::StatusOr<BatchSums> ComputeOne(replica::Compute& compute, ProgramCache& programs);
  std::vector<absl::StatusOr<BatchSums>> ComputeAll(std::vector<replica::Compute>& computes);

  const v1::AssignReplicas assignment_;
  const TrainingBatches batches_;
  ComputePool& pool_;
  ReplayPartitions partitions_;
  ReplicaDriver driver_;
  std::vector<replica::Compute> computes_;      // of the step that is to be computed
  std::optional<replica::TakeDigest> reached_;  // the values after the last step
  absl::Status trouble_;                        // the first
};

}  // namespace cairn
