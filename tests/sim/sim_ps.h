// A simulated ps: PartitionCores over a disk that survives a crash, and its streams to the backups of its partitions.
//
// What server/node/partition_host does in production, on one thread: sim_ps.cc drives the cores, sim_ps_host.cc has
// what it holds, sim_ps_backups.cc the streams to backups.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "server/core/partition_core.h"
#include "server/node/assignment_plan.h"
#include "server/storage/persistence.h"
#include "tests/sim/checkers.h"
#include "tests/sim/disk.h"
#include "tests/sim/exchange.h"
#include "tests/sim/sim_node.h"

namespace cairn::sim {

// Who sent a frame, and how to answer.
struct PsClient {
  std::shared_ptr<Stream> stream;  // as its listener
  std::function<void(Frame)> to_dialer;
};

class SimPs : public SimNode {
 public:
  SimPs(SimCluster& cluster, int index, bool power_losses);

  std::string address() const;  // of the present process
  SimDisk& disk() { return *disk_; }
  // client: null for a frame that nobody waits for.
  void OnFrame(const std::shared_ptr<PsClient>& client, Frame frame);
  const std::map<uint32_t, std::unique_ptr<PartitionCore>>& cores() const { return cores_; }
  Copy CopyOf(uint32_t partition) const;
  uint64_t VersionOnDisk(uint32_t partition) const;

 protected:
  v1::Hello Hello() override;
  void OnCommand(const v1::CoordinatorMessage& message) override;
  void OnStart() override;
  void OnEnd() override;

 private:
  struct Peer {
    std::shared_ptr<Exchange> exchange;  // null: none at present
    uint64_t epoch = 0;
    bool up = false;
  };

  void HostJob(const v1::HostPartitions& host);
  void LoadHeld();
  absl::StatusOr<PartitionConfig> ConfigOf(const v1::HostPartitions& host, const v1::PartitionRange& range) const;
  absl::Status Load(const v1::HostPartitions& host, const v1::PartitionRange& range);
  void TakeOut(uint32_t partition, const absl::Status& why);
  void ForgetAll();
  void ReportEarly(const v1::HostPartitions& host, const v1::PartitionRange& range);
  v1::HeldPartition Held(const PartitionCore& core) const;
  void TellKept();
  void Forget(uint32_t partition, const absl::Status& why);
  // As PartitionHost and PsNode: the core goes, and the coordinator is told.
  void StoreFailed(uint32_t partition, const absl::Status& status);
  void JobFails(uint64_t generation, const absl::Status& status);
  void Refuse(uint64_t client, const Frame& request, const absl::Status& status);
  void Run(uint32_t partition, PartitionEvent event);
  void CarryOut(uint32_t partition, PartitionEffects& effects);
  void WriteImage(uint32_t partition, Image image);
  void LoadValues(uint32_t partition);
  void Answer(uint64_t client, Frame frame);
  void SendToPeer(uint32_t partition, PeerSend send);
  void Connect(const std::string& address);
  void DialPeer(const std::string& address);
  bool Wanted(const std::string& address) const;
  void NextImage();
  void DieSoon();  // of planted stores
  void Tick();

  std::unique_ptr<SimDisk> disk_;  // outlives the process
  std::unique_ptr<KvStore> planted_;
  Persistence persistence_;
  uint64_t job_ = 0;
  std::optional<Generation> generation_;  // of what it holds of the job; none: nothing
  bool hosting_ = false;                  // HostPartitions came since the start
  bool kept_told_ = false;
  std::map<uint32_t, std::unique_ptr<PartitionCore>> cores_;
  mutable std::map<uint32_t, PartitionState> on_disk_;  // of partitions at rest: what CopyOf last gave
  std::map<uint32_t, PartitionInMemory> failed_;  // partitions that the store took along: as PartitionSlot::failed
  std::map<uint32_t, uint64_t> serials_;          // of the cores: tells what a former one started
  uint64_t last_serial_ = 0;
  std::map<uint64_t, std::shared_ptr<PsClient>> clients_;  // by stream
  std::map<std::string, Peer> peers_;                      // by address
  uint64_t last_epoch_ = 0;
  // The last tensor of a checkpoint that is just being restored.
  struct Restoring {
    uint64_t client = 0, request_id = 0;
    Generation generation;
  };
  std::optional<Restoring> restoring_;
  std::optional<v1::NodeMessage> failure_;  // a JobError
};

}  // namespace cairn::sim
