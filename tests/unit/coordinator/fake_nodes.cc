// How the ps and workers of a FakeCluster carry out the coordinator's commands.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/metric_sums.h"
#include "common/model/step_plan.h"
#include "tests/unit/coordinator/fake_cluster.h"

namespace cairn {

FakeNode& FakeCluster::AddPs(const std::string& name, const std::string& host) {
  auto& node = nodes_[name] = std::make_unique<FakeNode>();
  node->hello.set_name(name);
  node->hello.set_role(v1::PS);
  node->hello.set_address(name + ":1000");
  node->hello.set_host(host);
  node->hello.set_incarnation(++last_incarnation_);
  Connect(*node);
  Settle();
  return *node;
}

FakeNode& FakeCluster::AddWorker(const std::string& name, int slots, v1::Role role, v1::Device device) {
  auto& node = nodes_[name] = std::make_unique<FakeNode>();
  node->hello.set_name(name);
  node->hello.set_role(role);
  node->hello.set_slots(slots);
  node->hello.set_device(device == v1::GPU ? "gpu:0: fake" : "cpu");
  node->hello.set_device_kind(device);
  node->hello.add_compute_dtypes(v1::FLOAT32);
  node->hello.add_compute_dtypes(v1::BFLOAT16);
  if (device == v1::GPU) node->hello.add_compute_dtypes(v1::FLOAT16);
  node->hello.set_incarnation(++last_incarnation_);
  Connect(*node);
  Settle();
  return *node;
}

FakeNode& FakeCluster::AddPrograms(const std::string& name, const std::vector<v1::ExternalProgram>& programs) {
  auto& node = nodes_[name] = std::make_unique<FakeNode>();
  node->hello.set_name(name);
  node->hello.set_role(v1::WORKER);
  node->hello.set_slots(1);
  node->hello.set_device("cpu");
  node->hello.add_compute_dtypes(v1::FLOAT32);
  node->hello.mutable_programs()->Assign(programs.begin(), programs.end());
  node->hello.set_programs_only(true);
  node->hello.set_incarnation(++last_incarnation_);
  Connect(*node);
  Settle();
  return *node;
}

// ---- sessions ----

v1::Hello FakeCluster::HelloOf(const FakeNode& node) const {
  v1::Hello hello = node.hello;
  for (const auto& [job_id, hosted] : node.hosted) {
    v1::HeldPartitions& held = *hello.add_held();
    held.set_job_id(job_id);
    held.set_generation(hosted.generation);
    for (const auto& [partition, version] : hosted.version) *held.add_partitions() = HeldOf(node, job_id, partition);
  }
  for (const auto& [job_id, assign] : node.assigned) {
    v1::HeldReplicas& running = *hello.add_running();
    running.set_job_id(job_id);
    running.set_generation(assign.generation());
    *running.mutable_replicas() = assign.replicas();
  }
  return hello;
}

void FakeCluster::Connect(FakeNode& node) {
  node.session = SessionToken{++last_token_};
  node.inbox.clear();
  node.closed.reset();
  Do(NodeUp{node.session, HelloOf(node)});
  for (const auto& [job_id, reports] : node.reported) {
    for (const v1::NodeMessage& report : reports) Say(node, report);
  }
  for (const auto& [job_id, hosted] : std::map(node.hosted)) TellFigures(node, job_id);
}

void FakeCluster::BreakSession(FakeNode& node) {
  const SessionToken session = std::exchange(node.session, {});
  node.inbox.clear();
  if (session.value != 0) Do(SessionClosed{session});
}

void FakeCluster::Kill(FakeNode& node) {
  node.running = false;
  node.not_ready.reset();
  node.assigned.clear();
  node.dropped.clear();
  node.reported.clear();
  for (auto& [job_id, hosted] : node.hosted) hosted.serving = false;
  node.shards.clear();
  node.inspections.clear();
  node.finalizes.clear();
  BreakSession(node);
}

void FakeCluster::Restart(FakeNode& node, const std::string& address) {
  node.running = true;
  node.hello.set_incarnation(++last_incarnation_);
  if (!address.empty()) node.hello.set_address(address);
  Connect(node);
  Settle();
}

void FakeCluster::Say(FakeNode& node, const v1::NodeMessage& message) {
  if (message.has_restored() && message.restored().error().empty())
    true_step_[message.restored().job_id()] = message.restored().step();
  if (node.session.value != 0 && !node.silent) Do(NodeSays{node.session, message});
}

void FakeCluster::Beat(FakeNode& node) {
  v1::NodeMessage message;
  message.mutable_heartbeat()->set_memory_bytes(1);
  message.mutable_heartbeat()->set_fault(node.fault);
  for (const auto& [job_id, assign] : node.assigned) {
    v1::JobProgress& progress = *message.mutable_heartbeat()->add_progress();
    progress.set_job_id(job_id);
    progress.set_generation(assign.generation());
    progress.set_step(true_step_[job_id]);
  }
  Say(node, message);
}

// ---- commands ----

void FakeCluster::Deliver(FakeNode& node) {
  for (const v1::CoordinatorMessage& message : std::exchange(node.inbox, {})) {
    if (!node.silent) Handle(node, message);
  }
  AnswerQueries(node);
}

void FakeCluster::ClearCommands() {
  for (auto& [name, node] : nodes_) node->commands = 0;
}

void FakeCluster::Handle(FakeNode& node, const v1::CoordinatorMessage& message) {
  if (message.has_readiness()) node.not_ready = message.readiness().why();
  if (!message.has_welcome() && !message.has_readiness() && !message.has_figures_stored()) ++node.commands;
  if (message.has_welcome() && node.hello.role() == v1::PS && node.hello.cluster_id() == 0)
    node.hello.set_cluster_id(message.welcome().cluster_id());
  if (message.has_host_partitions()) {
    HostPartitions(node, message.host_partitions());
  } else if (message.has_figures_stored()) {
    const uint64_t job_id = message.figures_stored().job_id();
    figures_[job_id].stored = message.figures_stored().epochs();
    TellFigures(node, job_id);
  } else if (message.has_drop_job()) {
    node.dropped.insert(message.drop_job().job_id());
    if (message.drop_job().cancelled()) node.cancelled.insert(message.drop_job().job_id());
    if (message.drop_job().remove_checkpoints_of_job()) node.drops.push_back(message.drop_job());
    node.reported.erase(message.drop_job().job_id());
    node.hosted.erase(message.drop_job().job_id());
    node.assigned.erase(message.drop_job().job_id());
  } else if (message.has_assign_replicas()) {
    const v1::AssignReplicas& assign = message.assign_replicas();
    auto known = node.assigned.find(assign.job_id());
    if (known != node.assigned.end() && assign.assignment() < known->second.assignment()) return;
    if (assign.replicas().empty()) {
      node.assigned.erase(assign.job_id());
    } else {
      node.assigned[assign.job_id()] = assign;
    }
  } else if (message.has_inspect_data()) {
    node.inspections.push_back(message.inspect_data());
  } else if (message.has_evaluate_shard()) {
    node.shards.push_back(message.evaluate_shard());
  } else if (message.has_finalize()) {
    node.finalizes.push_back(message.finalize());
  } else if (message.has_write_summaries()) {
    const v1::WriteSummaries& write = node.summaries.emplace_back(message.write_summaries());
    if (!answer_files) return;
    v1::NodeMessage answer;
    answer.mutable_summaries_written()->set_job_id(write.job_id());
    if (file_failures > 0) {
      --file_failures;
      answer.mutable_summaries_written()->set_error("no space left on device");
      return Say(node, answer);
    }
    if (!write.epochs().empty()) answer.mutable_summaries_written()->set_epochs(write.epochs().rbegin()->epoch() + 1);
    Say(node, answer);
  } else if (message.has_save_model()) {
    const v1::SaveModel& save = node.saves.emplace_back(message.save_model());
    if (!answer_files) return;
    v1::NodeMessage answer;
    answer.mutable_model_saved()->set_job_id(save.job_id());
    answer.mutable_model_saved()->set_step(save.step());
    answer.mutable_model_saved()->set_path(save.path());
    if (file_failures > 0) {
      --file_failures;
      answer.mutable_model_saved()->set_error("no space left on device");
    }
    Say(node, answer);
  } else if (message.has_restore()) {
    node.restores.push_back(message.restore());
  } else if (message.has_mark_best()) {
    const v1::MarkBest& mark = node.marks.emplace_back(message.mark_best());
    const auto given = node.assigned.find(mark.job_id());
    if (given == node.assigned.end()) return;
    for (const v1::CheckpointInfo& known : given->second.checkpoints()) {
      if (known.step() == mark.step() && !known.best()) node.kept.push_back(mark.step());
    }
  }
}

v1::HeldPartition FakeCluster::HeldOf(const FakeNode& node, uint64_t job_id, uint32_t partition) const {
  const FakeNode::Hosted& hosted = node.hosted.at(job_id);
  v1::HeldPartition held;
  held.set_partition(partition);
  held.set_version(hosted.version.at(partition));
  held.set_backup(hosted.backup.contains(partition));
  held.set_version_min(std::min(node.version_min, held.version()));
  held.mutable_versions()->Assign(node.kept_versions.begin(), node.kept_versions.end());
  held.set_in_memory(!node.writes);
  return held;
}

void FakeCluster::TellKept(FakeNode& node, uint64_t job_id) {
  node.writes = true;
  v1::NodeMessage message;
  v1::PartitionsReady& ready = *message.mutable_partitions_ready();
  const FakeNode::Hosted& hosted = node.hosted.at(job_id);
  ready.set_job_id(job_id);
  ready.set_generation(hosted.generation);
  for (const auto& [p, version] : hosted.version) *ready.add_partitions() = HeldOf(node, job_id, p);
  Say(node, message);
  Settle();
}

void FakeCluster::HostPartitions(FakeNode& node, const v1::HostPartitions& host) {
  if (host.has_rollback_to() && std::exchange(node.breaks_at_rollback, false)) return BreakSession(node);
  FakeNode::Hosted& hosted = node.hosted[host.job_id()];
  if (host.generation() < hosted.generation) return;
  if (host.keep()) {
    node.keeps.insert(host.job_id());
  } else {
    node.keeps.erase(host.job_id());
  }
  const bool anew = host.generation() > hosted.generation || !hosted.serving;
  hosted.generation = host.generation();
  hosted.serving = true;
  const auto before = std::exchange(hosted.version, {});
  const auto links = std::exchange(hosted.links, {});
  hosted.backup.clear();
  for (const v1::PartitionRange& range : host.partitions()) {
    const uint32_t p = range.partition();
    const auto held = before.find(p);
    hosted.version[p] = held == before.end() ? 0 : held->second;
    if (range.backup()) hosted.backup.insert(p);
    for (const v1::BackupRoute& route : range.backups()) {
      const auto known = links.find(p);
      const bool same = !anew && known != links.end() && known->second.contains(route.node());
      hosted.links[p][route.node()] = route.in_sync() || (same && known->second.at(route.node()));
    }
    if (anew && host.has_rollback_to()) {
      hosted.version[p] = host.rollback_to();
      true_step_[host.job_id()] = static_cast<int64_t>(host.rollback_to());
      for (auto& [name, other] : nodes_) other->reported.erase(host.job_id());
    }
  }
  v1::NodeMessage answer;
  v1::PartitionsReady& ready = *answer.mutable_partitions_ready();
  ready.set_job_id(host.job_id());
  ready.set_generation(host.generation());
  for (const auto& [p, version] : hosted.version) *ready.add_partitions() = HeldOf(node, host.job_id(), p);
  Say(node, answer);
}

uint64_t FakeCluster::ExamplesOf(const v1::EvaluateShard& shard) const {
  const uint64_t all = shard.split() == v1::TRAIN        ? data.train_examples()
                       : shard.split() == v1::VALIDATION ? data.validation_examples()
                                                         : data.test_examples();
  return static_cast<uint64_t>(Share(static_cast<int64_t>(all), shard.shard(), shard.shards()).size());
}

void FakeCluster::AnswerQueries(FakeNode& node) {
  if (answer_inspections) {
    for (const v1::InspectData& inspect : std::exchange(node.inspections, {})) {
      v1::NodeMessage answer;
      answer.mutable_data_info()->set_request_id(inspect.request_id());
      answer.mutable_data_info()->set_error(node.blind.empty() ? data_error : node.blind);
      answer.mutable_data_info()->set_worker_only(!node.blind.empty());
      *answer.mutable_data_info()->mutable_info() = data;
      Say(node, answer);
    }
  }
  if (answer_evaluations && !node.stuck) {
    for (const v1::EvaluateShard& shard : std::exchange(node.shards, {})) {
      if (shard.predict()) {
        const uint64_t examples = shard.split() == v1::TRAIN ? data.train_examples() : data.test_examples();
        for (const v1::NodeMessage& message : Outputs(shard, static_cast<int64_t>(examples), 4)) {
          Say(node, message);
        }
        continue;
      }
      v1::NodeMessage answer;
      answer.mutable_evaluated()->set_request_id(shard.request_id());
      answer.mutable_evaluated()->set_shard(shard.shard());
      answer.mutable_evaluated()->set_version(7 + shard.shard());
      answer.mutable_evaluated()->mutable_sums()->set_examples(ExamplesOf(shard));
      answer.mutable_evaluated()->mutable_sums()->set_loss(1);
      answer.mutable_evaluated()->mutable_sums()->mutable_metrics()->Resize(MetricSumCount(shard.spec()), 2);
      Say(node, answer);
    }
  }
  if (answer_finalizes) {
    for (const v1::Finalize& finalize : std::exchange(node.finalizes, {})) {
      v1::NodeMessage answer;
      answer.mutable_finalized()->set_job_id(finalize.job_id());
      answer.mutable_finalized()->set_generation(finalize.generation());
      answer.mutable_finalized()->set_digest("d1e5");
      answer.mutable_finalized()->set_not_finite(not_finite);
      Say(node, answer);
    }
  }
}

std::vector<v1::NodeMessage> FakeCluster::Outputs(const v1::EvaluateShard& shard, int64_t examples, int outputs) {
  const PlaceRange places = Share(examples, shard.shard(), shard.shards());
  std::vector<v1::NodeMessage> messages(2);
  v1::PredictBlock& block = *messages[0].mutable_predicted();
  block.set_request_id(shard.request_id());
  block.set_shard(shard.shard());
  block.set_first_example(static_cast<uint64_t>(places.begin));
  block.set_examples(static_cast<uint64_t>(places.size()));
  block.add_output_shape(outputs);
  for (int64_t e = places.begin; e < places.end; ++e) {
    block.add_inputs(absl::StrCat("line ", e));
    for (int i = 0; i < outputs; ++i) {
      const float value = static_cast<float>(e) + static_cast<float>(i) / 10;
      block.mutable_outputs()->append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  messages[1].mutable_evaluated()->set_request_id(shard.request_id());
  messages[1].mutable_evaluated()->set_shard(shard.shard());
  return messages;
}

}  // namespace cairn
