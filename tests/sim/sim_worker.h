// A simulated worker: the production ReplicaDriver, and computation that takes virtual time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "tests/sim/exchange.h"
#include "tests/sim/sim_node.h"
#include "worker/checkpoint/checkpoint_book.h"
#include "worker/core/replica_driver.h"

namespace cairn::sim {

class SimWorker : public SimNode, private ReplicaEnvironment {
 public:
  SimWorker(SimCluster& cluster, int index, int slots);

  int slots() const { return slots_; }
  void SetDevice(v1::Device device) { device_ = device; }
  const std::optional<v1::Device>& device() const { return device_; }
  void BreakStreams();  // to all ps

 protected:
  v1::Hello Hello() override;
  v1::Heartbeat Heartbeat() override;
  void OnCommand(const v1::CoordinatorMessage& message) override;
  void OnEnd() override;

 private:
  struct Digest;       // a Finalize in progress
  struct CutUnderWay;  // a TakeCheckpoint in progress
  struct RestoreUnderWay;

  // ---- ReplicaEnvironment: as Trainer ----
  absl::Time Now() override { return SimNode::Now(); }
  void BeginAssignment(const Assignment& assignment) override;
  void SendToPs(replica::Send send) override;
  void Compute(replica::Compute work) override;
  void Evaluate(replica::Evaluate work) override;
  void GiveWeights(const replica::WeightsHere& here) override;
  void StopWork(uint64_t work) override;
  void TakeCheckpoint(replica::TakeCheckpoint take, const Assignment& assignment) override;
  void TakeDigest(replica::TakeDigest take) override;
  void Report(v1::ReplicaReport report) override;
  void WakeAt(absl::Time at) override;
  void Fail(const std::string& message) override;

  void Assign(v1::AssignReplicas assign);
  void Drop();
  void Post(replica::Event event);
  void ComputeWhole(replica::Compute work);
  void EndCompute(replica::Compute work);
  // A work that computes by layer: it requests all values, one partition after the other.
  struct ByLayer {
    replica::Compute compute;
    uint32_t wanted = 0;  // number of partitions requested, from the first on
    uint32_t here = 0;
  };
  void ComputeByLayer(replica::Compute work);
  void Finalize(const v1::Finalize& command);
  void PullDigest(const std::shared_ptr<Digest>& digest);

  // ---- checkpoints: sim_worker_checkpoints.cc; as Checkpointer and RestoreJob ----
  void WriteCheckpoint(const std::shared_ptr<CutUnderWay>& cut);
  void EndCheckpoint(const CutUnderWay& cut, replica::CheckpointDone::Outcome outcome);
  void MarkBest(const v1::MarkBest& command);
  void SaveModel(const v1::SaveModel& command);
  void WriteSummaries(const v1::WriteSummaries& command);
  void ReportCheckpoint(const v1::CheckpointInfo* info, const std::vector<int64_t>& deleted, const std::string& error);
  void ReportCheckpointsAgain();
  void Inspect(const v1::InspectData& command);
  void Restore(const v1::Restore& command);
  void SendRestored(const std::shared_ptr<RestoreUnderWay>& restore, int route);
  void EndRestore(const std::shared_ptr<RestoreUnderWay>& restore, const absl::Status& status);

  std::shared_ptr<Exchange> ExchangeTo(const std::string& address);
  // As Later, but not if the job is dropped by then.
  void LaterInJob(absl::Duration delay, std::function<void()> fn);

  const int slots_;
  std::optional<v1::Device> device_;               // nullopt: its Hello does not say
  std::unique_ptr<ReplicaDriver> driver_;          // of its job; null: it has none
  std::shared_ptr<CheckpointBook> book_;           // of the driver's job
  std::optional<v1::CheckpointInfo> not_written_;  // the last checkpoint, if the disk refused it
  std::set<std::shared_ptr<RestoreUnderWay>> restores_;
  uint64_t drivers_ = 0;  // number of drivers so far
  std::map<uint64_t, ByLayer> by_layer_;
  Buffer values_before_;                                      // for PlantedBug::kStaleValues
  std::map<std::string, std::shared_ptr<Exchange>> streams_;  // by ps address
};

}  // namespace cairn::sim
