// Trainer: one job on this worker. It carries out the effects of the job's core (ReplicaDriver): it computes on the
// slots, talks to the ps, and reports to the coordinator.
//
// Thread rule: any thread. Invariants:
//   1. No call blocks, except on a slot: tasks there compile programs and wait for data.
//   2. After Drop nothing is sent or reported any more; running tasks end at their next block.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/trace.h"
#include "common/data/dataset.h"
#include "worker/core/replica_driver.h"
#include "worker/train/checkpointer.h"
#include "worker/train/compute_pool.h"
#include "worker/train/dataset_cache.h"
#include "worker/train/digest_taker.h"
#include "worker/train/file_queues.h"
#include "worker/train/layer_weights.h"
#include "worker/train/ps_connections.h"
#include "worker/train/replica_seats.h"
#include "worker/train/step_joins.h"

namespace cairn {

// What the trainers of a worker share. All of it outlives them.
struct TrainerServices {
  ComputePool* pool = nullptr;
  PsConnections* connections = nullptr;
  DatasetCache* datasets = nullptr;
  SerialExecutor* timers = nullptr;
  FileQueues* files = nullptr;  // writes checkpoints
  Clock* clock = nullptr;
  std::function<void(v1::NodeMessage)> send;  // to the coordinator; thread-safe
  // Called when a call of a program failed because of the device; thread-safe, may be null.
  std::function<void()> device_trouble;
  int decode_threads = 1;
  TraceRecorder* trace = nullptr;  // null: steps are not traced
};

class Trainer : public std::enable_shared_from_this<Trainer>, private ReplicaEnvironment {
 public:
  Trainer(JobId job, const TrainerServices& services);

  // Returns whether the replicas or the generation changed.
  bool Assign(const v1::AssignReplicas& message);
  void MarkBest(const v1::MarkBest& command);
  void Drop();
  // The session was opened again: repeats the reports that the coordinator may have missed.
  void ReportAgain();

  JobId job() const { return job_; }
  std::optional<v1::JobProgress> progress() const;  // nullopt until the step is known
  v1::HeldReplicas held() const { return driver_.held(); }
  std::vector<std::string> addresses() const;  // of the ps of the current assignment
  // Why the job failed here, if it did. The caller tells the coordinator, again after each reconnect.
  std::optional<v1::JobError> error() const;
  // What slots need to evaluate this job's model; null before the first step.
  std::shared_ptr<const JobModel> model() const;

 private:
  struct Prepared {
    std::shared_ptr<const JobModel> model;
    std::vector<v1::PartitionRange> ranges;  // in order
    std::shared_ptr<const Dataset> dataset;
    StepPlan plan;
    std::shared_ptr<BatchSource> batches;
  };

  // ---- ReplicaEnvironment ----
  absl::Time Now() override { return services_.clock->Now(); }
  void BeginAssignment(const Assignment& assignment) override;
  void SendToPs(replica::Send send) override;
  void Compute(replica::Compute compute) override;
  void Evaluate(replica::Evaluate evaluate) override;
  void GiveWeights(const replica::WeightsHere& here) override;
  void StopWork(uint64_t work) override;
  void TakeCheckpoint(replica::TakeCheckpoint take, const Assignment& assignment) override;
  void TakeDigest(replica::TakeDigest take) override { digests_->Take(std::move(take), driver_.assignment()); }
  void Report(v1::ReplicaReport report) override;
  void WakeAt(absl::Time at) override;
  void Fail(const std::string& message) override;

  void NoteTrouble(const absl::Status& status);  // the error of a task

  // ---- computing layer by layer ----
  std::shared_ptr<LayerWeights> Weights(uint64_t work) const;
  absl::StatusOr<BatchSums> ByLayer(uint64_t work, const Prepared& prepared, Program& program,
                                    const std::function<absl::StatusOr<BatchSums>()>& compute);

  // ---- on a slot ----
  absl::StatusOr<std::shared_ptr<const Prepared>> Prepare();
  absl::StatusOr<std::shared_ptr<const Prepared>> OpenAll(const v1::AssignReplicas& assignment);
  void NoteReplicaTime(absl::Duration time);
  void NoteLossScale(const replica::Compute& compute);
  int HomeOf(ReplicaId replica) const;
  // Starts to bring the slot's next batch to its device.
  void BringNext(const replica::Compute& compute, int slot, const Prepared& prepared, Program& program);
  std::optional<StepTrace> TraceOf(const replica::Compute& compute, int slot, TraceTimer& timer) const;
  void RunCompute(replica::Compute compute, ProgramCache& programs);
  absl::StatusOr<BatchSums> Train(const replica::Compute& compute, ProgramCache& programs);
  void RunEvaluate(replica::Evaluate evaluate, ProgramCache& programs);
  absl::StatusOr<BatchSums> EvaluateShare(const replica::Evaluate& evaluate, ProgramCache& programs);

  const JobId job_;
  const TrainerServices services_;
  const std::shared_ptr<Checkpointer> checkpointer_;
  const std::shared_ptr<DigestTaker> digests_;
  ReplicaDriver driver_;
  std::atomic<double> replica_ms_{0};        // mean over the last steps; 0: not known yet
  std::atomic<float> loss_scale_{0};         // of the last Compute
  std::atomic<bool> data_trouble_{false};    // the data set is missing here, or is a different one
  std::atomic<bool> device_trouble_{false};  // the device cannot compute the model, or has too little memory
  StepJoins joins_;                          // entered by tasks, which keep this alive

  absl::Mutex preparing_;  // held while data is opened; taken before mutex_
  mutable absl::Mutex mutex_;
  std::shared_ptr<const Prepared> prepared_ ABSL_GUARDED_BY(mutex_);
  ReplicaSeats seats_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<LayerWeights>> weights_ ABSL_GUARDED_BY(mutex_);  // by work that computes by layer
};

}  // namespace cairn
