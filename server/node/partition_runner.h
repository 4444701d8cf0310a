// PartitionRunner: drives the cores of a ps' partitions, spread over a few executors (lanes): events, persistence,
// images and links to backups. PartitionHost decides which partitions there are; the PartitionEnvironment provides
// executors, clock and connections to other ps.
//
// Thread rule: Deliver, Refuse, OnClientGone, Post and PostToDisk from any thread; NewSlot, WaitForLanes, Remove,
// KeepBackups, Drain and Stop from one control thread (all but the first block); Open and Run on the lane of the slot.
// Callbacks run on the runner's executors, `reply` on the thread of Refuse's caller too. Invariants:
//   1. A core is touched only by its own lane. Frames of one client for one partition are handled in order.
//   2. A reply is sent after the updates that it shows were persisted (RunEvent).
//   3. ImageTurns decides which images are written or sent. Values of ended jobs are loaded one partition at a time, by
//      the executor that writes images.
//   4. A failure of the store takes that partition out of service; others continue.
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
  // The slot has lost its core; slot.status is the answer to its clients.
  std::function<void(const PartitionSlot&, Generation, const absl::Status&)> storage_failed;
  std::function<void(const absl::Status&)> image_failed;
  std::function<void(const PartitionSlot&)> at_rest;
  // PartitionConfig::keep: the slot's version is on the disk now.
  std::function<void(const PartitionSlot&)> kept;
};

class PartitionRunner {
 public:
  PartitionRunner(Persistence& persistence, PartitionEnvironment environment, PartitionRunnerCallbacks callbacks);
  ~PartitionRunner();

  PartitionSlotPtr NewSlot(PartitionConfig config);
  void Post(const PartitionSlotPtr& slot, std::function<void()> task);
  // Returns when all tasks posted to slots have run.
  void WaitForLanes();
  // On the executor that writes images.
  void PostToDisk(std::function<void()> task) { disk_->Post(std::move(task)); }
  void PostToDiskAfter(absl::Duration delay, std::function<void()> task) { disk_->PostAfter(delay, std::move(task)); }

  void Deliver(PartitionSlotPtr slot, uint64_t client, Frame frame, Credit credit);
  void OnClientGone(uint64_t client);
  void Refuse(uint64_t client, const Frame& frame, const absl::Status& status);

  // Recovers or initializes the slot's core, if it has none.
  absl::Status Open(const PartitionSlotPtr& slot, Generation generation);
  void Run(const PartitionSlotPtr& slot, PartitionEvent event);

  // Ends the slots' cores. After it nothing of these slots is written.
  void Remove(const std::vector<PartitionSlotPtr>& slots);
  // Keeps connections to exactly these addresses.
  void KeepBackups(const std::set<std::string>& addresses) { backups_->Keep(addresses); }
  // Opens no more links, and returns when all posted tasks have run.
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
  TraceRecorder* const trace_;         // may be null
  const std::unique_ptr<BackupTransport> backups_;
  std::vector<Lane> lanes_;
  const std::unique_ptr<Executor> disk_;
};

}  // namespace cairn
