// PartitionHost: all partitions that a ps holds: those in its data directory, those that the coordinator assigns, and
// those that it drops. PartitionRunner drives them.
//
// Thread rule: OnFrame, OnClientGone and Held from any thread; LoadHeld, Host, Drop, Drain and Stop from one control
// thread (they block). Callbacks run on the runner's executors. Invariants:
//   1. A partition found on disk does not serve until Host has assigned it in a generation: UNAVAILABLE until then.
//   2. rollback_to is applied once: if the assignment's generation is newer than the stored one.
//   3. A storage failure of one job's partition takes it out of service and is reported by job_error; other jobs go
//      on.
//   4. For a job whose training is over, `kept` is called once for each assignment and each ReportAgain, when all
//      partitions of it that this ps serves are on the disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/storage/kv_store.h"
#include "server/node/assignment_plan.h"
#include "server/node/exchange_handler.h"
#include "server/node/job_failures.h"
#include "server/node/partition_environment.h"
#include "server/node/partition_runner.h"
#include "server/node/partition_slot.h"
#include "server/storage/persistence.h"

namespace cairn {

struct PartitionHostCallbacks {
  std::function<void(uint64_t client, Frame)> reply;
  std::function<void(JobId, Generation, const absl::Status&)> job_error;
  std::function<void(v1::BackupReport)> backup_report = [](v1::BackupReport) {};
  std::function<void(v1::FiguresReport)> figures = [](v1::FiguresReport) {};
  // HostPartitions.keep: all partitions of which this ps is the primary are on the disk now.
  std::function<void(v1::PartitionsReady)> kept = [](v1::PartitionsReady) {};
};

class PartitionHost : public ExchangeHandler {
 public:
  // image: when images are written to the store, for all partitions.
  PartitionHost(KvStore& store, PartitionEnvironment environment, PartitionHostCallbacks callbacks,
                const ImageOptions& image = {});
  ~PartitionHost() override;

  // Recovers the stored partitions, without serving them. A job that cannot be recovered is logged and skipped: Host
  // will return its error. Errors: the list of jobs itself is damaged.
  absl::Status LoadHeld();
  std::vector<v1::HeldPartitions> Held() const;

  // Makes this the job's assignment: rolls partitions back if it says so, stores it, recovers or initializes missing
  // partitions, gives the copies their roles, drops partitions that it does not name. Idempotent. Errors: ABORTED, a
  // lower generation than the present one; INVALID_ARGUMENT, the job's spec or ranges; DATA_LOSS and others, the store.
  absl::StatusOr<v1::PartitionsReady> Host(const v1::HostPartitions& host);
  // Deletes everything of the job, on disk too. An unknown job is no error.
  absl::Status Drop(JobId job);

  // The coordinator has stored the figures of the epochs below `epochs`; those of the others are reported again.
  void FiguresStored(JobId job, int32_t epochs, uint64_t question);

  void OnFrame(uint64_t client, Frame frame, Credit credit) override;
  void OnClientGone(uint64_t client) override;

  // Repeats the calls of `kept` and `figures`, and of job_error for jobs that still cannot be served here: the session
  // may have been down.
  void ReportAgain();
  // The first error of the store, which makes it unusable; empty: it is healthy. It stays until the process ends,
  // since the failed state is no longer in memory.
  std::string fault() const { return failures_.fault(); }

  // Answers new frames with UNAVAILABLE; returns when all earlier ones have been handled.
  void Drain();
  void Stop();  // after it nothing runs; idempotent

 private:
  using Slots = std::map<uint32_t, PartitionSlotPtr>;

  struct Job {
    Generation generation;
    bool assigned = false;  // since this process started
    Slots slots;
    std::set<std::string> backups;  // addresses
    bool keep = false;              // HostPartitions.keep: `kept` has to be called
    bool kept_told = false;
    bool ended = false;   // HostPartitions.ended
    bool tidied = false;  // likewise, and the store was told to free the space that its partitions no longer need
  };

  PartitionRunnerCallbacks RunnerCallbacks();
  absl::StatusOr<PartitionSlotPtr> FindSlot(const Frame& frame) const;

  // ---- assignments: partition_host_jobs.cc ----
  // `assigned`: the copies take their roles now; else they wait for Host.
  absl::StatusOr<Slots> Load(const v1::HostPartitions& host, const Slots& present, bool assigned);
  absl::StatusOr<Slots> MakeSlots(const v1::HostPartitions& host, const Slots& present);
  absl::StatusOr<PartitionConfig> ConfigOf(const v1::HostPartitions& host, const std::shared_ptr<const Graph>& graph,
                                           const v1::PartitionRange& range) const;
  void TakeOut(uint64_t job_id, const std::vector<uint32_t>& partitions, Slots& present);
  absl::Status RollBack(const v1::HostPartitions& host, const AssignmentPlan& plan);
  void DescribeHeld(const PartitionSlot& slot, v1::HeldPartition* held) const;
  void KeepConnections();

  // ---- jobs that have ended ----
  void TellKept(uint64_t job_id);
  void Tidy(uint64_t job_id);
  void GiveBackMemory() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Persistence persistence_;
  const PartitionHostCallbacks callbacks_;
  const ImageOptions image_;
  const std::function<void()> give_back_memory_;
  JobFailures failures_;
  std::atomic<bool> draining_{false};
  mutable absl::Mutex mutex_;
  std::map<uint64_t, Job> jobs_ ABSL_GUARDED_BY(mutex_);
  bool memory_due_ ABSL_GUARDED_BY(mutex_) = false;  // a GiveBackMemory is scheduled
  PartitionRunner runner_;                           // last: ends before what its callbacks use
};

}  // namespace cairn
