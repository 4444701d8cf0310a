#include "tests/unit/coordinator/fake_cluster.h"

#include <gtest/gtest.h>

#include <utility>

#include "common/model/step_plan.h"
#include "coordinator/state_store.h"

namespace cairn {

FakeCluster::FakeCluster() {
  data.set_train_examples(40);
  data.set_validation_examples(8);
  data.set_test_examples(16);
  data.add_example_shape(8);
  data.set_classes(4);
  data.set_format(v1::Data::CSV);
  RestartCoordinator();
  crashed_ = false;
}

v1::JobSpec FakeCluster::Spec(int replicas) {
  v1::JobSpec spec;
  spec.set_name("test");
  spec.mutable_model()->add_layers()->mutable_input()->add_shape(8);
  v1::Dense& hidden = *spec.mutable_model()->add_layers()->mutable_dense();
  hidden.set_units(16);
  hidden.set_activation(v1::RELU);
  v1::Dense& out = *spec.mutable_model()->add_layers()->mutable_dense();
  out.set_units(4);
  out.set_activation(v1::SOFTMAX);
  spec.mutable_data()->set_path("/data/test.csv");
  spec.mutable_loss()->set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  spec.add_metrics()->set_kind(v1::Metric::ACCURACY);
  spec.mutable_optimizer()->mutable_sgd();
  spec.set_batch_size(8);
  spec.set_epochs(2);
  spec.set_replicas(replicas);
  spec.set_partition_bytes(256);
  spec.set_backups(0);
  return spec;
}

// ---- nodes ----

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
}

void FakeCluster::BreakSession(FakeNode& node) {
  const SessionToken session = std::exchange(node.session, {});
  node.inbox.clear();
  if (session.value != 0) Do(SessionClosed{session});
}

void FakeCluster::Kill(FakeNode& node) {
  node.running = false;
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
  if (message.has_restored() && message.restored().error().empty()) true_step_[message.restored().job_id()] = message.restored().step();
  if (node.session.value != 0 && !node.silent) Do(NodeSays{node.session, message});
}

// ---- users ----

ReplyToken FakeCluster::Submit(const v1::JobSpec& spec, const std::string& key) {
  absl::StatusOr<CheckedJob> checked = CheckJob(spec);
  EXPECT_TRUE(checked.ok()) << checked.status();
  const ReplyToken token{++last_token_};
  Do(SubmitJob{token, std::make_shared<const CheckedJob>(*std::move(checked)), key});
  Settle();
  return token;
}

const Reply* FakeCluster::ReplyTo(ReplyToken token) const {
  auto it = replies_.find(token);
  return it == replies_.end() ? nullptr : &it->second;
}

uint64_t FakeCluster::SubmittedId(ReplyToken token) const {
  const Reply* reply = ReplyTo(token);
  if (reply == nullptr || !reply->status.ok()) return 0;
  return std::get<v1::SubmitResponse>(reply->body).job().job_id();
}

v1::JobStatus FakeCluster::Job(uint64_t id) const {
  absl::StatusOr<v1::JobStatus> status = core_->GetJob(JobId(id), absl::InfinitePast());
  return status.ok() ? *std::move(status) : v1::JobStatus();
}

// ---- the loop ----

