#include "tests/bench/scale_cluster.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/model/job_check.h"
#include "common/model/limits.h"
#include "common/model/state_text.h"
#include "common/storage/kv_store.h"
#include "tests/bench/scale_environment.h"

namespace cairn::bench {
namespace {

constexpr absl::Duration kNetwork = absl::Milliseconds(1);
constexpr absl::Duration kHeartbeat = absl::Milliseconds(500);
constexpr absl::Duration kReport =
    absl::Milliseconds(200);  // worker/core/replica_core.h, server/core/training_figures.cc
constexpr absl::Duration kCatchUp = absl::Milliseconds(100);

size_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

Work WorkOf(const v1::NodeMessage& message) {
  if (message.has_heartbeat()) return Work::kHeartbeat;
  if (message.has_replica_report()) return Work::kReport;
  return message.has_figures() ? Work::kFigures : Work::kOther;
}

}  // namespace

// ---- what the driver runs on ----

class ScaleCluster::Watch : public ClusterObserver {
 public:
  void OnLeads(const ClusterCore* core) override { this->core = core; }
  void OnEffect(const Effect&) override {}
  const ClusterCore* core = nullptr;
};

// As SessionReactor: a message is measured and encoded.
class ScaleCluster::Session : public SessionSink {
 public:
  Session(ScaleCluster& owner, ScaleNode& node, uint64_t number) : owner_(owner), node_(node), number_(number) {}
  void Send(v1::CoordinatorMessage message) override {
    owner_.meter_.In(Work::kEncode, [&] {
      buffer_.clear();
      owner_.sent_bytes_ += message.ByteSizeLong();
      message.AppendToString(&buffer_);
    });
    owner_.meter_.In(Work::kNodes, [&] {
      buffer_ = {};
      if (node_.session == number_) owner_.Obey(node_, message);
    });
  }
  void Close(const absl::Status& reason) override {
    CAIRN_CHECK(absl::IsUnavailable(reason) || node_.session != number_, reason.ToString());
    if (node_.session == number_) node_.session = 0;
  }

