// A simulated worker: ReplicaCores, and computation that takes virtual time.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/sim/network.h"
#include "tests/sim/simulation.h"
#include "worker/replica_core.h"

namespace cairn::sim {

class SimCluster;

class SimWorker {
 public:
  SimWorker(SimCluster& cluster, int index, int slots, int slowness);

  void Start();
  void Crash();
  bool up() const { return up_; }
  const std::string& name() const { return name_; }
  int slots() const { return slots_; }

  v1::Hello Hello() const;
  v1::Heartbeat Heartbeat() const;
  void OnCommand(const v1::CoordinatorMessage& message);
  void OnReply(const std::shared_ptr<Exchange>& stream, const Frame& frame);
  void BreakStreams(SimPs* ps);  // nullptr: all; outstanding requests fail

 private:
  void Run(replica::Event event);
  void Carry(replica::Effect& effect);
  void Send(replica::Send send);
  void Compute(replica::Compute work);
  void Fail(uint64_t request, absl::Status status);
  // Runs fn later, unless this process or this core is gone by then.
  void Later(absl::Duration delay, std::function<void()> fn);

  SimCluster& cluster_;
  World& world_;
  const std::string name_;
  const int slots_;
  const int slowness_;  // computation takes this many times as long
  bool up_ = false;
  uint64_t process_ = 0;
  std::unique_ptr<ReplicaCore> core_;  // of the one job
  v1::AssignReplicas assignment_;
  uint64_t core_number_ = 0;
  Buffer values_before_;  // for PlantedBug::kStaleValues
  std::map<std::string, std::shared_ptr<Exchange>> streams_;  // by ps address
};

}  // namespace cairn::sim
