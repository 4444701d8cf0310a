// PartitionHost: every partition that a ps holds, spread over a few threads: it drives the cores, their persistence and
// their images.
//
// Thread rule: OnFrame, OnClientGone and Held from any thread; LoadHeld, Host, Drop, Drain and Stop from one control
// thread (they block). Callbacks run on the host's threads. Invariants:
//   1. A core is touched by its one SerialExecutor alone. Frames of one client for one partition are handled in order.
//   2. A partition found on disk answers nobody until Host has named it in a generation: UNAVAILABLE until then.
//   3. A reply leaves after what it speaks of was persisted (RunEvent).
//   4. One image is copied and written at a time, but for those that SNAPSHOT jobs take while they train.
//   5. Images for backups are on their way for at most kBackupImagesMax partitions at a time. Those of ended jobs come
//      after all others, one at a time, and take up at most about a quarter of the time.
//   6. rollback_to is obeyed once: where the assignment's generation is newer than the one stored.
//   7. Values of ended jobs are loaded for one partition after the other, by the thread that writes images.
//   8. A failure of one job's storage takes that job's partition out
//      of service and is told by job_error; other jobs go on.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/status.h"
#include "common/storage/kv_store.h"
#include "server/core/partition_core.h"
#include "server/node/assignment_plan.h"
#include "server/node/backup_connections.h"
#include "server/node/exchange_service.h"
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
  PartitionHost(KvStore& store, Clock& clock, int threads, PartitionHostCallbacks callbacks);
  ~PartitionHost() override;

  // Recovers what the store holds, without serving it. A job that cannot be recovered is logged and left out: Host will
  // say what is wrong with it. Errors: the list of jobs itself is damaged.
  absl::Status LoadHeld();
  std::vector<v1::HeldPartitions> Held() const;

  // Makes this the job's assignment: takes the partitions back where it says so, stores it, recovers or initializes
  // what is not there, gives the copies their roles, forgets what is not named. Idempotent. Errors: ABORTED a lower
  // generation than the present one; INVALID_ARGUMENT the job's spec or ranges; DATA_LOSS and others from the store.
  absl::StatusOr<v1::PartitionsReady> Host(const v1::HostPartitions& host);
  // Forgets everything of the job, on disk too. Fine where there is nothing.
  absl::Status Drop(JobId job);

  // The coordinator's word; the figures of the other epochs are reported again.
  void FiguresStored(JobId job, int32_t epochs);

  void OnFrame(uint64_t client, Frame frame, Credit credit) override;
  void OnClientGone(uint64_t client) override;

  // Says again what `kept` and `figures` said, and what job_error said of jobs that still cannot be served here: the
  // session may have been away.
  void ReportAgain();
  // Why the store is of no use any more, the first error of it; empty: nothing is wrong. It stays until the process
  // ends: what failed is not in memory any more.
  std::string fault() const;

  // Answers new frames with UNAVAILABLE, returns when those before have been handled.
  void Drain();
  void Stop();  // after it nothing runs; idempotent

 private:
  struct Slot;  // partition_slot.h
  struct Job;
  using Slots = std::map<uint32_t, std::shared_ptr<Slot>>;

  struct Lane {  // an executor and the slots that live on it
    std::unique_ptr<SerialExecutor> executor;
    std::vector<std::shared_ptr<Slot>> slots;  // on the executor only
  };

  // `assigned`: the copies take up their roles; else they wait for Host.
  absl::StatusOr<Slots> Load(const v1::HostPartitions& host, const Slots& present, bool assigned);
  void TakeOut(uint64_t job_id, const std::vector<uint32_t>& partitions, Slots& present);
  absl::Status RollBack(const v1::HostPartitions& host, const AssignmentPlan& plan);
  void DescribeHeld(const Slot& slot, v1::HeldPartition* held) const;

  // ---- partition_host_backups.cc ----
  void CarryOut(const std::shared_ptr<Slot>& slot, PartitionEffects& effects);
  void SendToBackup(const std::shared_ptr<Slot>& slot, PeerSend send);
  void OnBackupAnswer(const std::shared_ptr<Slot>& slot, const std::string& address, uint64_t epoch,
                      absl::StatusOr<Frame> answer);
  void ConnectBackup(const std::shared_ptr<Slot>& slot, const std::string& address);
  void WakeAt(const std::shared_ptr<Slot>& slot, absl::Time at);
  void TendBackupImages(const std::shared_ptr<Slot>& slot);
  void GrantBackupImages();
  void KeepConnections();
  std::shared_ptr<Slot> NewSlot(PartitionConfig config);
  void Remove(const std::vector<std::shared_ptr<Slot>>& slots);
  void EndCore(Slot& slot);
  void StorageFailed(const std::shared_ptr<Slot>& slot, const absl::Status& status);
  void JobFailed(JobId job, Generation generation, const absl::Status& status);
  void Run(const std::shared_ptr<Slot>& slot, PartitionEvent event);
  void Refuse(uint64_t client, const Frame& frame, const absl::Status& status);
  absl::Status NoteFault(absl::Status status);
  void Tick(size_t lane);
  void WriteImage(const std::shared_ptr<Slot>& slot, Image image);
  void QueueImage(const std::shared_ptr<Slot>& slot);
  void NextImage();
  void TellKept(uint64_t job_id);
  void LoadValues(const std::shared_ptr<Slot>& slot);
  void Tidy(uint64_t job_id);
  void GiveBackMemory() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  KvStore& store_;
  Clock& clock_;
  Persistence persistence_;
  const PartitionHostCallbacks callbacks_;
  std::atomic<bool> draining_{false};
  bool stopped_ = false;
  size_t next_lane_ = 0;  // control thread
  std::vector<Lane> lanes_;
  std::unique_ptr<SerialExecutor> image_writer_;
  BackupConnections backups_;

  mutable absl::Mutex mutex_;
  std::map<uint64_t, Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Slot>> images_due_ ABSL_GUARDED_BY(mutex_);
  bool image_under_way_ ABSL_GUARDED_BY(mutex_) = false;
  bool memory_due_ ABSL_GUARDED_BY(mutex_) = false;  // GiveBackMemory waits for its time
  std::deque<std::shared_ptr<Slot>> backup_images_due_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Slot>> ended_images_due_ ABSL_GUARDED_BY(mutex_);  // likewise, of jobs that have ended
  bool ended_image_ ABSL_GUARDED_BY(mutex_) = false;                            // one of them is on its way
  absl::Time ended_image_at_ ABSL_GUARDED_BY(mutex_) =
      absl::InfinitePast();                        // since then; or, while there is none: not before
  int backup_images_ ABSL_GUARDED_BY(mutex_) = 0;  // on their way, or about to be
  std::string fault_ ABSL_GUARDED_BY(mutex_);
  struct Failure {
    Generation generation;
    absl::Status status;
  };
  std::map<uint64_t, Failure> failures_ ABSL_GUARDED_BY(mutex_);  // by job: what job_error said last
};

}  // namespace cairn
