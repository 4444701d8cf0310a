// ScaleCluster: thousands of simulated nodes around the production ClusterDriver and ClusterCore, on virtual time, with
// the state in memory. The nodes say what real ones say, as often: heartbeats, a report of each replica, figures of
// each job's first partition, answers to commands. Every message is decoded and encoded as gRPC would. What the
// coordinator takes for all that is counted by a ScaleMeter.
//
// A simulated node computes nothing, and a backup has caught up a tenth of a second after it was asked for. The steps
// of a job are a function of the time: they do not wait for partitions that are away. There are no validations,
// checkpoints and callbacks, nobody watches a job, and the network takes a millisecond.
//
// Single-threaded. Invariant: nothing that the nodes do is counted as the coordinator's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "coordinator/node/cluster_driver.h"
#include "tests/bench/scale_meter.h"
#include "tests/bench/scale_node.h"
#include "tests/sim/world.h"

namespace cairn::bench {

// Of each job.
inline constexpr int64_t kScaleBatch = 4096;
inline constexpr int32_t kScaleInputs = 5, kScaleClasses = 3;

struct ScaleOptions {
  int ps = 100;
  int workers = 1000;  // of one slot each
  int rack = 40;       // ps that share a host label
  // Of a job; a replica reports a step at most every 200 ms.
  absl::Duration step = absl::Milliseconds(200);
  int64_t steps_per_epoch = 100;
};

class ScaleCluster {
 public:
  explicit ScaleCluster(const ScaleOptions& options);
  ~ScaleCluster();

  // A new coordinator process, which reads what the last one stored.
  void StartCoordinator();
  // The process ends: sessions break. Returns the bytes that were allocated for its state.
  size_t EndCoordinator();
  // Every node that has no session opens one within this time.
  void JoinAll(absl::Duration within);
  // The processes of all ps with this host label end.
  void LoseRack(int rack);

  // Fails the process if the job is refused.
  void Submit(const v1::JobSpec& spec);
  // Virtual time passes, until `done`, which is asked every 100 ms. Returns how long; fails the process after `most`.
  absl::Duration RunUntil(const std::function<bool()>& done, absl::Duration most);
  void RunFor(absl::Duration time);

  // How many jobs are RUNNING with all partitions ready; with_copies: and all backups in sync.
  int JobsServed(bool with_copies) const;
  v1::JobStatus Job(uint64_t id) const;
  size_t StoredBytes() const;
  uint64_t sent_bytes() const { return sent_bytes_; }  // by the coordinator
  const ScaleOptions& options() const { return options_; }
  ScaleMeter& meter() { return meter_; }

 private:
  class Session;
  class Watch;
  struct Steps {
    absl::Time began;  // the first step
    int32_t replicas = 0;
  };

  void Join(ScaleNode& node);
  v1::Hello HelloOf(const ScaleNode& node) const;
  void Say(ScaleNode& node, const v1::NodeMessage& message);
  void Beat(ScaleNode& node, uint64_t session);
  void ReportSteps(ScaleNode& node, uint64_t session);
  void TellFigures(ScaleNode& node, uint64_t job);
  void TellFiguresAgain(ScaleNode& node, uint64_t job);
  void Obey(ScaleNode& node, const v1::CoordinatorMessage& command);
  void Host(ScaleNode& node, const v1::HostPartitions& host);
  void Assign(ScaleNode& node, const v1::AssignReplicas& assign);
  void AnswerLater(ScaleNode& node, absl::Duration delay, std::function<v1::NodeMessage()> answer);
  int64_t StepOf(uint64_t job) const;
  bool Served(uint64_t id, bool with_copies) const;

  const ScaleOptions options_;
  ScaleMeter meter_;
  sim::World world_;
  std::unique_ptr<KvStore> store_;
  std::unique_ptr<Clock> clock_;
  std::unique_ptr<Watch> watch_;
  std::vector<std::unique_ptr<ScaleNode>> nodes_;
  std::map<uint64_t, Steps> jobs_;
  absl::flat_hash_set<std::string> there_;  // names of the nodes that have not been lost
  uint64_t incarnation_ = 0, sent_bytes_ = 0, submitted_ = 0;
  std::unique_ptr<ClusterDriver> driver_;  // of the present process
};

}  // namespace cairn::bench
