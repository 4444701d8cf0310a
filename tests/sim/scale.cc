#include "tests/sim/scale.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/model/job_check.h"
#include "coordinator/core/cluster_core.h"
#include "tests/sim/job.h"
#include "tests/sim/world.h"

namespace cairn::sim {
namespace {

constexpr absl::Duration kTime = absl::Seconds(30);
constexpr absl::Duration kSubmitting = absl::Seconds(4);  // from the second second on
constexpr absl::Duration kSteadyFrom = absl::Seconds(10);

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

class ScaleRun {
 public:
  explicit ScaleRun(const ScaleOptions& options)
      : options_(options), world_(options.seed, false), core_(CoordinatorOptions{}, 1, {}, world_.now()) {
    nodes_.resize(static_cast<size_t>(options.nodes));
    for (int i = 0; i < options.nodes; ++i) {
      Node& node = nodes_[static_cast<size_t>(i)];
      node.ps = i % 5 == 0;
      node.name = absl::StrFormat("%s-%d", node.ps ? "ps" : "worker", i);
    }
  }

  ScaleResult Run() {
    const double begin = CpuSeconds();
    Tick();
    for (Node& node : nodes_)
      world_.After(world_.rng.Between(absl::ZeroDuration(), absl::Seconds(1)), [&] { Join(node); });
    for (int j = 0; j < options_.jobs; ++j) {
      world_.After(absl::Seconds(2) + kSubmitting * j / options_.jobs, [this, j] { Submit(j); });
    }
    // One node in fifty dies and comes back.
    for (size_t i = 7; i < nodes_.size(); i += 50) {
      world_.After(world_.rng.Between(absl::Seconds(6), absl::Seconds(20)), [this, i] { Leave(nodes_[i]); });
    }
    world_.RunUntil(absl::UnixEpoch() + kSteadyFrom, [] { return false; });
    const double steady = CpuSeconds();
    world_.RunUntil(absl::UnixEpoch() + kTime, [] { return false; });
    ScaleResult result;
    result.steady_percent = 100 * (CpuSeconds() - steady) / absl::ToDoubleSeconds(kTime - kSteadyFrom);
    result.cpu_seconds = CpuSeconds() - begin;
    Check();
    result.violation = world_.violation();
    result.events = steps_;
    result.virtual_seconds = absl::ToDoubleSeconds(kTime);
    result.worst_step_ms = worst_step_ms_;
    result.text = absl::StrFormat(
        "%d nodes, %d jobs: %d events of the coordinator in %.2f s (%.0f/s), for %.0f s of the cluster's time: %.1f %% "
        "of a core, %.1f %% "
        "once all have joined; longest step %.1f ms%s%s",
        nodes_.size(), options_.jobs, result.events, result.cpu_seconds,
        static_cast<double>(result.events) / result.cpu_seconds, result.virtual_seconds,
        100 * result.cpu_seconds / result.virtual_seconds, result.steady_percent, result.worst_step_ms,
        result.violation.empty() ? "" : "; VIOLATION: ", result.violation);
    return result;
  }

 private:
  struct Node {
    bool ps = false;
    std::string name;
    uint64_t process = 0;
    uint64_t session = 0;
    std::map<uint64_t, v1::HeldPartitions> held;  // by job
    std::map<uint64_t, v1::HeldReplicas> running;
  };

  void Tick() {
    Step(cairn::Tick{});
    world_.After(absl::Milliseconds(100), [this] { Tick(); });
  }

  void Join(Node& node) {
    ++node.process;
    node.session = ++last_session_;
    by_session_[node.session] = &node;
    v1::Hello hello;
    hello.set_name(node.name);
    hello.set_role(node.ps ? v1::PS : v1::WORKER);
    hello.set_host(node.name);
    hello.set_incarnation(node.process);
    if (node.ps) {
      hello.set_address(absl::StrFormat("%s:%d", node.name, node.process));
      for (const auto& [job, held] : node.held) *hello.add_held() = held;
    } else {
      hello.set_slots(options_.slots);
      for (const auto& [job, running] : node.running) *hello.add_running() = running;
    }
    Step(NodeUp{SessionToken(node.session), hello});
    Beat(node, node.session);
  }

  void Leave(Node& node) {
    by_session_.erase(node.session);
    Step(SessionClosed{SessionToken(node.session)});
    node.session = 0;
    node.running.clear();
    world_.After(absl::Seconds(3), [this, &node] { Join(node); });
  }

  void Beat(Node& node, uint64_t session) {
    if (node.session != session) return;
    v1::NodeMessage message;
    v1::Heartbeat& heartbeat = *message.mutable_heartbeat();
    for (const auto& [job, running] : node.running) {
      v1::JobProgress& progress = *heartbeat.add_progress();
      progress.set_job_id(job);
      progress.set_generation(running.generation());
      progress.set_step(static_cast<int64_t>(world_.seconds() * 2));
    }
    Step(NodeSays{SessionToken(session), message});
    world_.After(absl::Milliseconds(500), [this, &node, session] { Beat(node, session); });
  }

