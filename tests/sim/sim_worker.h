// A simulated worker: ReplicaCores, and computation that takes virtual time.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/sim/exchange.h"
#include "tests/sim/sim_node.h"
#include "worker/replica_core.h"

namespace cairn::sim {

class SimWorker : public SimNode {
 public:
  SimWorker(SimCluster& cluster, int index, int slots);

  int slots() const { return slots_; }
  void BreakStreams();  // to all ps
  const ReplicaCore* core() const { return core_.get(); }

 protected:
  v1::Hello Hello() override;
  v1::Heartbeat Heartbeat() override;
  void OnCommand(const v1::CoordinatorMessage& message) override;
  void OnEnd() override;

 private:
  struct Digest;  // a Finalize that runs

  void Run(replica::Event event);
  void Carry(replica::Effect& effect);
  void Send(replica::Send send);
  void Compute(replica::Compute work);
  void Finalize(const v1::Finalize& command);
  void PullDigest(const std::shared_ptr<Digest>& digest);
  std::shared_ptr<Exchange> ExchangeTo(const std::string& address);
  // As Later; not if the core is another one by then.
  void LaterInCore(absl::Duration delay, std::function<void()> fn);

  const int slots_;
  std::unique_ptr<ReplicaCore> core_;  // of the one job
  v1::AssignReplicas assignment_;
  uint64_t core_number_ = 0;
  Buffer values_before_;  // for PlantedBug::kStaleValues
  std::map<std::string, std::shared_ptr<Exchange>> streams_;  // by ps address
};

}  // namespace cairn::sim
