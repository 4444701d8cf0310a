// SimCluster: the nodes, network, coordinators, user and faults of one run.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/cluster_core.h"
#include "tests/sim/checkers.h"
#include "tests/sim/faults.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_ps.h"
#include "tests/sim/sim_worker.h"
#include "tests/sim/simulation.h"

namespace cairn::sim {

class SimCluster {
 public:
  explicit SimCluster(const Options& options);
  ~SimCluster();
  Result Run();

  World& world() { return world_; }
  Network& network() { return network_; }
  const Options& options() const { return options_; }
  const JobFacts& facts() const { return facts_; }
  const std::shared_ptr<const Graph>& graph() const { return graph_; }
  Checkers& checkers() { return *checkers_; }
  uint64_t job_id() const { return job_id_; }
  CheckpointDirectory& directory() { return directory_; }
  void NotePlantedActed() { planted_acted_ = true; }
  // Load of a ps' threads.
  const SimExecutor::Load& thread_load() const { return thread_load_; }

  // ---- nodes ----
  SimCoordinator& coordinator(size_t i) { return *coordinators_[i]; }
  size_t coordinators() const { return coordinators_.size(); }
  SimCoordinator* CoordinatorOn(const Host& host);
  SimPs* FindPs(const std::string& address);  // null: no such process
  const std::vector<std::unique_ptr<SimPs>>& ps() const { return ps_; }

  // ---- notifications from the nodes ----
  void OnJobChanged(const v1::JobStatus& status);
  void Updated(uint32_t partition, uint64_t version);  // by a primary
  // From now on this ps serves the partition. rolled_back: to a version that the coordinator chose.
  void OnServes(const SimPs& ps, uint32_t partition, uint64_t generation, bool rolled_back);
  // The ps served it before, and continues in this generation: older generations no longer serve.
  void OnStillServes(uint32_t partition, uint64_t generation) {
    served_in_[partition] = std::max(served_in_[partition], generation);
  }
  // A digest was computed; a worker restores this checkpoint in this generation; a primary was restored.
  void DigestTaken(std::vector<uint64_t> versions) { digest_versions_ = std::move(versions); }
  void NoteRestore(uint64_t generation, const CheckpointDirectory::Found& found);
  void OnRestored(const SimPs& ps, uint32_t partition, uint64_t generation);
  // The disk refused a checkpoint or a model file, or lost one.
  void OnFileRefused() {
    facts_.lacks_best = true;
    checkers_->callbacks.Failed();
  }

 private:
  void SetJob(const v1::JobSpec& spec, int64_t examples, const CheckpointContents* resumed = nullptr);
  SimCoordinator* Leader();
  bool Starting();  // the job's partitions do not serve yet
  void SubmitUntilAccepted();
  void OnSubmitted(const absl::Status& status, const ReplyBody& body);
  void Watch();
  void RestartAsTold(const std::string& reason);
  void CheckKept();
  void CheckAtRest();
  std::string Restless() const;
  void PlanFaults();
  bool OneFault(Fault fault);  // false: not now
  void StopFaults();
  void Undrain();
  void Drain(SimCoordinator& coordinator, const v1::DrainNodeRequest& request);
  bool MayGo(const SimPs& ps);
  bool LoseDisks(SimPs* one, absl::Duration away);
  bool LoseAll(absl::Duration away);
  bool Troubled(const Host& host) const;
  std::vector<SimNode*> Nodes();
  std::vector<Host*> Hosts();
  void CutBetween(Host& a, Host& b, bool both, absl::Duration away);
  bool Done();
  void CheckEnd();
  std::string Where();

  const Options options_;
  World world_;
  Network network_;
  JobFacts facts_;
  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<const Reference> reference_;
  std::unique_ptr<SubsetReference> subsets_;
  bool mixed_replicas_ = false;  // the reference inherited steps of a job with other replicas
  std::shared_ptr<const CheckedJob> checked_;
  std::unique_ptr<Checkers> checkers_;

  std::unique_ptr<Etcd> etcd_;  // null: one coordinator with its own disk
  std::vector<std::unique_ptr<SimCoordinator>> coordinators_;
  std::vector<std::unique_ptr<SimPs>> ps_;
  std::vector<std::unique_ptr<SimWorker>> workers_;

  CheckpointDirectory directory_;
  std::map<uint64_t, CheckpointDirectory::Found> restores_;  // by generation
  std::vector<uint64_t> digest_versions_;                    // of the last digest, by partition

  SimExecutor::Load thread_load_;
  FaultPlan plan_;
  int ps_at_start_ = 0;
  bool power_losses_ = false;  // whether the job survives them
  absl::Time faults_end_;
  bool planted_acted_ = false;  // Result::idle
  int faults_ = 0, submissions_ = 1, restored_ = 0;
  bool disks_lost_ = false;                 // disks with the only copies were lost
  std::map<uint32_t, uint64_t> served_in_;  // by partition: the newest generation in which a ps began to serve it
  uint64_t job_id_ = 0;
  std::map<uint32_t, uint64_t> versions_;
  uint64_t updates_ = 0;
  SimPs* gone_ = nullptr;                          // died for good
  absl::Time quiet_until_ = absl::InfinitePast();  // no further fault until its copies are replaced
  std::optional<v1::JobStatus> final_;
};

}  // namespace cairn::sim
