// PartitionRunner: drives the cores of a ps' partitions, spread over a few executors (lanes): their events, their
// persistence, their images and their links to backups. Which partitions there are is PartitionHost's; threads, time
// and the way to other ps are of the PartitionEnvironment that it is given.
//
// Thread rule: Deliver, Refuse, OnClientGone, Post and PostToDisk from any thread; NewSlot, WaitForLanes, Remove,
// KeepBackups, Drain and Stop from one control thread (all but the first block); Open and Run on the lane of the slot.
// Callbacks run on the runner's executors, `reply` on the thread of Refuse's caller too. Invariants:
//   1. A core is touched by its one lane alone. Frames of one client for one partition are handled in order.
//   2. A reply leaves after what it speaks of was persisted (RunEvent).
//   3. Whose image is written or sent is decided by ImageTurns. Values of ended jobs are loaded for one partition after
//      the other, by the executor that writes images.
//   4. A failure of the store takes that partition out of service; others go on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/status.h"
#include "server/node/exchange_handler.h"
#include "server/node/image_turns.h"
#include "server/node/partition_environment.h"
#include "server/node/partition_slot.h"
#include "server/storage/persistence.h"

namespace cairn {

struct PartitionRunnerCallbacks {
  std::function<void(uint64_t client, Frame)> reply;
  std::function<void(v1::BackupReport)> backup_report;
  std::function<void(v1::FiguresReport)> figures;
  // The slot has no core any more; slot.status is what clients are told.
  std::function<void(const PartitionSlot&, Generation, const absl::Status&)> storage_failed;
  std::function<void(const absl::Status&)> image_failed;
  std::function<void(const PartitionSlot&)> at_rest;
  // PartitionConfig::keep: its version is on the disk now.
  std::function<void(const PartitionSlot&)> kept;
};

class PartitionRunner {
 public:
  PartitionRunner(Persistence& persistence, PartitionEnvironment environment, PartitionRunnerCallbacks callbacks);
  ~PartitionRunner();

  PartitionSlotPtr NewSlot(PartitionConfig config);
  void Post(const PartitionSlotPtr& slot, std::function<void()> task);
  // Returns when all that was posted to slots has run.
  void WaitForLanes();
  // On the executor that writes images.
  void PostToDisk(std::function<void()> task) { disk_->Post(std::move(task)); }
  void PostToDiskAfter(absl::Duration delay, std::function<void()> task) { disk_->PostAfter(delay, std::move(task)); }

  void Deliver(PartitionSlotPtr slot, uint64_t client, Frame frame, Credit credit);
  void OnClientGone(uint64_t client);
  void Refuse(uint64_t client, const Frame& frame, const absl::Status& status);

  // Recovers or initializes its core, where it has none.
  absl::Status Open(const PartitionSlotPtr& slot, Generation generation);
  void Run(const PartitionSlotPtr& slot, PartitionEvent event);

  // Ends the slots' cores. After it nothing of theirs is written any more.
  void Remove(const std::vector<PartitionSlotPtr>& slots);
  // Connections to exactly these.
  void KeepBackups(const std::set<std::string>& addresses) { backups_->Keep(addresses); }
  // Opens no more links, and returns when all that was posted has run.
  void Drain();
  void Stop();  // after it nothing runs; idempotent

 private:
  struct Lane {  // an executor and the slots that live on it
    std::unique_ptr<Executor> executor;
    std::vector<PartitionSlotPtr> slots;  // on the executor only
  };

  Executor& executor_of(const PartitionSlot& slot) { return *lanes_[slot.lane].executor; }
  void Tick(size_t lane);
  void StorageFailed(const PartitionSlotPtr& slot, const absl::Status& status);
  void EndCore(PartitionSlot& slot);

  // ---- effects ----
  void CarryOut(const PartitionSlotPtr& slot, PartitionEffects& effects);
  void WriteImage(const PartitionSlotPtr& slot, Image image);
  void NextImage();
  void LoadValues(const PartitionSlotPtr& slot);
  void WakeAt(const PartitionSlotPtr& slot, absl::Time at);

  // ---- backups ----
  void SendToBackup(const PartitionSlotPtr& slot, PeerSend send);
  void OnBackupAnswer(const PartitionSlotPtr& slot, const std::string& address, uint64_t epoch,
                      absl::StatusOr<Frame> answer);
  void ConnectBackup(const PartitionSlotPtr& slot, const std::string& address);
  void TendBackupImages(const PartitionSlotPtr& slot);
  void GrantBackupImages();

  Persistence& persistence_;
  Clock& clock_;
  const PartitionRunnerCallbacks callbacks_;
  std::atomic<bool> draining_{false};
  bool stopped_ = false;
  size_t next_lane_ = 0;  // control thread
  StoreImageTurns store_turns_;
  BackupImageTurns backup_turns_;
  PartitionObserver* const observer_;  // null in a ps
  const std::unique_ptr<BackupTransport> backups_;
  std::vector<Lane> lanes_;
  const std::unique_ptr<Executor> disk_;
};

}  // namespace cairn