 private:
  ScaleCluster& owner_;
  ScaleNode& node_;
  const uint64_t number_;
  std::string buffer_;
};

// ---- processes ----

ScaleCluster::ScaleCluster(const ScaleOptions& options)
    : options_(options),
      world_(1, false),
      store_(NewMemoryKvStore()),
      clock_(std::make_unique<VirtualClock>(world_)),
      watch_(std::make_unique<Watch>()) {
  for (int i = 0; i < options.ps + options.workers; ++i) {
    auto node = std::make_unique<ScaleNode>();
    node->ps = i < options.ps;
    node->number = node->ps ? i : i - options.ps;
    node->name = absl::StrFormat("%s-%05d", node->ps ? "ps" : "worker", node->number);
    node->host = node->ps ? absl::StrCat("rack-", i / options.rack) : node->name;
    nodes_.push_back(std::move(node));
  }
  StartCoordinator();
}

ScaleCluster::~ScaleCluster() { EndCoordinator(); }

void ScaleCluster::StartCoordinator() {
  ClusterEnvironment environment;
  environment.clock = clock_.get();
  environment.executor = std::make_unique<VirtualExecutor>(world_, meter_);
  environment.observer = watch_.get();
  CoordinatorOptions options;
  options.job_parameters_max = kParametersMax;
  meter_.In(Work::kOther, [&] {
    driver_ = std::make_unique<ClusterDriver>(options, std::move(environment));
    driver_->Lead([this]() -> absl::StatusOr<Leadership> {
      StateStore store(std::make_unique<KeptStore>(*store_));
      CAIRN_ASSIGN_OR_RETURN(StoredState stored, store.Load());
      return Leadership{std::move(store), std::move(stored), ++incarnation_, nullptr,
                        [](const absl::Status& why) { CAIRN_CHECK(false, why.ToString()); }};
    });
  });
  CAIRN_CHECK(watch_->core != nullptr, "it leads at once");
}

size_t ScaleCluster::EndCoordinator() {
  const size_t before = AllocatedBytes();
  driver_.reset();
  return before - AllocatedBytes();
}

void ScaleCluster::JoinAll(absl::Duration within) {
  const auto away =
      static_cast<int64_t>(std::count_if(nodes_.begin(), nodes_.end(), [](auto& n) { return n->session == 0; }));
  int64_t turn = 0;
  for (auto& node : nodes_) {
    if (node->session == 0) world_.After(within * turn++ / away, [this, &node = *node] { Join(node); });
  }
  RunFor(within + kNetwork);
}

void ScaleCluster::LoseRack(int rack) {
  for (auto& node : nodes_) {
    if (!node->ps || node->number / options_.rack != rack) continue;
    node->session = 0;
    there_.erase(node->name);
    meter_.In(Work::kOther, [&] { driver_->SessionEnded(node->token); });
  }
}

void ScaleCluster::Join(ScaleNode& node) {
  const uint64_t session = node.session = ++node.sessions;
  there_.insert(node.name);
  std::string bytes = HelloOf(node).SerializeAsString();
  v1::Hello hello;
  meter_.In(Work::kDecode, [&] { CAIRN_CHECK(hello.ParseFromString(bytes), "our own bytes"); });
  meter_.In(Work::kOther, [&] {
    driver_->SessionOpened(std::make_shared<Session>(*this, node, session), std::move(hello),
                           [&](SessionToken token) { node.token = token; });
  });
  Beat(node, session);
  if (!node.ps) ReportSteps(node, session);
}

v1::Hello ScaleCluster::HelloOf(const ScaleNode& node) const {
  v1::Hello hello = node.Hello();
  for (const auto& [job, hosted] : node.hosted) {
    v1::HeldPartitions& held = *hello.add_held();
    held.set_job_id(job);
    held.set_generation(hosted.generation);
    hosted.Fill(static_cast<uint64_t>(StepOf(job)), held.mutable_partitions());
  }
  for (const auto& [job, assigned] : node.assigned) {
    v1::HeldReplicas& running = *hello.add_running();
    running.set_job_id(job);
    running.set_generation(assigned.generation);
    running.mutable_replicas()->Assign(assigned.replicas.begin(), assigned.replicas.end());
  }
  return hello;
}

// ---- what nodes say ----

void ScaleCluster::Say(ScaleNode& node, const v1::NodeMessage& message) {
  if (node.session == 0 || driver_ == nullptr) return;
  const std::string bytes = message.SerializeAsString();
  v1::NodeMessage decoded;
  meter_.In(Work::kDecode, [&] { CAIRN_CHECK(decoded.ParseFromString(bytes), "our own bytes"); });
  meter_.In(WorkOf(message), [&] { driver_->SessionSays(node.token, std::move(decoded), [] {}); });
}

void ScaleCluster::Beat(ScaleNode& node, uint64_t session) {
  if (node.session != session) return;
  v1::NodeMessage message;
  v1::Heartbeat& heartbeat = *message.mutable_heartbeat();
  heartbeat.set_memory_bytes(uint64_t{1} << 30);
  for (const auto& [job, assigned] : node.assigned) {
    v1::JobProgress& progress = *heartbeat.add_progress();
    progress.set_job_id(job);
    progress.set_generation(assigned.generation);
    progress.set_assignment(assigned.assignment);
    progress.set_step(StepOf(job));
    progress.set_replica_ms(absl::ToDoubleMilliseconds(options_.step) * (1 + 0.0001 * (node.number % 100)));
  }
  Say(node, message);
  world_.After(kHeartbeat, [this, &node, session] { Beat(node, session); });
}

void ScaleCluster::ReportSteps(ScaleNode& node, uint64_t session) {
  if (node.session != session) return;
  for (auto& [job, assigned] : node.assigned) {
    const int64_t last = StepOf(job) - 1;
    if (last < 0 || last <= assigned.reported) continue;
    assigned.reported = last;
    for (const int32_t replica : assigned.replicas) {
      v1::NodeMessage message;
      v1::ReplicaReport& report = *message.mutable_replica_report();
      report.set_job_id(job);
      report.set_generation(assigned.generation);
      report.set_replica(replica);
      report.set_last_step(last);
      Say(node, message);
    }
  }
  world_.After(kReport, [this, &node, session] { ReportSteps(node, session); });
}

void ScaleCluster::TellFigures(ScaleNode& node, uint64_t job) {
  const auto found = node.hosted.find(job);
  if (found == node.hosted.end() || !found->second.has_first() || !jobs_.contains(job)) return;
  const ScaleHosted& hosted = found->second;
  const int64_t steps = StepOf(job), per_epoch = options_.steps_per_epoch;
  v1::NodeMessage message;
  v1::FiguresReport& report = *message.mutable_figures();
  report.set_job_id(job);
  report.set_generation(hosted.generation);
  report.set_version(static_cast<uint64_t>(steps));
  report.set_answers(hosted.question);
  for (int64_t epoch = hosted.stored_epochs; epoch * per_epoch < steps; ++epoch) {
    const int64_t done = std::min(per_epoch, steps - epoch * per_epoch);
    v1::EpochFigures& figures = *report.add_epochs();
    figures.set_epoch(static_cast<int32_t>(epoch));
    figures.set_replica_steps(static_cast<uint64_t>(done * jobs_.at(job).replicas));
    figures.mutable_train()->set_examples(static_cast<uint64_t>(done * kScaleBatch));
    figures.mutable_train()->set_loss(0.5 * static_cast<double>(done * kScaleBatch));
  }
  Say(node, message);
}

void ScaleCluster::TellFiguresAgain(ScaleNode& node, uint64_t job) {
  TellFigures(node, job);
  world_.After(kReport, [this, &node, job] { TellFiguresAgain(node, job); });
}

void ScaleCluster::AnswerLater(ScaleNode& node, absl::Duration delay, std::function<v1::NodeMessage()> answer) {
  world_.After(delay, [this, &node, session = node.session, answer = std::move(answer)] {
    if (node.session == session && session != 0) Say(node, answer());
  });
}

int64_t ScaleCluster::StepOf(uint64_t job) const {
  const auto steps = jobs_.find(job);
  return steps == jobs_.end() ? 0 : (world_.now() - steps->second.began) / options_.step;
}

// ---- what nodes are told ----

void ScaleCluster::Obey(ScaleNode& node, const v1::CoordinatorMessage& command) {
  if (command.has_host_partitions()) return Host(node, command.host_partitions());
  if (command.has_assign_replicas()) return Assign(node, command.assign_replicas());
  if (command.has_drop_job()) {
    node.hosted.erase(command.drop_job().job_id());
    node.assigned.erase(command.drop_job().job_id());
  } else if (command.has_inspect_data()) {
    AnswerLater(node, kNetwork, [id = command.inspect_data().request_id(), this] {
      v1::NodeMessage answer;
      answer.mutable_data_info()->set_request_id(id);
      v1::DataInfo& info = *answer.mutable_data_info()->mutable_info();
      info.set_train_examples(static_cast<uint64_t>(kScaleBatch * options_.steps_per_epoch));
      info.add_example_shape(kScaleInputs);
      info.set_classes(kScaleClasses);
      return answer;
    });
  } else if (command.has_figures_stored()) {
    const v1::FiguresStored& stored = command.figures_stored();
    if (const auto hosted = node.hosted.find(stored.job_id()); hosted != node.hosted.end()) {
      hosted->second.stored_epochs = std::max(hosted->second.stored_epochs, int64_t{stored.epochs()});
      hosted->second.question = stored.question();
      world_.After(kNetwork, [this, &node, job = stored.job_id()] { TellFigures(node, job); });
    }
  }
}

void ScaleCluster::Host(ScaleNode& node, const v1::HostPartitions& host) {
  const uint64_t job = host.job_id(), generation = host.generation();
  ScaleHosted& hosted = node.hosted[job];
  if (hosted.generation != generation) hosted.asked.clear();
  hosted.generation = generation;
  hosted.primaries.clear();
  hosted.backups.clear();
  for (const v1::PartitionRange& range : host.partitions()) {
    (range.backup() ? hosted.backups : hosted.primaries).push_back(range.partition());
    for (const v1::BackupRoute& backup : range.backups()) {
      if (backup.in_sync() || !hosted.asked.insert({generation, range.partition(), backup.node()}).second) continue;
      AnswerLater(node, kCatchUp, [job, generation, partition = range.partition(), backup = backup.node()] {
        v1::NodeMessage answer;
        v1::BackupReport& report = *answer.mutable_backup_report();
        report.set_job_id(job);
        report.set_generation(generation);
        report.set_partition(partition);
        report.set_node(backup);
        return answer;
      });
    }
  }
  AnswerLater(node, kNetwork, [this, &node, job] {
    v1::NodeMessage answer;
    v1::PartitionsReady& ready = *answer.mutable_partitions_ready();
    ready.set_job_id(job);
    ready.set_generation(node.hosted[job].generation);
    node.hosted[job].Fill(static_cast<uint64_t>(StepOf(job)), ready.mutable_partitions());
    return answer;
  });
  if (hosted.has_first() && !std::exchange(hosted.tells_figures, true)) TellFiguresAgain(node, job);
}

void ScaleCluster::Assign(ScaleNode& node, const v1::AssignReplicas& assign) {
  if (assign.replicas().empty()) {
    node.assigned.erase(assign.job_id());
    return;
  }
  jobs_.try_emplace(assign.job_id(), Steps{world_.now(), assign.spec().replicas()});
  ScaleAssigned& assigned = node.assigned[assign.job_id()];
  assigned.generation = assign.generation();
  assigned.assignment = assign.assignment();
  assigned.replicas.assign(assign.replicas().begin(), assign.replicas().end());
}

// ---- users ----

void ScaleCluster::Submit(const v1::JobSpec& spec) {
  auto checked = CheckJob(spec);
  CAIRN_CHECK(checked.ok(), checked.status().ToString());
  const auto job = std::make_shared<const CheckedJob>(*std::move(checked));
  meter_.In(Work::kOther, [&] {
    ++submitted_;
    driver_->Call(
        "",
        [&](ReplyToken reply) -> Event {
          return SubmitJob{reply, job, job->spec.name()};
        },
        [](const absl::Status& status, const ReplyBody&) { CAIRN_CHECK(status.ok(), status.ToString()); });
  });
}

absl::Duration ScaleCluster::RunUntil(const std::function<bool()>& done, absl::Duration most) {
  const absl::Time began = world_.now();
  while (!done()) {
    CAIRN_CHECK(world_.now() - began < most, "what is awaited comes");
    RunFor(absl::Milliseconds(100));
  }
  return world_.now() - began;
}

void ScaleCluster::RunFor(absl::Duration time) {
  world_.RunUntil(world_.now() + time, [] { return false; });
}

v1::JobStatus ScaleCluster::Job(uint64_t id) const {
  const auto status = watch_->core->GetJob(JobId(id), world_.now());
  CAIRN_CHECK(status.ok(), status.status().ToString());
  CAIRN_CHECK(!IsFinal(status->state()), status->reason());
  return *status;
}

bool ScaleCluster::Served(uint64_t id, bool with_copies) const {
  if (!watch_->core->GetJob(JobId(id), world_.now()).ok()) return false;  // a worker looks at its data
  const v1::JobStatus job = Job(id);
  if (job.state() != v1::RUNNING || !job.reason().empty() || (with_copies && job.has_degraded())) return false;
  return std::all_of(job.partitions().begin(), job.partitions().end(), [&](const v1::PartitionPlacement& p) {
    if (!there_.contains(p.primary())) return false;
    return !with_copies || (p.backups_size() == job.spec().backups() &&
                            std::all_of(p.backups().begin(), p.backups().end(),
                                        [&](const auto& b) { return b.in_sync() && there_.contains(b.node()); }));
  });
}

int ScaleCluster::JobsServed(bool with_copies) const {
  int served = 0;
  for (uint64_t id = 1; id <= submitted_; ++id) served += Served(id, with_copies);
  return served;
}

size_t ScaleCluster::StoredBytes() const {
  size_t bytes = 0;
  const absl::Status status = store_->Scan("", [&](std::string_view key, std::string_view value) {
    bytes += key.size() + value.size();
    return true;
  });
  CAIRN_CHECK(status.ok(), status.ToString());
  return bytes;
}

}  // namespace cairn::bench
