// ReplicaDriver: runs the ReplicaCore of one job, and carries its effects out in order, through a ReplicaEnvironment:
// that of Trainer in a worker's process, the simulator's own in a run of it.
//
// Thread rule: any thread. Invariants:
//   1. The core is driven by one thread at a time, whichever brought the event (a gRPC thread, a slot): an event costs
//      no thread switch. One that comes while another is handled is handled by the same thread after it.
//   2. What progress() gives is of one moment: the step, its assignment and its generation.
//   3. After Drop nothing is carried out any more.
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

// What the effects of one job's core become. Called by the thread that drives; must not block.
class ReplicaEnvironment {
 public:
  using Assignment = std::shared_ptr<const v1::AssignReplicas>;

  virtual ~ReplicaEnvironment() = default;
  virtual absl::Time Now() = 0;
  // Before the core hears of it.
  virtual void BeginAssignment(const Assignment& assignment) = 0;
  virtual void SendToPs(replica::Send send) = 0;          // answered by a Reply
  virtual void Compute(replica::Compute compute) = 0;     // by Computed
  virtual void Evaluate(replica::Evaluate evaluate) = 0;  // by Evaluated
  virtual void GiveWeights(const replica::WeightsHere& here) = 0;
  virtual void StopWork(uint64_t work) = 0;
  virtual void TakeCheckpoint(replica::TakeCheckpoint take, const Assignment& assignment) = 0;  // by CheckpointDone
  virtual void Report(v1::ReplicaReport report) = 0;
  // Runs WakeUp at this time of its clock, or a little earlier.
  virtual void WakeAt(absl::Time at) = 0;
  // The job cannot go on here, for this reason (ReplicaDriver::failure). Once.
  virtual void Fail(const std::string& message) = 0;
};

class ReplicaDriver {
 public:
  using Assignment = ReplicaEnvironment::Assignment;
  struct Change {
    bool news = true;           // other replicas than before, or another generation
    std::vector<int32_t> left;  // replicas that it had before and no longer has
  };

  // environment outlives the driver.
  ReplicaDriver(JobId job, const ReplicaCoreOptions& options, ReplicaEnvironment& environment);

  // nullopt: it has a newer one.
  std::optional<Change> Assign(const v1::AssignReplicas& message);
  void Post(replica::Event event);
  // The time of a WakeAt has come. Too early by the environment's clock: it is asked again.
  void WakeUp(absl::Time at);
  void Drop();

  bool dropped() const { return dropped_.load(std::memory_order_relaxed); }
  const std::atomic<bool>& dropped_flag() const { return dropped_; }
  Assignment assignment() const;                    // null: none yet
  std::optional<v1::JobProgress> progress() const;  // nothing before the first step is known
  v1::HeldReplicas held() const;
  std::optional<std::string> failure() const;

 private:
  void CarryOut(replica::Effects effects);

  const JobId job_;
  ReplicaEnvironment& environment_;
  std::atomic<bool> dropped_{false};
  ReplicaCore core_;  // of the driving thread

  // Whoever sets driving_ drives core_ until the queue is empty.
  mutable absl::Mutex mutex_;
  bool driving_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<replica::Event> queue_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::JobProgress> progress_ ABSL_GUARDED_BY(mutex_);  // by the events so far
  Assignment assignment_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