void FakeCluster::Do(const Event& event) {
  std::vector<ReplyToken> taken;
  for (Effect& effect : core_->Step(event, clock_.Now())) {
    if (effect_count_++ == crash_at_) {
      crashed_ = true;
      return RestartCoordinator();
    }
    if (auto* store = std::get_if<Store>(&effect)) {
      if (store->value) {
        disk[store->key] = *store->value;
      } else {
        disk.erase(store->key);
      }
    } else if (auto* send = std::get_if<SendCommand>(&effect)) {
      for (auto& [name, node] : nodes_) {
        if (node->session == send->session) node->inbox.push_back(std::move(send->message));
      }
    } else if (auto* close = std::get_if<CloseSession>(&effect)) {
      for (auto& [name, node] : nodes_) {
        if (node->session != close->session) continue;
        node->session = {};
        node->closed = close->reason;
      }
    } else if (auto* reply = std::get_if<Reply>(&effect)) {
      EXPECT_FALSE(replies_.contains(reply->token)) << "two replies to one call";
      replies_[reply->token] = std::move(*reply);
    } else if (auto* part = std::get_if<SendPrediction>(&effect)) {
      predictions[part->token].push_back(std::move(part->part));
      if (take_predictions) taken.push_back(part->token);
    } else if (auto* line = std::get_if<LogLine>(&effect)) {
      log_.push_back(line->text);
    }
  }
  for (ReplyToken token : taken) Do(PredictionTaken{token});
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
    for (int i = 0; i < outputs; ++i) {
      const float value = static_cast<float>(e) + static_cast<float>(i) / 10;
      block.mutable_outputs()->append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  messages[1].mutable_evaluated()->set_request_id(shard.request_id());
  messages[1].mutable_evaluated()->set_shard(shard.shard());
  return messages;
}

void FakeCluster::RestartCoordinator() {
  StoredState state;
  for (const auto& [key, value] : disk) {
    if (key == kClusterKey) {
      EXPECT_TRUE(state.cluster.ParseFromString(value));
    } else {
      EXPECT_TRUE(state.jobs.emplace_back().ParseFromString(value)) << key;
    }
  }
  for (auto& [name, node] : nodes_) node->session = {};
  core_ = std::make_unique<ClusterCore>(options, ++incarnation_ * 1'000'000, state, clock_.Now());
}

void FakeCluster::ReconnectAll() {
  for (auto& [name, node] : nodes_) {
    if (node->running && node->session.value == 0) Connect(*node);
  }
}

void FakeCluster::Settle() {
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& [name, node] : nodes_) {
      moved = moved || !node->inbox.empty();
      Deliver(*node);
    }
  }
}

void FakeCluster::Deliver(FakeNode& node) {
  for (const v1::CoordinatorMessage& message : std::exchange(node.inbox, {})) {
    if (!node.silent) Handle(node, message);
  }
  AnswerQueries(node);
}

void FakeCluster::Handle(FakeNode& node, const v1::CoordinatorMessage& message) {
  if (!message.has_welcome()) ++node.commands;
  if (message.has_welcome() && node.hello.role() == v1::PS && node.hello.cluster_id() == 0) node.hello.set_cluster_id(message.welcome().cluster_id());
  if (message.has_host_partitions()) {
    HostPartitions(node, message.host_partitions());
  } else if (message.has_drop_job()) {
    node.dropped.insert(message.drop_job().job_id());
    if (message.drop_job().remove_checkpoints_size() > 0) node.drops.push_back(message.drop_job());
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
  return held;
}

void FakeCluster::HostPartitions(FakeNode& node, const v1::HostPartitions& host) {
  if (host.has_rollback_to() && std::exchange(node.breaks_at_rollback, false)) return BreakSession(node);
  FakeNode::Hosted& hosted = node.hosted[host.job_id()];
  if (host.generation() < hosted.generation) return;
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

std::optional<absl::Time> FakeCluster::CutSince(const std::string& a, const std::string& b) const {
  auto it = cut_links_.find({std::min(a, b), std::max(a, b)});
  return it == cut_links_.end() ? std::nullopt : std::optional(it->second);
}

// Brings the backups of this primary up to date and says so, again and again.
void FakeCluster::Replicate(FakeNode& primary) {
  if (!primary.running || !replicate) return;
  std::vector<v1::NodeMessage> reports;
  for (auto& [job_id, hosted] : primary.hosted) {
    if (!hosted.serving) continue;
    for (auto& [p, links] : hosted.links) {
      for (auto& [name, in_sync] : links) {
        FakeNode& backup = *nodes_.at(name);
        if (const auto since = CutSince(primary.hello.name(), name)) {
          if (clock_.Now() - *since < absl::Seconds(3)) continue;
          v1::BackupReport& report = *reports.emplace_back().mutable_backup_report();
          report.set_job_id(job_id);
          report.set_generation(hosted.generation);
          report.set_partition(p);
          report.set_node(name);
          report.set_lost("no answer for 3 s");
          continue;
        }
        const auto copy = backup.hosted.find(job_id);
        if (!backup.running || copy == backup.hosted.end() || !copy->second.serving ||
            copy->second.generation != hosted.generation || !copy->second.backup.contains(p)) {
          continue;
        }
        if (!in_sync) copy->second.version[p] = hosted.version[p];
        in_sync = true;
        v1::BackupReport& report = *reports.emplace_back().mutable_backup_report();
        report.set_job_id(job_id);
        report.set_generation(hosted.generation);
        report.set_partition(p);
        report.set_node(name);
        report.set_version(hosted.version[p]);
      }
    }
  }
  for (const v1::NodeMessage& report : reports) Say(primary, report);
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
        for (const v1::NodeMessage& message : Outputs(shard, static_cast<int64_t>(data.test_examples()), 4)) {
          Say(node, message);
        }
        continue;
      }
      v1::NodeMessage answer;
      answer.mutable_evaluated()->set_request_id(shard.request_id());
      answer.mutable_evaluated()->set_shard(shard.shard());
      answer.mutable_evaluated()->set_version(7 + shard.shard());
      answer.mutable_evaluated()->mutable_sums()->set_examples(16 / shard.shards());
      answer.mutable_evaluated()->mutable_sums()->set_loss(1);
      answer.mutable_evaluated()->mutable_sums()->add_metrics(2);
      Say(node, answer);
    }
  }
  if (answer_finalizes) {
    for (const v1::Finalize& finalize : std::exchange(node.finalizes, {})) {
      v1::NodeMessage answer;
      answer.mutable_finalized()->set_job_id(finalize.job_id());
      answer.mutable_finalized()->set_digest("d1e5");
      Say(node, answer);
    }
  }
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

