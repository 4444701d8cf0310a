#include "tests/sim/sim_ps.h"

#include <algorithm>
#include <utility>

#include "common/model/graph.h"
#include "server/core/partition_config.h"
#include "tests/sim/sim_backups.h"
#include "tests/sim/sim_cluster.h"

namespace cairn::sim {
namespace {

constexpr int kLanes = 2;
constexpr absl::Duration kImageTimeMin = absl::Milliseconds(1), kImageTimeMax = absl::Milliseconds(50);
constexpr absl::Duration kTellFault = absl::Milliseconds(300);  // as PsNode
constexpr absl::Duration kSupervisorPause = absl::Milliseconds(100);

// Small, so that short jobs have several.
ImageOptions SmallImages() {
  ImageOptions image;
  image.log_bytes_min = 400;
  image.log_to_image_ratio = 2;
  image.snapshot_every = 4;
  return image;
}

}  // namespace

SimPs::SimPs(SimCluster& cluster, int index, bool power_losses)
    : SimNode(cluster, absl::StrFormat("ps-%d", index)),
      disk_(std::make_unique<SimDisk>(power_losses)),
      fail_stop_(*disk_, [this] { StoreFails(); }),
      planted_(fail_stop_, world_, host_, cluster.options().bug,
               {[this] {
                  // Lost writes: the process dies soon after, and takes them along.
                  if (cores_.empty() || !world_.rng.Chance(0.02)) return false;
                  DieSoon();
                  return true;
                },
                [this] { DieSoon(); }}),
      store_(cluster.options().bug == PlantedBug::kNone ? static_cast<KvStore&>(fail_stop_) : planted_),
      persistence_(store_),
      clock_(world_, host_) {}

SimPs::~SimPs() {
  host_.up = false;  // nothing that ends now posts anything
  partitions_ = nullptr;
}

std::string SimPs::address() const { return absl::StrFormat("%s:%d", name(), host_.process); }

// ---- the process ----

void SimPs::OnStart() {
  PartitionEnvironment environment;
  environment.clock = &clock_;
  const bool loses = cluster_.options().bug == PlantedBug::kLoseWakeup;
  for (int i = 0; i < kLanes; ++i) {
    environment.lanes.push_back(std::make_unique<SimExecutor>(world_, host_, cluster_.thread_load(), loses));
  }
  environment.disk =
      std::make_unique<SimExecutor>(world_, host_, SimExecutor::Load{1, kImageTimeMin, kImageTimeMax}, loses);
  environment.backups = std::make_unique<SimBackups>(cluster_, host_, [this] { GoOnAlone(); });
  environment.observer = this;
  control_ = std::make_unique<SimExecutor>(world_, host_, cluster_.thread_load());
  partitions_ = std::make_unique<PartitionHost>(store_, std::move(environment), Callbacks(), SmallImages());
  LoadHeld();
}

void SimPs::OnEnd() {
  partitions_ = nullptr;
  control_ = nullptr;
  planted_.ProcessEnded();
  fail_stop_.ProcessEnded();
  clients_.clear();
  tokens_.clear();
  hosted_.Clear();
  job_ = 0;
  cores_.clear();
  serving_.clear();
  goes_back_ = false;
  restoring_.reset();
}

PartitionHostCallbacks SimPs::Callbacks() {
  PartitionHostCallbacks callbacks;
  callbacks.reply = [this](uint64_t client, Frame frame) { Answer(client, std::move(frame)); };
  callbacks.job_error = [this](JobId job, Generation generation, const absl::Status& status) {
    control_->Post([this, job, generation, status] { JobFails(job, generation, status); });
  };
  const auto say = [this](v1::NodeMessage message) {
    control_->Post([this, message = std::move(message)] { Say(message); });
  };
  callbacks.backup_report = [say](v1::BackupReport report) {
    v1::NodeMessage message;
    *message.mutable_backup_report() = std::move(report);
    say(std::move(message));
  };
  callbacks.figures = [say](v1::FiguresReport figures) {
    v1::NodeMessage message;
    *message.mutable_figures() = std::move(figures);
    say(std::move(message));
  };
  callbacks.kept = [this, say](v1::PartitionsReady ready) {
    for (v1::HeldPartition& held : *ready.mutable_partitions()) PlantInHeld(held);
    v1::NodeMessage message;
    *message.mutable_partitions_ready() = std::move(ready);
    say(std::move(message));
  };
  return callbacks;
}

void SimPs::LoadHeld() {
  const auto jobs = persistence_.ListHostedJobs();
  if (!jobs.ok()) return world_.Fail(jobs.status().ToString());
  for (const v1::HostPartitions& host : *jobs) job_ = std::max(job_, host.job_id());
  const absl::Status loaded = partitions_->LoadHeld();
  if (!loaded.ok()) return world_.Fail(loaded.ToString());
  if (const size_t held = partitions_->Held().size(); held != jobs->size()) {
    world_.Fail(absl::StrFormat("%s: of %d jobs on its disk %d can be recovered", name(), jobs->size(), held));
  }
}

// What a start from the disk alone would find.
uint64_t SimPs::VersionOnDisk(uint32_t partition) const {
  const auto jobs = persistence_.ListHostedJobs();
  if (!jobs.ok()) return 0;
  for (const v1::HostPartitions& host : *jobs) {
    for (const v1::PartitionRange& range : host.partitions()) {
      if (host.job_id() != cluster_.job_id() || range.partition() != partition) continue;
      auto config = MakePartitionConfig(host.spec(), cluster_.graph(), range, JobId(host.job_id()),
                                        Generation(host.generation()));
      if (config.ok()) config->ended = config->keep = host.ended();
      const auto state = config.ok() ? persistence_.Recover(*config) : config.status();
      if (state.ok()) return state->version;
    }
  }
  return 0;
}

// ---- the session: as PsNode ----

// As PsNode::Fault; the user is told to start it anew.
std::string SimPs::Fault() const {
  const std::string fault = partitions_->fault();
  return fault.empty() ? fault
                       : absl::StrFormat("its data directory failed: %s; start the ps \"%s\" again", fault, name());
}

// As PsNode::StoreFailed: tells the coordinator and ends. The supervisor starts the process again. A real one cannot
// open its store before there is room; one that something else starts here earlier ends at its first write.
void SimPs::StoreFails() {
  world_.Trace("%s: its store failed: %s", name(), fail_stop_.failed().ToString());
  control_->Post([this] {
    v1::NodeMessage message;
    *message.mutable_heartbeat() = Heartbeat();
    message.mutable_heartbeat()->set_fault(fail_stop_.failed().ToString());
    Say(std::move(message));
  });
  Later(kTellFault, [this, process = host_.process] {
    End();
    StartWhenDiskHasRoom(process);
  });
}

void SimPs::StartWhenDiskHasRoom(uint64_t process) {
  world_.After(kSupervisorPause, [this, process] {
    if (host_.up || host_.process != process) return;  // something else has started it
    if (disk_->failing()) return StartWhenDiskHasRoom(process);
    Start();
  });
}

v1::Hello SimPs::Hello() {
  v1::Hello hello;
  hello.set_name(name());
  hello.set_role(v1::PS);
  hello.set_address(address());
  hello.set_host(name());
  hello.set_incarnation(host_.process);
  hello.set_fault(Fault());
  for (v1::HeldPartitions& held : partitions_->Held()) {
    for (v1::HeldPartition& partition : *held.mutable_partitions()) PlantInHeld(partition);
    *hello.add_held() = std::move(held);
  }
  return hello;
}

v1::Heartbeat SimPs::Heartbeat() {
  v1::Heartbeat heartbeat;
  heartbeat.set_fault(Fault());
  return heartbeat;
}

void SimPs::OnCommand(const v1::CoordinatorMessage& message) {
  if (message.has_welcome()) partitions_->ReportAgain();
  if (message.has_host_partitions() || message.has_figures_stored() || message.has_drop_job()) {
    control_->Post([this, message] { Command(message); });
  }
}

void SimPs::Command(const v1::CoordinatorMessage& message) {
  if (message.has_host_partitions()) {
    if (cluster_.options().bug == PlantedBug::kNone) return HostJob(message.host_partitions());
    v1::HostPartitions host = message.host_partitions();
    PlantInAssignment(host);
    HostJob(host);
    if (cluster_.options().bug == PlantedBug::kReportEarly) ReportEarly(host);
  } else if (message.has_figures_stored()) {
    const v1::FiguresStored& stored = message.figures_stored();
    partitions_->FiguresStored(JobId(stored.job_id()), stored.epochs(), stored.question());
  } else if (message.has_drop_job()) {
    const absl::Status dropped = partitions_->Drop(JobId(message.drop_job().job_id()));
    if (!dropped.ok() && fail_stop_.failed().ok()) world_.Fail(dropped.ToString());
  }
}

void SimPs::HostJob(const v1::HostPartitions& host) {
  if (host.has_rollback_to()) {
    const std::vector<v1::HeldPartitions> held = partitions_->Held();
    goes_back_ = std::none_of(held.begin(), held.end(), [&](const v1::HeldPartitions& h) {
      return h.job_id() == host.job_id() && h.generation() >= host.generation();
    });
  }
  if (host.job_id() > job_) {
    job_ = host.job_id();
    cores_.clear();
    serving_.clear();
  }
  absl::StatusOr<v1::PartitionsReady> ready = partitions_->Host(host);
  goes_back_ = false;
  if (absl::IsAborted(ready.status())) return;
  if (!ready.ok()) return JobFails(JobId(host.job_id()), Generation(host.generation()), ready.status());
  if (cluster_.options().bug == PlantedBug::kGoOnAlone) {
    hosted_ = host;
    if (alone_in_ == host.generation()) GoOnAlone();  // told the same again, it stays alone
  }
  for (v1::HeldPartition& held : *ready->mutable_partitions()) PlantInHeld(held);
  v1::NodeMessage message;
  *message.mutable_partitions_ready() = *std::move(ready);
  Say(std::move(message));
}

void SimPs::JobFails(JobId job, Generation generation, const absl::Status& status) {
  world_.Trace("%s: %s", name(), status.ToString());
  if (!fail_stop_.failed().ok()) return;  // the process ends, and says so
  v1::NodeMessage message;
  v1::JobError& error = *message.mutable_job_error();
  error.set_job_id(job.value);
  error.set_generation(generation.value);
  error.set_message(absl::StrFormat("ps \"%s\": %s", name(), status.ToString()));
  Say(std::move(message));
  if (!absl::IsResourceExhausted(status)) world_.Fail(status.ToString());
}

// ---- frames: as ExchangeService ----

void SimPs::OnFrame(const std::shared_ptr<PsClient>& client, Frame frame) {
  uint64_t token = 0;
  if (client != nullptr) {
    token = TokenOf(*client->stream);
    std::shared_ptr<PsClient>& known = clients_[token];
    if (known == nullptr || known->stream != client->stream) {
      known = client;
      client->stream->OnBroken(Stream::kListener, [this, token] {
        clients_.erase(token);
        partitions_->OnClientGone(token);
      });
    }
  }
  const auto core = cores_.find(frame.partition.value);
  if (cluster_.options().bug == PlantedBug::kSkipAlone && frame.kind == v1::ExchangeFrame::CLIP &&
      frame.partition.value == 0 && core != cores_.end() && core->second->config().loss_scale &&
      world_.rng.Chance(0.1)) {
    std::fill(frame.scalars.end() - sizeof(double), frame.scalars.end(), '\0');  // the factor of its last scope
  }
  partitions_->OnFrame(token, std::move(frame), nullptr);
}

void SimPs::Answer(uint64_t client, Frame frame) {
  auto found = clients_.find(client);
  if (found == clients_.end()) return;
  const std::shared_ptr<PsClient>& to = found->second;
  if (world_.tracing()) {
    world_.Trace("%s -> %s: %s", name(), to->stream->host(Stream::kDialer).name, Describe(frame));
  }
  to->stream->Send(Stream::kListener, [to, frame = CopyOverWire(frame)]() mutable { to->to_dialer(std::move(frame)); });
}

// ---- planted defects ----

void SimPs::DieSoon() {
  Later(absl::Milliseconds(20), [this] {
    End();
    world_.After(absl::Milliseconds(100), [this] { Start(); });
  });
}

void SimPs::PlantInAssignment(v1::HostPartitions& host) const {
  const PlantedBug bug = cluster_.options().bug;
  if (bug == PlantedBug::kStayAhead) host.clear_rollback_to();
  const int32_t left_out = host.spec().backup_replicas();
  if (bug == PlantedBug::kDropTooMany && left_out > 0 && left_out + 1 < host.spec().replicas()) {
    host.mutable_spec()->set_backup_replicas(left_out + 1);
  }
}

void SimPs::PlantInHeld(v1::HeldPartition& held) const {
  if (cluster_.options().bug == PlantedBug::kSayKept) held.set_in_memory(false);
}

// Backups that have caught up before they have.
void SimPs::ReportEarly(const v1::HostPartitions& host) {
  for (const v1::PartitionRange& range : host.partitions()) {
    for (const v1::BackupRoute& route : range.backups()) {
      if (route.in_sync()) continue;
      v1::NodeMessage message;
      v1::BackupReport& report = *message.mutable_backup_report();
      report.set_job_id(host.job_id());
      report.set_generation(host.generation());
      report.set_partition(range.partition());
      report.set_node(route.node());
      Later(absl::Milliseconds(20), [this, message] { Say(message); });
    }
  }
}

// A stream to a backup broke.
void SimPs::GoOnAlone() {
  if (cluster_.options().bug != PlantedBug::kGoOnAlone) return;
  alone_in_ = hosted_.generation();
  for (const v1::PartitionRange& range : hosted_.partitions()) {
    if (range.backups_size() > 0) cluster_.NotePlantedActed();
  }
  for (v1::PartitionRange& range : *hosted_.mutable_partitions()) range.clear_backups();
  control_->Post([this] { (void)partitions_->Host(hosted_); });
}

// Whom answers go to: a stream. Or, a defect: the newest stream from that host, which ends when any of them does.
uint64_t SimPs::TokenOf(Stream& stream) {
  if (cluster_.options().bug != PlantedBug::kMixStreams) return stream.id();
  return tokens_.try_emplace(&stream.host(Stream::kDialer), tokens_.size() + 1).first->second;
}

}  // namespace cairn::sim
