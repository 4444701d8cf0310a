// PartitionHost: every partition that a ps holds: what its data directory has, what the coordinator assigns, what is
// dropped. PartitionRunner drives them.
//
// Thread rule: OnFrame, OnClientGone and Held from any thread; LoadHeld, Host, Drop, Drain and Stop from one control
// thread (they block). Callbacks run on the runner's executors. Invariants:
//   1. A partition found on disk serves nobody until Host has named it in a generation: UNAVAILABLE until then.
//   2. rollback_to is obeyed once: where the assignment's generation is newer than the one stored.
//   3. A failure of one job's storage takes that job's partition out of service and is told by job_error; other jobs go
//      on.
//   4. Of a job that trains no more `kept` is told once for each assignment and each ReportAgain, when all that this ps
//      serves of it is on the disk.
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
  // HostPartitions.keep: all that this ps is the primary of is on the disk now.
  std::function<void(v1::PartitionsReady)> kept = [](v1::PartitionsReady) {};
};

class PartitionHost : public ExchangeHandler {
 public:
  // image: when the store gets images; of all partitions.
  PartitionHost(KvStore& store, PartitionEnvironment environment, PartitionHostCallbacks callbacks,
                const ImageOptions& image = {});
  ~PartitionHost() override;

  // Recovers what the store holds, without serving it. A job that cannot be recovered is logged and left out: Host will
  // say what is wrong with it. Errors: the list of jobs itself is damaged.
  absl::Status LoadHeld();
  std::vector<v1::HeldPartitions> Held() const;

  // Makes this the job's assignment: takes the partitions back where it says so, stores it, recovers or initializes
  // what is not there, gives the copies their roles, forgets what is not named. Idempotent. Errors: ABORTED a lower
  // generation than the present one; INVALID_ARGUMENT the job's spec or ranges; DATA_LOSS and others from the store.
  absl::StatusOr<v1::PartitionsReady> Host(const v1::HostPartitions& host);
  // Forgets everything of the job, on disk too. A job that is not here is no error.
  absl::Status Drop(JobId job);

  // The coordinator's word; the figures of the other epochs are reported again.
  void FiguresStored(JobId job, int32_t epochs, uint64_t question);

  void OnFrame(uint64_t client, Frame frame, Credit credit) override;
  void OnClientGone(uint64_t client) override;

  // Says again what `kept` and `figures` said, and what job_error said of jobs that still cannot be served here: the
  // session may have been away.
  void ReportAgain();
  // Why the store cannot be used any more, the first error of it; empty: nothing is wrong. It stays until the process
  // ends: what failed is not in memory any more.
  std::string fault() const { return failures_.fault(); }

  // Answers new frames with UNAVAILABLE, returns when those before have been handled.
  void Drain();
  void Stop();  // after it nothing runs; idempotent

 private:
  using Slots = std::map<uint32_t, PartitionSlotPtr>;

  struct Job {
    Generation generation;
    bool assigned = false;  // since this process started
    Slots slots;
    std::set<std::string> backups;  // addresses
    bool keep = false;              // HostPartitions.keep: `kept` is to be told
    bool kept_told = false;
    bool ended = false;   // HostPartitions.ended
    bool tidied = false;  // likewise, and the store was told to give back what its partitions need no more
  };

  PartitionRunnerCallbacks RunnerCallbacks();
  absl::StatusOr<PartitionSlotPtr> FindSlot(const Frame& frame) const;

  // ---- assignments: partition_host_jobs.cc ----
  // `assigned`: the copies take up their roles; else they wait for Host.
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
  bool memory_due_ ABSL_GUARDED_BY(mutex_) = false;  // GiveBackMemory waits for its time
  PartitionRunner runner_;                           // last: ends before what its callbacks use
};

}  // namespace cairn
