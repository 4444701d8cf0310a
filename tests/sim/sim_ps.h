// A simulated ps: the PartitionHost of cairn-ps, on the simulator's threads, streams and disk.
//
// sim_ps.cc replaces server/node/ps_node and exchange_service: it handles the session's commands and routes
// answers. sim_ps_watch.cc observes for the checkers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "server/core/partition_core.h"
#include "server/node/partition_host.h"
#include "server/storage/persistence.h"
#include "tests/sim/checkers.h"
#include "tests/sim/disk.h"
#include "tests/sim/exchange.h"
#include "tests/sim/fail_stop_store.h"
#include "tests/sim/planted_store.h"
#include "tests/sim/sim_executor.h"
#include "tests/sim/sim_node.h"

namespace cairn::sim {

// The sender of a frame, and the way to answer it.
struct PsClient {
  std::shared_ptr<Stream> stream;  // as its listener
  std::function<void(Frame)> to_dialer;
};

class SimPs : public SimNode, private PartitionObserver {
 public:
  SimPs(SimCluster& cluster, int index, bool power_losses);
  ~SimPs() override;

  std::string address() const;  // of the current process
  SimDisk& disk() { return *disk_; }
  // client: null if nobody waits for the answer.
  void OnFrame(const std::shared_ptr<PsClient>& client, Frame frame);
  // The cores of the newest job that it knows.
  const std::map<uint32_t, const PartitionCore*>& cores() const { return cores_; }
  Copy CopyOf(uint32_t partition) const;
  uint64_t VersionOnDisk(uint32_t partition) const;

 protected:
  v1::Hello Hello() override;
  v1::Heartbeat Heartbeat() override;
  void OnCommand(const v1::CoordinatorMessage& message) override;
  void OnStart() override;
  void OnEnd() override;

 private:
  std::unique_ptr<Executor> NewThread() const;
  PartitionHostCallbacks Callbacks();
  void LoadHeld();
  void Command(const v1::CoordinatorMessage& message);
  void HostJob(const v1::HostPartitions& host);
  void JobFails(JobId job, Generation generation, const absl::Status& status);
  std::string Fault() const;
  void StoreFails();
  void StartWhenDiskHasRoom(uint64_t process);
  void Answer(uint64_t client, Frame frame);

  // ---- planted defects ----
  void DieSoon();
  void PlantInAssignment(v1::HostPartitions& host) const;
  void PlantInHeld(v1::HeldPartition& held) const;
  void ReportEarly(const v1::HostPartitions& host);
  void GoOnAlone();
  uint64_t TokenOf(Stream& stream);

  // ---- PartitionObserver, for the checkers: sim_ps_watch.cc ----
  void OnRecovered(const PartitionConfig& config, PartitionState& state) override;
  void OnOpened(const PartitionSlot& slot) override;
  void OnEnding(const PartitionSlot& slot) override;
  void OnEvent(const PartitionSlot& slot, const PartitionEvent& event) override;
  void OnEffects(const PartitionSlot& slot, const PartitionEffects& effects) override;
  void OnHandled(const PartitionSlot& slot) override;
  bool Watches(const PartitionSlot& slot) const { return slot.config.job.value == job_; }
  void OnAssign(const PartitionSlot& slot, const AssignEvent& event);
  void OnReplies(const PartitionSlot& slot, const PartitionEffects& effects);

  std::unique_ptr<SimDisk> disk_;  // outlives the process
  FailStopStore fail_stop_;
  PlantedStore planted_;
  KvStore& store_;  // one of the two
  Persistence persistence_;
  SimClock clock_;
  // Of the current process:
  std::unique_ptr<SimExecutor> control_;
  std::unique_ptr<PartitionHost> partitions_;
  std::map<uint64_t, std::shared_ptr<PsClient>> clients_;  // by token
  std::map<const Host*, uint64_t> tokens_;                 // PlantedBug::kMixStreams
  v1::HostPartitions hosted_;                              // PlantedBug::kGoOnAlone: the newest assignment
  uint64_t alone_in_ = 0;                                  // the generation in which it continues alone

  uint64_t job_ = 0;  // the newest
  std::map<uint32_t, const PartitionCore*> cores_;
  std::set<uint32_t> serving_;                          // partitions that serve as primaries since their cores began
  bool goes_back_ = false;                              // an assignment with a rollback is being carried out
  mutable std::map<uint32_t, PartitionState> on_disk_;  // partitions at rest: the last result of CopyOf
  // The last tensor of a restore in progress.
  struct Restoring {
    uint32_t partition = 0;
    uint64_t client = 0, request_id = 0;
    Generation generation;
  };
  std::optional<Restoring> restoring_;
};

}  // namespace cairn::sim