  void Submit(int j) {
    v1::JobSpec spec;
    spec.set_name(absl::StrFormat("job-%d", j));
    spec.set_strategy(v1::MULTI_WORKER_MIRRORED);
    spec.mutable_model()->add_layers()->mutable_input()->add_shape(kInputs);
    for (int units : options_.small ? std::vector<int>{3} : std::vector<int>{2000, 2000, 3})
      spec.mutable_model()->add_layers()->mutable_dense()->set_units(units);
    spec.mutable_data()->set_path("/data");
    spec.mutable_loss()->set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    spec.mutable_loss()->set_from_logits(true);
    spec.mutable_optimizer()->mutable_sgd();
    spec.set_replicas(options_.small ? 1 : std::min(1024, options_.nodes / options_.jobs));
    spec.set_batch_size(4096);
    spec.set_max_workers(options_.small ? 0 : options_.nodes / (2 * options_.jobs));
    if (options_.min_workers > 0) spec.set_min_workers(options_.min_workers);
    spec.set_epochs(1000);
    spec.set_partition_bytes(64 << 10);
    auto checked = CheckJob(spec);
    CAIRN_CHECK(checked.ok(), checked.status().ToString());
    Step(SubmitJob{ReplyToken(static_cast<uint64_t>(j) + 1), std::make_shared<const CheckedJob>(*std::move(checked)),
                   spec.name()});
  }

  void Step(const Event& event) {
    const double begin = CpuSeconds();
    Effects effects = core_.Step(event, world_.now());
    worst_step_ms_ = std::max(worst_step_ms_, 1000 * (CpuSeconds() - begin));
    ++steps_;
    for (Effect& effect : effects) {
      if (auto* send = std::get_if<SendCommand>(&effect)) {
        world_.After(absl::Milliseconds(1), [this, session = send->session.value, message = std::move(send->message)] {
          auto node = by_session_.find(session);
          if (node != by_session_.end()) Obey(*node->second, message);
        });
      } else if (auto* reply = std::get_if<Reply>(&effect); reply != nullptr && !reply->status.ok()) {
        world_.Fail("a job was refused: " + reply->status.ToString());
      }
    }
  }

  void Obey(Node& node, const v1::CoordinatorMessage& command) {
    v1::NodeMessage answer;
    if (command.has_host_partitions()) {
      const v1::HostPartitions& host = command.host_partitions();
      v1::HeldPartitions& held = node.held[host.job_id()];
      held.Clear();
      held.set_job_id(host.job_id());
      held.set_generation(host.generation());
      for (const v1::PartitionRange& range : host.partitions()) {
        held.add_partitions()->set_partition(range.partition());
        held.mutable_partitions()->rbegin()->set_version(static_cast<uint64_t>(world_.seconds() * 2));
      }
      v1::PartitionsReady& ready = *answer.mutable_partitions_ready();
      ready.set_job_id(host.job_id());
      ready.set_generation(host.generation());
      *ready.mutable_partitions() = held.partitions();
    } else if (command.has_assign_replicas()) {
      const v1::AssignReplicas& assign = command.assign_replicas();
      v1::HeldReplicas& running = node.running[assign.job_id()];
      running.set_job_id(assign.job_id());
      running.set_generation(assign.generation());
      *running.mutable_replicas() = assign.replicas();
      if (assign.replicas().empty()) node.running.erase(assign.job_id());
    } else if (command.has_drop_job()) {
      node.held.erase(command.drop_job().job_id());
      node.running.erase(command.drop_job().job_id());
    } else if (command.has_inspect_data()) {
      answer.mutable_data_info()->set_request_id(command.inspect_data().request_id());
      *answer.mutable_data_info()->mutable_info() = DataOf(1 << 20);
    }
    if (answer.kind_case() != v1::NodeMessage::KIND_NOT_SET) Step(NodeSays{SessionToken(node.session), answer});
  }

  // Checks that every job runs whose turn it is, and that each replica has one living worker and each partition a
  // living ps.
  void Check() {
    const v1::ListNodesResponse nodes = core_.ListNodes();
    std::set<std::string> alive;
    for (const v1::NodeStatus& node : nodes.nodes()) {
      if (node.alive()) alive.insert(node.name());
    }
    if (alive.size() != nodes_.size())
      world_.Fail(absl::StrFormat("%d of %d nodes are alive", alive.size(), nodes_.size()));
    const int workers =
        static_cast<int>(std::count_if(nodes_.begin(), nodes_.end(), [](const Node& n) { return !n.ps; }));
    const int run = options_.min_workers > workers ? 0
                    : options_.small               ? std::min(options_.jobs, workers * options_.slots)
                                                   : options_.jobs;
    int waiting = 0;
    for (uint64_t j = 1; j <= static_cast<uint64_t>(options_.jobs); ++j) {
      const auto status = core_.GetJob(JobId(j), world_.now());
      if (status.ok() && status->state() == v1::QUEUED && ++waiting <= options_.jobs - run) continue;
      if (!status.ok() || status->state() != v1::RUNNING) {
        return world_.Fail(
            status.ok() ? absl::StrFormat("job %d: %s: %s", j, v1::JobState_Name(status->state()), status->reason())
                        : status.status().ToString());
      }
      for (const v1::ReplicaPlacement& r : status->replicas()) {
        if (!alive.contains(r.worker()))
          return world_.Fail(absl::StrFormat("job %d: replica %d has no worker", j, r.replica()));
      }
      for (const v1::PartitionPlacement& p : status->partitions()) {
        if (!alive.contains(p.primary()))
          return world_.Fail(absl::StrFormat("job %d: partition %d has no ps", j, p.partition()));
      }
    }
  }

  const ScaleOptions options_;
  World world_;
  ClusterCore core_;
  std::vector<Node> nodes_;
  std::map<uint64_t, Node*> by_session_;
  uint64_t last_session_ = 0, steps_ = 0;
  double worst_step_ms_ = 0;
};

}  // namespace

ScaleResult SimulateScale(const ScaleOptions& options) { return ScaleRun(options).Run(); }

}  // namespace cairn::sim
