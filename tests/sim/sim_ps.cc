#include "tests/sim/sim_ps.h"

#include <algorithm>
#include <set>

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
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return store_.Scan(prefix, fn);
  }

 private:
  KvStore& store_;
  const PlantedBug bug_;
  const std::function<bool()> loses_;
  const std::function<void()> dies_;
};

}  // namespace

SimPs::SimPs(SimCluster& cluster, int index, bool power_losses)
    : SimNode(cluster, absl::StrFormat("ps-%d", index)),
      disk_(std::make_unique<SimDisk>(power_losses)),
      planted_(std::make_unique<PlantedStore>(
          *disk_, cluster.options().bug,
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

void SimPs::OnStart() {
  LoadHeld();
  Tick();
}

void SimPs::OnEnd() {
  hosting_ = false;
  generation_.reset();
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

// Of a partition at rest what its disk has.
Copy SimPs::CopyOf(uint32_t partition) const {
  const PartitionCore& core = *cores_.at(partition);
  if (core.at_rest()) {
    absl::StatusOr<PartitionState> state = persistence_.Recover(core.config());
    if (state.ok() && state->version == core.version()) {
      return {name(), partition, core.generation().value, on_disk_[partition] = *std::move(state)};
    }
    world_.Fail(absl::StrFormat("at rest: %s, partition %d: version %d is not on its disk: %s", name(), partition,
                                core.version(),
                                state.ok() ? absl::StrCat("it has ", state->version) : state.status().ToString()));
  }
  return {name(), partition, core.generation().value, core.state()};
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
    return Refuse(token, frame,
                  hosting_ ? absl::NotFoundError("not here") : absl::UnavailableError("not assigned yet"));
  }
  if (frame.kind == v1::ExchangeFrame::IMAGE && !cores_.at(partition)->config().backup &&
      frame.tensor + 1 == frame.tensors) {
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

void SimPs::StoreFailed(uint32_t partition, const absl::Status& status) {
  const PartitionCore& core = *cores_.at(partition);
  const uint64_t generation = core.generation().value;
  failed_[partition] = {core.config().begin, core.config().end, core.version(), true};
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
      return r.frame.kind == v1::ExchangeFrame::ERROR && r.client == restoring_->client &&
             r.frame.request_id == restoring_->request_id;
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
      if (!f.payload.empty()) checkers.reference.Answered(name(), partition, f.version, f.dtype, f.payload);
      if (f.version == core.version()) checkers.history.Answers(CopyOf(partition));
      if (f.replica_count > 0) {
        checkers.acknowledged.Told(partition, core.generation().value, f.version,
                                   static_cast<uint32_t>(f.replica_first.value), f.sequence);
      }
    }
    Answer(r.client, std::move(r.frame));
  }
  for (v1::BackupReport& report : effects.reports) {
    v1::NodeMessage message;
    *message.mutable_backup_report() = std::move(report);
    Say(std::move(message));
  }
  if (effects.load) LoadValues(partition);
  if (effects.figures) {
    v1::NodeMessage message;
    *message.mutable_figures() = *std::move(effects.figures);
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
  Later(
      world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(50)),
      [this, partition, serial = serials_[partition], config = cores_[partition]->config(), image = std::move(image)] {
        if (!cores_.contains(partition) || serials_[partition] != serial) return;
        const absl::Status s = persistence_.WriteImage(config, image);
        if (!s.ok() && !disk_->failing()) return world_.Fail(s.ToString());
        Run(partition, ImageWrittenEvent{image.header.version(), s.ok()});
        TellKept();
      });
}

void SimPs::LoadValues(uint32_t partition) {
  Later(world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(20)),
        [this, partition, serial = serials_[partition]] {
          if (!cores_.contains(partition) || serials_[partition] != serial) return;
          absl::StatusOr<PartitionState> state = persistence_.Recover(cores_.at(partition)->config());
          if (!state.ok()) return StoreFailed(partition, state.status());
          Run(partition, LoadedEvent{*std::move(state)});
        });
}

void SimPs::Answer(uint64_t client, Frame frame) {
  auto found = clients_.find(client);
  if (found == clients_.end()) return;
  const std::shared_ptr<PsClient>& to = found->second;
  world_.Trace("%s -> %s: %s", name(), to->stream->host(Stream::kDialer).name, Describe(frame));
  to->stream->Send(Stream::kListener, [to, frame = CopyOverWire(frame)]() mutable { to->to_dialer(std::move(frame)); });
}

}  // namespace cairn::sim
