#include "coordinator/core/stored_check.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/base/version.h"
#include "common/model/job_outputs.h"
#include "common/model/strategy_check.h"
#include "coordinator/core/limits.h"
#include "coordinator/core/membership.h"

namespace cairn {
namespace {

// Reports what is wrong with one key's value.
class Checker {
 public:
  explicit Checker(std::string key) : key_(std::move(key)) {}
  template <typename... Args>
  void Require(bool holds, const Args&... what) {
    if (holds || !status_.ok()) return;
    status_ = absl::DataLossError(absl::StrCat("the coordinator's state: key \"", key_, "\": ", what...,
                                               "; restore the data directory from a copy, or start with an empty one"));
  }
  void RequireRange(int64_t value, int64_t min, int64_t max, const char* field) {
    Require(value >= min && value <= max, field, ": ", value, " is not in [", min, ",", max, "]");
  }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

 private:
  const std::string key_;
  absl::Status status_;
};

void CheckNode(const v1::NodeStatus& node, Checker& checker) {
  v1::Hello hello;  // what it sent when it joined
  hello.set_name(node.name());
  hello.set_role(node.role());
  hello.set_address(node.address());
  hello.set_host(node.host());
  hello.set_device(node.device());
  hello.set_device_kind(node.device_kind());
  *hello.mutable_compute_dtypes() = node.compute_dtypes();
  *hello.mutable_programs() = node.programs();
  hello.set_slots(node.role() == v1::EVALUATOR ? 1 : node.slots());  // an evaluator's slots are not stored
  const absl::Status status = CheckHello(hello);
  checker.Require(status.ok(), "a node: ", status.message());
}

bool Active(v1::JobState state) { return state == v1::STARTING || state == v1::RUNNING || state == v1::FINALIZING; }

void CheckPartitions(const v1::JobStatus& job, Checker& checker) {
  checker.RequireRange(job.partitions_size(), 0, kPartitionsMax, "partitions");
  uint64_t end = 0;
  for (int i = 0; i < job.partitions_size() && checker.ok(); ++i) {
    const v1::PartitionPlacement& p = job.partitions(i);
    checker.Require(p.partition() == static_cast<uint32_t>(i), "partition ", p.partition(), " is at index ", i);
    checker.Require(p.begin() == end && p.begin() < p.end(), "partition ", i, ": numbers [", p.begin(), ",", p.end(),
                    ") after ", end);
    end = p.end();
  }
}

// Checks the fields of an active job from which its progress is computed.
void CheckActive(const v1::StoredJob& stored, Checker& checker) {
  const v1::JobStatus& job = stored.status();
  const int32_t replicas = job.spec().replicas();
  checker.RequireRange(replicas, 1, kReplicasMax, "spec.replicas");
  const int32_t group = LocalSyncOf(job.spec());
  checker.Require(replicas % group == 0, "spec.local_sync: ", group, " does not divide the ", replicas, " replicas");
  checker.RequireRange(job.spec().epochs(), 1, INT32_MAX, "spec.epochs");
  checker.RequireRange(job.steps_per_epoch(), 1, kStepsPerEpochMax, "steps_per_epoch");
  if (!checker.ok()) return;
  int64_t steps_max;
  const bool too_many = __builtin_mul_overflow(job.steps_per_epoch(), int64_t{job.spec().epochs()}, &steps_max);
  checker.Require(!too_many, "steps_per_epoch: ", job.steps_per_epoch(), " with ", job.spec().epochs(), " epochs");
  if (!checker.ok()) return;
  checker.RequireRange(job.total_steps(), 1, steps_max, "total_steps");
  checker.RequireRange(job.epochs_size(), 0, job.spec().epochs(), "epochs");
  checker.RequireRange(job.epochs_open(), 0, int64_t{job.spec().epochs()} + 1, "epochs_open");
  checker.RequireRange(stored.summaries_written(), 0, job.spec().epochs(), "summaries_written");
  checker.Require(job.replicas_size() == replicas, "replicas: ", job.replicas_size(), " of ", replicas);
  for (int r = 0; r < job.replicas_size(); ++r) {
    checker.Require(job.replicas(r).replica() == r, "replica ", job.replicas(r).replica(), " is at index ", r);
  }
  checker.Require(stored.replica_step_size() == 0 || stored.replica_step_size() == replicas,
                  "replica_step: ", stored.replica_step_size(), " of ", replicas);
  for (int64_t step : stored.replica_step()) checker.RequireRange(step, 0, job.total_steps(), "replica_step");
  checker.Require(stored.replica_finished_size() == 0 || stored.replica_finished_size() == replicas,
                  "replica_finished: ", stored.replica_finished_size(), " of ", replicas);
}

}  // namespace

absl::Status CheckStored(const StoredState& state) {
  Checker cluster(kClusterKey);
  cluster.Require(state.cluster.incarnation_size() <= state.cluster.nodes_size(), "incarnation: of more than ",
                  state.cluster.nodes_size(), " nodes");
  std::set<std::string> names;
  const uint32_t written_by = InterfaceOf(state.cluster.interface());
  if (!WorkTogether(written_by, ClusterInterface())) {
    return absl::FailedPreconditionError(
        absl::StrCat("the coordinator's state: key \"", kClusterKey, "\": stored by ",
                     ProgramText(state.cluster.version(), written_by), ", this is ",
                     ProgramText(ProgramVersion(), ClusterInterface()),
                     "; they are more than one interface apart: start a coordinator of a release between them first"));
  }
  for (const v1::NodeStatus& node : state.cluster.nodes()) {
    CheckNode(node, cluster);
    cluster.Require(names.insert(node.name()).second, "two nodes are called \"", node.name(), "\"");
  }
  if (!cluster.ok()) return cluster.status();
  std::set<uint64_t> ids;
  for (const v1::StoredJob& stored : state.jobs) {
    const v1::JobStatus& job = stored.status();
    Checker checker(absl::StrCat(kJobKeyPrefix, job.job_id()));
    checker.Require(job.job_id() > 0 && job.job_id() < UINT64_MAX, "job_id: ", job.job_id());
    checker.Require(ids.insert(job.job_id()).second, "two jobs have this number");
    checker.Require(job.state() != v1::JOB_STATE_UNSPECIFIED && v1::JobState_IsValid(job.state()),
                    "state: ", static_cast<int>(job.state()), " is none");
    checker.RequireRange(FigureCount(job.spec()), 0, kMetricsMax, "spec.metrics");
    CheckPartitions(job, checker);
    if (Active(job.state()) && checker.ok()) CheckActive(stored, checker);
    if (!checker.ok()) return checker.status();
  }
  return absl::OkStatus();
}

}  // namespace cairn
