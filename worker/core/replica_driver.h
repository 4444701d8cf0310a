// ReplicaDriver: runs the ReplicaCore of one job and carries its effects out in order through a ReplicaEnvironment:
// Trainer's in a worker process, the simulator's own in a simulation.
//
// Thread rule: any thread. Invariants:
//   1. One thread at a time drives the core: the one that brought the event (a gRPC thread, a slot), so that an event
//      costs no thread switch. An event that arrives meanwhile is handled by that thread afterwards.
//   2. progress() is consistent: its step, assignment and generation are of the same moment.
//   3. After Drop no effect is carried out.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/ids.h"
#include "worker/core/replica_core.h"

namespace cairn {

// Carries out the effects of one job's core. Called by the driving thread; must not block.
class ReplicaEnvironment {
 public:
  using Assignment = std::shared_ptr<const v1::AssignReplicas>;

  virtual ~ReplicaEnvironment() = default;
  virtual absl::Time Now() = 0;
  // Called before the core gets the assignment.
  virtual void BeginAssignment(const Assignment& assignment) = 0;
  virtual void SendToPs(replica::Send send) = 0;          // answered by a Reply
  virtual void Compute(replica::Compute compute) = 0;     // by Computed
  virtual void Evaluate(replica::Evaluate evaluate) = 0;  // by Evaluated
  virtual void GiveWeights(const replica::WeightsHere& here) = 0;
  virtual void StopWork(uint64_t work) = 0;
  virtual void TakeCheckpoint(replica::TakeCheckpoint take, const Assignment& assignment) = 0;  // by CheckpointDone
  virtual void TakeDigest(replica::TakeDigest take) = 0;                                        // not answered
  virtual void Report(v1::ReplicaReport report) = 0;
  // Calls WakeUp at this time of the environment's clock, or a little earlier.
  virtual void WakeAt(absl::Time at) = 0;
  // The job cannot continue here, for this reason (ReplicaDriver::failure). Called once.
  virtual void Fail(const std::string& message) = 0;
};

class ReplicaDriver {
 public:
  using Assignment = ReplicaEnvironment::Assignment;
  struct Change {
    bool news = true;           // the replicas or the generation changed
    std::vector<int32_t> left;  // replicas that the job no longer has here
  };

  // `environment` must outlive the driver.
  ReplicaDriver(JobId job, const ReplicaCoreOptions& options, ReplicaEnvironment& environment);

  // nullopt: ignored, since the driver has a newer assignment.
  std::optional<Change> Assign(const v1::AssignReplicas& message);
  void Post(replica::Event event);
  // The time of a WakeAt has come. If it is too early by the environment's clock, WakeAt is called again.
  void WakeUp(absl::Time at);
  void Drop();

  bool dropped() const { return dropped_.load(std::memory_order_relaxed); }
  const std::atomic<bool>& dropped_flag() const { return dropped_; }
  Assignment assignment() const;                    // null: none yet
  std::optional<v1::JobProgress> progress() const;  // nullopt until the step is known
  v1::HeldReplicas held() const;
  std::optional<std::string> failure() const;

 private:
  void CarryOut(replica::Effects effects);

  const JobId job_;
  ReplicaEnvironment& environment_;
  std::atomic<bool> dropped_{false};
  ReplicaCore core_;  // used by the driving thread only

  // Whoever sets driving_ drives core_ until the queue is empty.
  mutable absl::Mutex mutex_;
  bool driving_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<replica::Event> queue_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::JobProgress> progress_ ABSL_GUARDED_BY(mutex_);  // after the events handled so far
  Assignment assignment_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
