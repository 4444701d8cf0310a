// Several ReplicaCores, a naive ps and a network that loses, repeats and reorders, all in one thread with one seed.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/worker/naive_ps.h"
#include "worker/core/replica_core.h"

namespace cairn {

struct ClusterOptions {
  uint64_t seed = 1;
  int replicas = 3;
  int workers = 2;
  int partitions = 3;
  int64_t examples = 22, validation_examples = 7;
  int batch_size = 6, epochs = 2;
  int validation_freq = 1;
  bool synchronous = true;
  int staleness = 0;  // asynchronous: 0 means without a bound
  v1::DataType wire = v1::FLOAT32;
  v1::DataType values = v1::DATA_TYPE_UNSPECIFIED;  // JobSpec.values_wire_dtype
  // Variables of 40 numbers (the last one shorter), each from a multiple of 16 on, so that some lie across partitions.
  double clipnorm = 0, global_clipnorm = 0;
  // Synchronous: FLOAT16 from this loss scale on, doubled after two finite steps; gradients overflow at 16 now and
  // then. 0: FLOAT32.
  float loss_scale = 0;
  bool joins = false;  // the nodes add up their replicas' gradients
  double loss = 0;     // of a request, or of its answer
  bool gated = false;  // an epoch begins when every replica's validation of the one before it is reported
  int stop_after = 0;  // gated: the job ends with this epoch (from 1)
  int reassignments = 0, ps_restarts = 0, partition_moves = 0, crashes = 0;
};

class FakeCluster {
 public:
  explicit FakeCluster(const ClusterOptions& options);
  // Until every replica is reported finished. False: it stood still, or took too long.
  bool Run();

  std::vector<float> FinalValues() const;
  // What one computer computes, one replica after the other.
  std::vector<float> ReferenceValues() const;
  int ReferenceSkips() const { return reference_skips_; }  // of the last ReferenceValues
  const NaivePartition& partition(int p) const { return partitions_[static_cast<size_t>(p)]; }
  const StepPlan& plan() const { return plan_; }

  std::map<std::pair<int, int>, uint64_t> validated;  // (replica, epoch): examples
  std::vector<std::string> failures;                  // Fail effects
  int ahead_max = 0;                                  // steps of the fastest replica before the slowest
  uint64_t sends = 0, node_sums = 0;                  // requests; partitions' sums that nodes made

 private:
  struct Join {  // of a Joint
    std::shared_ptr<const replica::Joint> joint;
    std::vector<std::vector<float>> gradients;  // by leaf
    std::vector<int> missing;                   // by partition: leaves
  };
  struct Running {  // a Compute or Evaluate under way
    uint64_t work = 0;
    bool training = true;
    ReplicaId replica;
    int64_t step = 0;
    uint64_t examples = 0;
    Buffer values, gradient;
    std::shared_ptr<Join> join;
    float loss_scale = 0;
    std::vector<uint32_t> unannounced;
    bool begun = false;
  };
  struct Worker {
    std::unique_ptr<ReplicaCore> core;
    std::vector<Running> running;
    std::map<uint64_t, std::shared_ptr<Join>> joins;  // by number
    std::vector<int> replicas;
    std::multimap<absl::Time, int> timers;
    std::vector<v1::AssignReplicas> assignments;  // on their way, in order
    bool restarted = false;
  };
  struct Request {
    int worker = 0;
    uint64_t life = 0;  // of the worker
    uint64_t token = 0;
    std::string address;
    Frame frame;
  };
  struct Answer {
    Request to;
    absl::StatusOr<Frame> frame;
  };

  size_t Pick(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  bool Chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  std::string AddressOf(int p) const { return "ps-" + std::to_string(home_[static_cast<size_t>(p)]); }
  float Gradient(int64_t step, int replica, size_t i, float value, float loss_scale) const;
  // Of the numbers [begin, end).
  std::vector<ClipScope> ClipScopes(int64_t begin, int64_t end) const;
  void Feed(int worker, replica::Event event);
  void Count(const v1::ReplicaReport& report);
  void Reassign();
  void SendAssignments();
  void OpenEpoch();
  void Disturb();
  void DeliverRequest();
  void DeliverAnswer();
  void Compute(int worker);
  std::shared_ptr<Join> JoinOf(Worker& worker, const std::shared_ptr<const replica::Joint>& joint);
  // The sum of partition p, if this was the last gradient that it needs.
  bool Sum(Join& join, uint32_t p);
  void Take(std::vector<NaiveAnswer> answers);
  bool Finished() const { return static_cast<int>(finished_.size()) == options_.replicas; }

  const ClusterOptions options_;
  mutable int reference_skips_ = 0;
  std::mt19937_64 random_;
  StepPlan plan_;
  v1::JobSpec spec_;
  GradientLayout layout_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::vector<float> initial_;
  std::vector<v1::PartitionRange> ranges_;
  std::vector<NaivePartition> partitions_;
  std::vector<int> home_;  // which ps, by partition
  std::vector<Worker> workers_;
  std::vector<uint64_t> lives_;
  std::vector<Request> requests_;
  std::vector<Answer> answers_;
  std::map<uint64_t, Request> asked_;  // by ticket: at the ps
  std::map<int, bool> finished_;
  int epochs_open_ = 0;
  uint64_t tickets_ = 0, generation_ = 1, assignment_ = 1;
  int reassignments_left_, restarts_left_, moves_left_, crashes_left_;
};

}  // namespace cairn
