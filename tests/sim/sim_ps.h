// A simulated ps: PartitionCores over a store that survives a crash.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/storage/kv_store.h"
#include "server/partition_core.h"
#include "server/persistence.h"
#include "tests/sim/checkers.h"
#include "tests/sim/network.h"
#include "tests/sim/simulation.h"

namespace cairn::sim {

class SimCluster;

class SimPs {
 public:
  SimPs(SimCluster& cluster, int index);

  void Start();
  void Crash();
  bool up() const { return up_; }
  const std::string& name() const { return name_; }
  std::string address() const;  // of the present process

  v1::Hello Hello();
  void OnCommand(const v1::CoordinatorMessage& message);
  void OnFrame(const std::shared_ptr<Exchange>& stream, Frame frame);
  void OnStreamClosed(uint64_t token);

  const std::map<uint32_t, std::unique_ptr<PartitionCore>>& cores() const { return cores_; }

 private:
  void Host(const v1::HostPartitions& host);
  void Run(uint32_t partition, PartitionEvent event);
  void Answer(uint64_t client, Frame frame);

  SimCluster& cluster_;
  World& world_;
  const int index_;
  const std::string name_;
  std::unique_ptr<KvStore> store_;  // outlives a crash
  Persistence persistence_;
  bool up_ = false;
  uint64_t process_ = 0;
  uint64_t generation_ = 0;
  bool hosting_ = false;  // HostPartitions came since the start
  std::map<uint32_t, std::unique_ptr<PartitionCore>> cores_;
  std::map<uint64_t, std::weak_ptr<Exchange>> streams_;
};

}  // namespace cairn::sim
