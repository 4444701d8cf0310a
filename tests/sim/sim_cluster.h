// SimCluster: the nodes of one run, the streams between them, the simulated coordinator and the faults.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/storage/kv_store.h"
#include "coordinator/cluster_core.h"
#include "tests/sim/checkers.h"
#include "tests/sim/sim_ps.h"
#include "tests/sim/sim_worker.h"

namespace cairn::sim {

class SimCluster {
 public:
  explicit SimCluster(const Options& options);
  Result Run();

  World& world() { return world_; }
  const Options& options() const { return options_; }
  const v1::JobSpec& spec() const { return spec_; }
  const Graph& graph() const { return graph_; }
  const StepPlan& plan() const { return plan_; }
  UpdateOracle& oracle() { return *oracle_; }
  int64_t train_examples() const { return train_examples_; }

  // ---- sessions ----
  // Opens a session for a node's process and keeps it up until the process ends.
  void JoinCluster(const std::string& node, uint64_t process);
  void NodeSays(const std::string& node, v1::NodeMessage message);
  void NodeDown(const std::string& node);  // its process is gone
  // ---- data plane ----
  SimPs* FindPs(const std::string& address);
  std::shared_ptr<Exchange> OpenExchange(SimWorker* worker, SimPs* ps);
  // All partitions, if every one of them is served and of one version (or the job is asynchronous); for Finalize.
  bool Finished() const;

 private:
  struct Node {
    SimPs* ps = nullptr;
    SimWorker* worker = nullptr;
    uint64_t process = 0;
    bool up = false;
    std::shared_ptr<Session> session;
  };

  void StartCoordinator();
  void CrashCoordinator();
  void Step(Event event);
  void Carry(Effect& effect);
  void SubmitUntilAccepted();
  void Connect(const std::string& node, uint64_t process, absl::Duration delay);
  void Break(const std::shared_ptr<Session>& session);
  void Heartbeats(const std::string& node, uint64_t process);
  void Ticks(uint64_t process);
  void PlanFaults();
  void OneFault();
  void CheckEnd();

  const Options options_;
  World world_;
  v1::JobSpec spec_;
  Graph graph_;
  StepPlan plan_;
  int64_t train_examples_ = 0;
  std::shared_ptr<const CheckedJob> checked_;
  std::unique_ptr<UpdateOracle> oracle_;

  std::unique_ptr<KvStore> coordinator_store_;
  std::unique_ptr<ClusterCore> coordinator_;
  uint64_t coordinator_process_ = 0;
  uint64_t next_token_ = 0;
  std::map<uint64_t, std::shared_ptr<Session>> sessions_;  // open at the coordinator
  std::map<uint64_t, std::string> session_nodes_;

  std::vector<std::unique_ptr<SimPs>> ps_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::map<std::string, Node> nodes_;
  std::map<uint64_t, std::weak_ptr<Exchange>> exchanges_;

  absl::Time faults_end_;
  int crashes_ = 0;
  uint64_t job_id_ = 0;
  std::optional<v1::JobState> final_state_;
  std::string final_reason_;
};

}  // namespace cairn::sim