void FakeCluster::Pass(absl::Duration duration) {
  for (absl::Duration t; t < duration; t += absl::Milliseconds(100)) {
    clock_.Advance(absl::Milliseconds(100));
    if (absl::ToUnixMillis(clock_.Now()) % 500 == 0) {
      for (auto& [name, node] : nodes_) Beat(*node);
    }
    for (auto& [name, node] : nodes_) Replicate(*node);
    Do(Tick{});
    Settle();
  }
}

int64_t FakeCluster::TrueStep(uint64_t job_id) const {
  auto it = true_step_.find(job_id);
  return it == true_step_.end() ? 0 : it->second;
}

// A step is done when each replica is computed by someone and each partition is held by a ps that runs. Only one
// worker's computing of a replica counts: the ps drop what comes twice.
void FakeCluster::TrainStep() {
  std::map<uint64_t, std::map<int32_t, FakeNode*>> computing;
  std::map<uint64_t, const v1::AssignReplicas*> newest;
  for (auto& [name, node] : nodes_) {
    if (!node->running) continue;
    for (const auto& [job_id, assign] : node->assigned) {
      const v1::AssignReplicas*& best = newest[job_id];
      const auto age = [](const v1::AssignReplicas& a) { return std::pair(a.generation(), a.assignment()); };
      if (best == nullptr || age(assign) > age(*best)) best = &assign;
      for (int32_t r : assign.replicas()) computing[job_id][r] = node.get();
    }
  }
  std::vector<std::pair<FakeNode*, v1::NodeMessage>> reports;
  for (const auto& [job_id, assign] : newest) {
    int64_t& step = true_step_[job_id];
    if (step >= assign->total_steps()) {
      for (const auto& [replica, node] : computing[job_id]) {
        v1::NodeMessage message;
        v1::ReplicaReport& report = *message.mutable_replica_report();
        report.set_job_id(job_id);
        report.set_generation(assign->generation());
        report.set_replica(replica);
        report.set_finished(true);
        reports.emplace_back(node, std::move(message));
      }
      continue;
    }
    if (assign->epochs_open() > 0 && step >= assign->epochs_open() * assign->steps_per_epoch()) continue;
    if (static_cast<int>(computing[job_id].size()) != assign->spec().replicas()) continue;
    bool served = true;
    for (const v1::Route& route : assign->routes()) {
      FakeNode& ps = *nodes_.at(route.ps());
      const uint32_t p = route.range().partition();
      auto hosted = ps.hosted.find(job_id);
      served = served && ps.running && hosted != ps.hosted.end() && hosted->second.serving &&
               hosted->second.generation == assign->generation() && hosted->second.version.contains(p) &&
               !hosted->second.backup.contains(p) && ps.hello.address() == route.address();
      if (!served) break;
      for (const auto& [name, in_sync] : hosted->second.links[p]) {  // nothing is acknowledged without them
        FakeNode& backup = *nodes_.at(name);
        auto copy = backup.hosted.find(job_id);
        served = served && (!in_sync || (backup.running && !CutSince(route.ps(), name) && copy != backup.hosted.end() && copy->second.serving &&
                                         copy->second.generation == hosted->second.generation &&
                                         copy->second.backup.contains(p)));
      }
    }
    if (!served) continue;
    for (const v1::Route& route : assign->routes()) {
      const uint32_t p = route.range().partition();
      FakeNode::Hosted& hosted = nodes_.at(route.ps())->hosted[job_id];
      EXPECT_EQ(hosted.version[p], static_cast<uint64_t>(step)) << "partition " << p << " lost or doubled an update";
      ++hosted.version[p];
      for (const auto& [name, in_sync] : hosted.links[p]) {
        if (in_sync) nodes_.at(name)->hosted[job_id].version[p] = hosted.version[p];
      }
    }
    for (const auto& [replica, node] : computing[job_id]) {
      v1::NodeMessage message;
      v1::ReplicaReport& report = *message.mutable_replica_report();
      report.set_job_id(job_id);
      report.set_generation(assign->generation());
      report.set_replica(replica);
      report.set_first_step(step);
      report.set_last_step(step);
      report.mutable_train()->set_examples(assign->spec().batch_size() / assign->spec().replicas());
      report.mutable_train()->set_loss(0.5);
      report.mutable_train()->add_metrics(1);
      if ((step + 1) % assign->steps_per_epoch() == 0) {
        report.set_validation_epoch(static_cast<int>(step / assign->steps_per_epoch()));
        report.mutable_validation()->set_examples(2);
        const auto loss = validation_loss.find(report.validation_epoch());
        report.mutable_validation()->set_loss(loss == validation_loss.end() ? 0.25 : loss->second);
        report.mutable_validation()->add_metrics(1);
      }
      report.set_finished(step + 1 == assign->total_steps());
      reports.emplace_back(node, std::move(message));
    }
    ++step;
    if (!write_checkpoints || step % assign->steps_per_epoch() != 0) continue;
    for (const auto& [replica, node] : computing[job_id]) {
      if (!node->assigned.at(job_id).chief()) continue;
      v1::NodeMessage message;
      v1::CheckpointInfo& info = *message.mutable_checkpoint()->mutable_checkpoint();
      message.mutable_checkpoint()->set_job_id(job_id);
      info.set_step(step);
      message.mutable_checkpoint()->set_error(checkpoint_error);
      if (checkpoint_error.empty()) info.set_path(absl::StrCat(assign->spec().checkpoints().dir(), "/step-", step));
      info.set_written_unix_ms(absl::ToUnixMillis(clock_.Now()) + step);
      reports.emplace_back(node, std::move(message));
      break;
    }
  }
  for (auto& [node, message] : reports) {
    node->reported[message.has_checkpoint() ? message.checkpoint().job_id() : message.replica_report().job_id()].push_back(message);
  }
  for (auto& [node, message] : reports) Say(*node, message);
}

bool FakeCluster::RunToEnd(uint64_t job_id) {
  for (int round = 0; round < 2000; ++round) {
    ReconnectAll();
    Settle();
    const v1::JobState state = State(job_id);
    if (state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED) return true;
    Pass(absl::Milliseconds(100));
    TrainStep();
  }
  return false;
}

bool FakeCluster::Logged(const std::string& part) const {
  for (const std::string& line : log_) {
    if (line.find(part) != std::string::npos) return true;
  }
  return false;
}

void FakeCluster::ClearCommands() {
  for (auto& [name, node] : nodes_) node->commands = 0;
}

}  // namespace cairn
