#include "tests/sim/sim_ps.h"

#include <algorithm>
#include <set>

#include "common/model/fault_check.h"
#include "server/partition_config.h"
#include "tests/sim/sim_cluster.h"

namespace cairn::sim {
namespace {

// A store with a planted defect.
class PlantedStore : public KvStore {
 public:
  // dies: the process ends soon, and what it did not store goes with it.
  PlantedStore(KvStore& store, PlantedBug bug, std::function<bool()> loses, std::function<void()> dies)
      : store_(store), bug_(bug), loses_(std::move(loses)), dies_(std::move(dies)) {}
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override { return store_.Get(key); }
  absl::Status Write(const KvBatch& batch, bool sync) override {
    if (bug_ == PlantedBug::kReplyBeforePersist && loses_()) return absl::OkStatus();
    const absl::Status written = store_.Write(batch, sync && bug_ != PlantedBug::kNoSync);
    if (bug_ != PlantedBug::kIgnoreDiskErrors || written.ok()) return written;
    dies_();
    return absl::OkStatus();
  }
  absl::Status Scan(std::string_view prefix, const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return store_.Scan(prefix, fn);
  }

 private:
  KvStore& store_;
  const PlantedBug bug_;
  const std::function<bool()> loses_;
  const std::function<void()> dies_;
};

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
      planted_(std::make_unique<PlantedStore>(*disk_, cluster.options().bug,
                                              [this] {
                                                // Lost writes: the process dies soon after, and takes them along.
                                                if (cores_.empty() || !world_.rng.Chance(0.02)) return false;
                                                DieSoon();
                                                return true;
                                              },
                                              [this] { DieSoon(); })),
      persistence_(cluster.options().bug == PlantedBug::kNone ? static_cast<KvStore&>(*disk_) : *planted_) {}

void SimPs::DieSoon() {
  Later(absl::Milliseconds(20), [this] {
    End();
    world_.After(absl::Milliseconds(100), [this] { Start(); });
  });
}

std::string SimPs::address() const { return absl::StrFormat("%s:%d", name(), host_.process); }

void SimPs::OnStart() { Tick(); }

void SimPs::OnEnd() {
  hosting_ = false;
  generation_ = 0;
  failure_.reset();
  failed_.clear();
  restoring_.reset();
  cores_.clear();
  clients_.clear();
  for (auto& [address, peer] : std::exchange(peers_, {})) {
    if (peer.exchange != nullptr) peer.exchange->Close();
  }
}

void SimPs::Tick() {
  std::set<uint32_t> partitions;
  for (auto& [partition, core] : cores_) partitions.insert(partition);
  for (uint32_t partition : partitions) Run(partition, TickEvent{});
  Later(absl::Seconds(1), [this] { Tick(); });
}

Copy SimPs::CopyOf(uint32_t partition) const {
  const PartitionCore& core = *cores_.at(partition);
  return {name(), partition, core.generation().value, core.state()};
}

// ---- the coordinator ----

v1::HeldPartition SimPs::Held(const PartitionConfig& config, uint64_t version, bool backup) const {
  v1::HeldPartition held;
  held.set_partition(config.partition.value);
  held.set_version(version);
  held.set_backup(backup);
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
  const auto jobs = persistence_.ListHostedJobs();
  if (!jobs.ok()) world_.Fail(jobs.status().ToString());
  for (const v1::HostPartitions& host : *jobs) {
    v1::HeldPartitions* held = hello.add_held();
    held->set_job_id(host.job_id());
    held->set_generation(host.generation());
    for (const v1::PartitionRange& range : host.partitions()) {
      auto core = cores_.find(range.partition());
      if (core != cores_.end()) {
        *held->add_partitions() = Held(core->second->config(), core->second->version(), core->second->config().backup);
        continue;
      }
      if (failed_.contains(range.partition())) continue;
      auto config = MakePartitionConfig(host.spec(), cluster_.graph(), range, JobId(host.job_id()), Generation(host.generation()));
      config->image = SmallImages();
      const auto state = persistence_.Recover(*config);
      if (!state.ok()) {
        world_.Fail(state.status().ToString());
        continue;
      }
      *held->add_partitions() = Held(*config, state->version, range.backup());
    }
  }
  return hello;
}

void SimPs::OnCommand(const v1::CoordinatorMessage& message) {
  if (message.has_welcome() && failure_) Say(*failure_);  // the coordinator may not have heard of it
  if (message.has_host_partitions()) HostJob(message.host_partitions());
  if (message.has_drop_job()) {
    while (!cores_.empty()) Forget(cores_.begin()->first, absl::NotFoundError("the job is dropped"));
    hosting_ = false;
    generation_ = 0;
    failed_.clear();
    const absl::Status dropped = persistence_.DropJob(JobId(message.drop_job().job_id()));
    if (!dropped.ok() && !disk_->failing()) world_.Fail(dropped.ToString());
  }
}

// As PartitionHost::Host.
void SimPs::HostJob(const v1::HostPartitions& host) {
  if (host.generation() < generation_) return;
  const bool newer = host.generation() > generation_;
  job_ = host.job_id();
  std::set<uint32_t> named;
  for (const v1::PartitionRange& range : host.partitions()) named.insert(range.partition());
  std::vector<uint32_t> gone;
  for (auto& [partition, core] : cores_) {
    if (!named.contains(partition)) gone.push_back(partition);
  }
  for (uint32_t partition : gone) Forget(partition, absl::NotFoundError("it is not on this ps any more"));
  if (auto s = persistence_.SetHostedJob(host); !s.ok()) return JobFails(host.generation(), s);
  generation_ = host.generation();
  hosting_ = true;
  failure_.reset();
  v1::NodeMessage reply;
  auto* ready = reply.mutable_partitions_ready();
  ready->set_job_id(host.job_id());
  ready->set_generation(host.generation());
  for (const v1::PartitionRange& range : host.partitions()) {
    const uint32_t partition = range.partition();
    auto core = cores_.find(partition);
    const bool back = host.has_rollback_to() && newer;
    const bool served = core != cores_.end() && !core->second->config().backup;
    if (back && core != cores_.end() && core->second->version() != host.rollback_to()) {
      Forget(partition, absl::NotFoundError("it goes back to an earlier version"));
      core = cores_.end();
    }
    if (!cores_.contains(partition)) {
      if (auto s = Load(host, range); !s.ok()) {
        failed_.insert(partition);
        return JobFails(host.generation(), s);
      }
    }
    AssignEvent assign{Generation(host.generation()), range.backup(), {range.backups().begin(), range.backups().end()}};
    // Serving begins with the event: what is told before it is the last owner's word.
    if (!range.backup() && (!served || back)) cluster_.OnServes(*this, partition, host.generation(), back);
    if (!range.backup()) cluster_.OnStillServes(partition, host.generation());
    Run(partition, std::move(assign));
    if (!cores_.contains(partition)) return;  // its store failed, and that was told
    if (cluster_.options().bug == PlantedBug::kReportEarly) {
      for (const v1::BackupRoute& route : range.backups()) {
        if (route.in_sync()) continue;
        v1::NodeMessage message;
        v1::BackupReport& report = *message.mutable_backup_report();
        report.set_job_id(host.job_id());
        report.set_generation(host.generation());
        report.set_partition(partition);
        report.set_node(route.node());
        Later(absl::Milliseconds(20), [this, message] { Say(message); });
      }
    }
    const PartitionCore& now = *cores_.at(partition);
    *ready->add_partitions() = Held(now.config(), now.version(), range.backup());
  }
  Say(std::move(reply));
}

void SimPs::Forget(uint32_t partition, const absl::Status& why) {
  const std::unique_ptr<PartitionCore> core = std::move(cores_.at(partition));
  cores_.erase(partition);
  for (PartitionReply& reply : core->End(why)) Answer(reply.client, std::move(reply.frame));
}

absl::Status SimPs::Load(const v1::HostPartitions& host, const v1::PartitionRange& range) {
  CAIRN_ASSIGN_OR_RETURN(PartitionConfig config, MakePartitionConfig(host.spec(), cluster_.graph(), range, JobId(host.job_id()),
                                                                     Generation(host.generation())));
  config.image = SmallImages();
  if (cluster_.options().bug == PlantedBug::kDropTooMany && config.backup_replicas > 0) ++config.backup_replicas;
  if (host.has_rollback_to() && !range.backup()) CAIRN_RETURN_IF_ERROR(persistence_.RollBack(config, host.rollback_to()));
  CAIRN_ASSIGN_OR_RETURN(PartitionState state, persistence_.Recover(config));
  if (cluster_.options().bug == PlantedBug::kForgetSequences) std::fill(state.sequences.begin(), state.sequences.end(), 0);
  if (cluster_.options().bug == PlantedBug::kForgetScale && config.loss_scale) state.loss_scale = LossScale::Initial(*config.loss_scale);
  world_.Trace("%s loads partition %d at version %d", name(), range.partition(), state.version);
  serials_[range.partition()] = ++last_serial_;
  failed_.erase(range.partition());
  cores_[range.partition()] = std::make_unique<PartitionCore>(std::move(config), std::move(state));
  cluster_.checkers().exactly_once.Changed(CopyOf(range.partition()));
  cluster_.checkers().reference.Changed(CopyOf(range.partition()));
  return absl::OkStatus();
}

// ---- frames ----

void SimPs::OnFrame(const std::shared_ptr<PsClient>& client, Frame frame) {
  uint64_t token = 0;
  if (client != nullptr) {
    token = client->stream->id();
    if (clients_.emplace(token, client).second) {
      client->stream->OnBroken(Stream::kListener, [this, token] {
        clients_.erase(token);
        std::set<uint32_t> partitions;
        for (auto& [partition, core] : cores_) partitions.insert(partition);
        for (uint32_t partition : partitions) Run(partition, ClientGoneEvent{token});
      });
    }
  }
  const uint32_t partition = frame.partition.value;
  if (!hosting_ || !cores_.contains(partition)) {
    return Refuse(token, frame, hosting_ ? absl::NotFoundError("not here") : absl::UnavailableError("not assigned yet"));
  }
  if (frame.kind == v1::ExchangeFrame::IMAGE && !cores_.at(partition)->config().backup && frame.tensor + 1 == frame.tensors) {
    restoring_ = {token, frame.request_id, frame.generation};
  }
  if (cluster_.options().bug == PlantedBug::kSkipAlone && frame.kind == v1::ExchangeFrame::CLIP && partition == 0 &&
      cores_.at(partition)->config().loss_scale && world_.rng.Chance(0.1)) {
    std::fill(frame.scalars.end() - sizeof(double), frame.scalars.end(), '\0');  // the factor of its last scope
  }
  Run(partition, FrameEvent{token, std::move(frame)});
  restoring_.reset();
}

void SimPs::Refuse(uint64_t client, const Frame& request, const absl::Status& status) {
  Frame error;
  error.kind = v1::ExchangeFrame::ERROR;
  error.request_id = request.request_id;
  error.partition = request.partition;
  error.status = status;
  Answer(client, std::move(error));
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

void SimPs::StoreFailed(uint32_t partition, const absl::Status& status) {
  const uint64_t generation = cores_.at(partition)->generation().value;
  failed_.insert(partition);
  Forget(partition, absl::UnavailableError(status.message()));
  JobFails(generation, status);
}

void SimPs::Run(uint32_t partition, PartitionEvent event) {
  auto found = cores_.find(partition);
  if (found == cores_.end()) return;
  PartitionCore& core = *found->second;
  std::optional<Image> image;
  std::optional<std::pair<uint64_t, Frame>> request;
  if (const auto* f = std::get_if<FrameEvent>(&event)) {
    request.emplace(f->client, Frame());
    request->second.request_id = f->frame.request_id;
    request->second.partition = f->frame.partition;
  }
  const absl::Status stored = RunEvent(core, persistence_, std::move(event), Now(), [&](PartitionEffects& effects) {
    CarryOut(partition, effects);
    if (effects.image) image = std::move(effects.image);
  });
  if (!stored.ok()) {
    if (request) Refuse(request->first, request->second, absl::UnavailableError(stored.message()));
    return StoreFailed(partition, stored);
  }
  cluster_.checkers().bounds.Check(core);
  for (const BackupLink& link : core.links()) {
    cluster_.checkers().bounds.Queue("bytes unconfirmed by a backup", link.unconfirmed_bytes(),
                                     kLinkBytesMax(core.state().values.size() * (1 + core.state().slots.size())));
  }
  if (image) {
    WriteImage(partition, *std::move(image));
  } else if (core.image_due()) {
    Run(partition, TakeImageEvent{});
  }
  NextImage();
}

// The effects of one step, and what the checkers have to say about the state after it.
void SimPs::CarryOut(uint32_t partition, PartitionEffects& effects) {
  Checkers& checkers = cluster_.checkers();
  const PartitionCore& core = *cores_.at(partition);
  if (restoring_) {
    const bool refused = std::any_of(effects.replies.begin(), effects.replies.end(), [&](const PartitionReply& r) {
      return r.frame.kind == v1::ExchangeFrame::ERROR && r.client == restoring_->client && r.frame.request_id == restoring_->request_id;
    });
    if (!refused) cluster_.OnRestored(*this, partition, restoring_->generation.value);
    restoring_.reset();
  }
  for (const Persist& persist : effects.persists) checkers.exactly_once.Logged(name(), partition, persist.entry);
  checkers.exactly_once.Changed(CopyOf(partition));
  checkers.reference.Changed(CopyOf(partition));
  if (!core.config().backup) cluster_.Updated(partition, core.version());
  for (PeerSend& send : effects.sends) SendToPeer(partition, std::move(send));
  for (PartitionReply& r : effects.replies) {
    const Frame& f = r.frame;
    if (f.kind == v1::ExchangeFrame::VALUES) {
      if (!f.payload.empty()) checkers.reference.Answered(name(), partition, f.version, f.payload);
      if (f.version == core.version()) checkers.history.Answers(CopyOf(partition));
      if (f.replica_count > 0) {
        checkers.acknowledged.Told(partition, core.generation().value, f.version, static_cast<uint32_t>(f.replica_first.value), f.sequence);
      }
    }
    Answer(r.client, std::move(r.frame));
  }
  for (v1::BackupReport& report : effects.reports) {
    v1::NodeMessage message;
    *message.mutable_backup_report() = std::move(report);
    Say(std::move(message));
  }
  for (const std::string& address : effects.connect) {
    Later(absl::ZeroDuration(), [this, address] { Connect(address); });
  }
  if (effects.wake_at) {
    Later(std::max(absl::ZeroDuration(), *effects.wake_at - Now()) + absl::Nanoseconds(1),
          [this, partition] { Run(partition, TickEvent{}); });
  }
}

void SimPs::WriteImage(uint32_t partition, Image image) {
  Later(world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(50)),
        [this, partition, serial = serials_[partition], image = std::move(image)] {
          if (!cores_.contains(partition) || serials_[partition] != serial) return;
          const absl::Status s = persistence_.WriteImage(cores_[partition]->config(), image);
          if (!s.ok() && !disk_->failing()) return world_.Fail(s.ToString());
          Run(partition, ImageWrittenEvent{image.header.version(), s.ok()});
        });
}

void SimPs::Answer(uint64_t client, Frame frame) {
  auto found = clients_.find(client);
  if (found == clients_.end()) return;
  const std::shared_ptr<PsClient>& to = found->second;
  world_.Trace("%s -> %s: %s", name(), to->stream->host(Stream::kDialer).name, Describe(frame));
  to->stream->Send(Stream::kListener, [to, frame = CopyOverWire(frame)]() mutable { to->to_dialer(std::move(frame)); });
}

// ---- backups ----

bool SimPs::Wanted(const std::string& address) const {
  for (const auto& [partition, core] : cores_) {
    for (const BackupLink& link : core->links()) {
      if (link.address() == address) return true;
    }
  }
  return false;
}

void SimPs::Connect(const std::string& address) {
  Peer& peer = peers_[address];
  if (peer.exchange == nullptr) return DialPeer(address);
  if (!peer.up) return;
  std::set<uint32_t> partitions;
  for (auto& [partition, core] : cores_) partitions.insert(partition);
  for (uint32_t partition : partitions) Run(partition, LinkUpEvent{address, peer.epoch});
}

void SimPs::DialPeer(const std::string& address) {
  Peer& peer = peers_[address];
  if (peer.exchange != nullptr) return;
  if (!Wanted(address)) {
    peers_.erase(address);
    return;
  }
  const auto again = [this, address] {
    Later(world_.rng.Between(absl::Milliseconds(50), absl::Milliseconds(500)), [this, address] { DialPeer(address); });
  };
  SimPs* ps = cluster_.FindPs(address);
  if (ps == nullptr) return again();
  peer.exchange = std::make_shared<Exchange>(world_, cluster_.network(), host_, ps);
  peer.exchange->GiveErrorFrames();
  peer.epoch = ++last_epoch_;
  peer.up = false;
  peer.exchange->OnBroken([this, address, epoch = peer.epoch, again] {
    auto found = peers_.find(address);
    if (found == peers_.end() || found->second.epoch != epoch) return;
    found->second.exchange = nullptr;
    found->second.up = false;
    std::set<uint32_t> partitions;
    for (auto& [partition, core] : cores_) partitions.insert(partition);
    for (uint32_t partition : partitions) {
      Run(partition, LinkDownEvent{address, epoch});
      auto core = cores_.find(partition);
      if (cluster_.options().bug == PlantedBug::kGoOnAlone && core != cores_.end() && !core->second->config().backup) {
        Run(partition, AssignEvent{core->second->generation(), false, {}});
      }
    }
    again();
  });
  peer.exchange->Open();
  Later(world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(20)), [this, address, epoch = peer.epoch] {
    auto found = peers_.find(address);
    if (found == peers_.end() || found->second.epoch != epoch || found->second.exchange == nullptr) return;
    found->second.up = true;
    Connect(address);
  });
}

void SimPs::SendToPeer(uint32_t partition, PeerSend send) {
  auto found = peers_.find(send.address);
  if (found == peers_.end() || found->second.epoch != send.epoch || found->second.exchange == nullptr) return;
  const uint64_t request_id = send.frames.front().request_id;
  if (cluster_.options().bug == PlantedBug::kBelieveUnconfirmed && send.frames.front().kind == v1::ExchangeFrame::REPLICATE) {
    Frame ack = send.frames.front();
    ack.kind = v1::ExchangeFrame::ACK;
    ack.payload = {};
    Later(absl::ZeroDuration(), [this, partition, address = send.address, epoch = send.epoch, ack] {
      Run(partition, PeerFrameEvent{address, epoch, ack});
    });
  }
  found->second.exchange->SendAll(
      std::move(send.frames), [this, partition, request_id, address = send.address, epoch = send.epoch,
                               serial = serials_[partition]](absl::StatusOr<Frame> answer) {
        auto peer = peers_.find(address);
        if (!answer.ok() || peer == peers_.end() || peer->second.epoch != epoch) return;  // LinkDownEvent says it
        if (!cores_.contains(partition) || serials_[partition] != serial) return;         // another core's
        answer->request_id = request_id;
        Run(partition, PeerFrameEvent{address, epoch, *std::move(answer)});
      });
}

// One partition's image at a time is on its way.
void SimPs::NextImage() {
  for (const auto& [partition, core] : cores_) {
    if (core->sending_image()) return;
  }
  for (const auto& [partition, core] : cores_) {
    if (core->image_to_send(Now())) return Run(partition, SendImageEvent{});
  }
}

}  // namespace cairn::sim
