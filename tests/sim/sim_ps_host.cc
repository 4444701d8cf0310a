// A simulated ps: which partitions it holds: what its disk has, what the coordinator assigns, what is dropped. As
// PartitionHost, whose plan of an assignment it carries out.
#include <algorithm>
#include <utility>

#include "server/core/partition_config.h"
#include "server/node/assignment_plan.h"
#include "tests/sim/sim_cluster.h"
#include "tests/sim/sim_ps.h"

namespace cairn::sim {
namespace {

// Small, so that short jobs have several.
ImageOptions SmallImages() {
  ImageOptions image;
  image.log_bytes_min = 400;
  image.log_to_image_ratio = 2;
  image.snapshot_every = 4;
  return image;
}

}  // namespace

absl::StatusOr<PartitionConfig> SimPs::ConfigOf(const v1::HostPartitions& host, const v1::PartitionRange& range) const {
  CAIRN_ASSIGN_OR_RETURN(
      PartitionConfig config,
      MakePartitionConfig(host.spec(), cluster_.graph(), range, JobId(host.job_id()), Generation(host.generation())));
  config.image = SmallImages();
  config.ended = config.keep = host.ended();
  return config;
}

// As PartitionHost::LoadHeld: what the disk has, not served before the coordinator says so. Of several jobs the newest:
// the others could not be dropped.
void SimPs::LoadHeld() {
  const auto jobs = persistence_.ListHostedJobs();
  if (!jobs.ok()) return world_.Fail(jobs.status().ToString());
  if (jobs->empty()) return;
  const v1::HostPartitions& host = *std::max_element(
      jobs->begin(), jobs->end(), [](const auto& a, const auto& b) { return a.job_id() < b.job_id(); });
  job_ = host.job_id();
  generation_ = Generation(host.generation());
  for (const v1::PartitionRange& range : host.partitions()) {
    if (const absl::Status s = Load(host, range); !s.ok()) return world_.Fail(s.ToString());
  }
}

v1::HeldPartition SimPs::Held(const PartitionCore& core) const {
  const PartitionConfig& config = core.config();
  const uint64_t version = core.version();
  v1::HeldPartition held;
  held.set_partition(config.partition.value);
  held.set_version(version);
  held.set_backup(config.backup);
  held.set_in_memory(core.in_memory() && cluster_.options().bug != PlantedBug::kSayKept);
  if (const auto reach = persistence_.ReachOf(config, version); reach.ok()) {
    held.set_version_min(reach->version_min);
    for (uint64_t v : reach->versions) held.add_versions(v);
  } else {
    world_.Fail(reach.status().ToString());
  }
  return held;
}

v1::Hello SimPs::Hello() {
  v1::Hello hello;
  hello.set_name(name());
  hello.set_role(v1::PS);
  hello.set_address(address());
  hello.set_host(name());
  hello.set_incarnation(host_.process);
  if (!generation_) return hello;
  v1::HeldPartitions* held = hello.add_held();
  held->set_job_id(job_);
  held->set_generation(generation_->value);
  for (const auto& [partition, core] : cores_) *held->add_partitions() = Held(*core);
  return hello;
}

void SimPs::OnCommand(const v1::CoordinatorMessage& message) {
  if (message.has_welcome()) {  // the coordinator may not have heard of it
    if (failure_) Say(*failure_);
    kept_told_ = false;
    TellKept();
    if (hosting_) Run(0, FiguresStoredEvent{});
  }
  if (message.has_figures_stored() && message.figures_stored().job_id() == job_)
    Run(0, FiguresStoredEvent{message.figures_stored().epochs()});
  if (message.has_host_partitions()) HostJob(message.host_partitions());
  if (message.has_drop_job()) {
    if (message.drop_job().job_id() == job_) ForgetAll();
    const absl::Status dropped = persistence_.DropJob(JobId(message.drop_job().job_id()));
    if (!dropped.ok() && !disk_->failing()) world_.Fail(dropped.ToString());
  }
}

// As PartitionHost::Host.
void SimPs::HostJob(const v1::HostPartitions& host) {
  if (host.job_id() != job_) ForgetAll();  // the user submitted it anew, and the drop of the former one is lost
  std::map<uint32_t, PartitionInMemory> in_memory = failed_;
  for (const auto& [partition, core] : cores_)
    in_memory[partition] = {core->config().begin, core->config().end, core->version(), false};
  auto plan = PlanAssignment(host, generation_, in_memory);
  if (!plan.ok()) return;
  if (cluster_.options().bug == PlantedBug::kStayAhead) plan->ahead.clear();
  job_ = host.job_id();
  for (const uint32_t partition : plan->gone) TakeOut(partition, absl::NotFoundError("it is not on this ps any more"));
  for (const uint32_t partition : plan->ahead)
    TakeOut(partition, absl::NotFoundError("it goes back to an earlier version"));
  absl::Status done = TakeBack(
      *plan, [&](const v1::PartitionRange& range) { return ConfigOf(host, range); }, persistence_);
  if (done.ok()) done = persistence_.SetHostedJob(plan->stored);
  if (!done.ok()) return JobFails(host.generation(), done);
  std::vector<uint32_t> loaded;
  for (const v1::PartitionRange& range : host.partitions()) {
    if (cores_.contains(range.partition())) continue;
    done = Load(host, range);
    if (!done.ok()) break;
    loaded.push_back(range.partition());
  }
  if (!done.ok()) {
    for (const uint32_t partition : loaded) Forget(partition, done);
    if (cores_.empty() && failed_.empty()) generation_.reset();
    return JobFails(host.generation(), done);
  }
  failure_.reset();
  v1::NodeMessage reply;
  auto* ready = reply.mutable_partitions_ready();
  ready->set_job_id(host.job_id());
  ready->set_generation(host.generation());
  const bool served_before = std::exchange(hosting_, true);
  generation_ = Generation(host.generation());
  for (const v1::PartitionRange& range : host.partitions()) {
    const uint32_t partition = range.partition();
    const bool anew = std::find(loaded.begin(), loaded.end(), partition) != loaded.end();
    const bool served = served_before && !anew && !cores_.at(partition)->config().backup;
    AssignEvent assign{Generation(host.generation()),
                       range.backup(),
                       {range.backups().begin(), range.backups().end()},
                       host.keep(),
                       host.ended()};
    // Serving begins with the event: what is told before it is the last owner's word.
    if (!range.backup() && (!served || plan->back_to))
      cluster_.OnServes(*this, partition, host.generation(), plan->back_to.has_value());
    if (!range.backup()) cluster_.OnStillServes(partition, host.generation());
    Run(partition, std::move(assign));
    if (!cores_.contains(partition)) continue;  // its store failed, and that was told
    if (cluster_.options().bug == PlantedBug::kReportEarly) ReportEarly(host, range);
    *ready->add_partitions() = Held(*cores_.at(partition));
  }
  Say(std::move(reply));
  kept_told_ = false;
  TellKept();
}

// As PartitionHost::TellKept.
void SimPs::TellKept() {
  if (kept_told_ || !hosting_ || cores_.empty()) return;
  v1::NodeMessage message;
  v1::PartitionsReady& ready = *message.mutable_partitions_ready();
  ready.set_job_id(job_);
  ready.set_generation(generation_->value);
  for (const auto& [partition, core] : cores_) {
    if (!core->config().keep) return;
    if (core->config().backup) continue;
    if (core->in_memory()) return;
    *ready.add_partitions() = Held(*core);
  }
  kept_told_ = true;
  if (ready.partitions().empty()) return;
  Say(std::move(message));
}

// What a start from the disk alone would find.
uint64_t SimPs::VersionOnDisk(uint32_t partition) const {
  const auto jobs = persistence_.ListHostedJobs();
  if (!jobs.ok()) return 0;
  for (const v1::HostPartitions& host : *jobs) {
    for (const v1::PartitionRange& range : host.partitions()) {
      if (host.job_id() != job_ || range.partition() != partition) continue;
      const auto config = ConfigOf(host, range);
      const auto state = config.ok() ? persistence_.Recover(*config) : config.status();
      if (state.ok()) return state->version;
    }
  }
  return 0;
}

// A planted defect: backups that have caught up before they have.
void SimPs::ReportEarly(const v1::HostPartitions& host, const v1::PartitionRange& range) {
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

void SimPs::TakeOut(uint32_t partition, const absl::Status& why) {
  failed_.erase(partition);
  if (cores_.contains(partition)) Forget(partition, why);
}

void SimPs::ForgetAll() {
  while (!cores_.empty()) Forget(cores_.begin()->first, absl::NotFoundError("the job is dropped"));
  failed_.clear();
  failure_.reset();
  hosting_ = false;
  generation_.reset();
}

void SimPs::Forget(uint32_t partition, const absl::Status& why) {
  const std::unique_ptr<PartitionCore> core = std::move(cores_.at(partition));
  cores_.erase(partition);
  for (PartitionReply& reply : core->End(why)) Answer(reply.client, std::move(reply.frame));
}

absl::Status SimPs::Load(const v1::HostPartitions& host, const v1::PartitionRange& range) {
  CAIRN_ASSIGN_OR_RETURN(PartitionConfig config, ConfigOf(host, range));
  if (cluster_.options().bug == PlantedBug::kDropTooMany && config.backup_replicas > 0) ++config.backup_replicas;
  CAIRN_ASSIGN_OR_RETURN(PartitionState state, persistence_.Open(config));
  if (cluster_.options().bug == PlantedBug::kForgetSequences)
    std::fill(state.sequences.begin(), state.sequences.end(), 0);
  if (cluster_.options().bug == PlantedBug::kLoseFigures) state.figures.Clear();
  if (cluster_.options().bug == PlantedBug::kForgetScale && config.loss_scale)
    state.loss_scale = LossScale::Initial(*config.loss_scale);
  world_.Trace("%s loads partition %d at version %d", name(), range.partition(), state.version);
  serials_[range.partition()] = ++last_serial_;
  failed_.erase(range.partition());
  cores_[range.partition()] = std::make_unique<PartitionCore>(std::move(config), std::move(state));
  cluster_.checkers().exactly_once.Changed(CopyOf(range.partition()));
  cluster_.checkers().reference.Changed(CopyOf(range.partition()));
  return absl::OkStatus();
}

void SimPs::JobFails(uint64_t generation, const absl::Status& status) {
  world_.Trace("%s: %s", name(), status.ToString());
  v1::NodeMessage message;
  v1::JobError& error = *message.mutable_job_error();
  error.set_job_id(job_);
  error.set_generation(generation);
  error.set_message(absl::StrFormat("ps \"%s\": %s", name(), status.ToString()));
  failure_ = message;
  Say(std::move(message));
  if (!disk_->failing()) world_.Fail(status.ToString());
}

}  // namespace cairn::sim
