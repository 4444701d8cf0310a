#include "server/core/replication.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {

// ---- roles ----

absl::Status Replication::CheckServes() const {
  const PartitionConfig& config = copy_.config;
  if (config.backup) {
    return absl::NotFoundError(
        absl::StrCat(config.Name(), " has only a backup on this ps; wait for a new route from the coordinator"));
  }
  if (fenced_) {
    return absl::UnavailableError(absl::StrCat(config.Name(), ": a backup knows a newer assignment than generation ",
                                               config.generation.value, "; retry"));
  }
  return absl::OkStatus();
}

void Replication::Assign(const AssignEvent& event, bool newer, bool dropped) {
  assigned_ = true;
  if (newer) fenced_ = false;
  std::vector<BackupLink> links;
  for (const v1::BackupRoute& route : event.backups) {
    if (event.backup) break;
    auto same = std::find_if(links_.begin(), links_.end(), [&](const BackupLink& l) {
      return l.node() == route.node() && l.address() == route.address();
    });
    if (same == links_.end()) {
      links.emplace_back(route);
      copy_.effects.connect.push_back(route.address());
    } else {
      links.push_back(std::move(*same));
      links.back().Assign(route, newer, dropped);
    }
  }
  links_ = std::move(links);
}

bool Replication::Kept(uint64_t version) const {
  if (updates_.persisted_version() < version) return false;
  return std::all_of(links_.begin(), links_.end(),
                     [&](const BackupLink& l) { return !l.required() || l.has_confirmed(version); });
}

bool Replication::Settled() {
  const bool settled = settled_ || Kept(copy_.state.version);
  settled_ = settled && assigned_;
  return settled;
}

// ---- links ----

BackupLink* Replication::LinkOf(const std::string& address, uint64_t epoch) {
  auto link = std::find_if(links_.begin(), links_.end(),
                           [&](const BackupLink& l) { return l.address() == address && l.epoch() == epoch; });
  return link == links_.end() ? nullptr : &*link;
}

void Replication::OnLinkUp(const LinkUpEvent& event) {
  for (BackupLink& link : links_) {
    if (link.address() == event.address && event.epoch > link.epoch()) link.Up(event.epoch);
  }
}

void Replication::OnLinkDown(const LinkDownEvent& event) {
  if (BackupLink* link = LinkOf(event.address, event.epoch)) link->Down();
}

void Replication::OnAnswer(const PeerFrameEvent& event) {
  BackupLink* link = LinkOf(event.address, event.epoch);
  if (link == nullptr) return;
  const auto verdict = link->Answer(event.frame, copy_.config.generation, next_request_id_, copy_.now);
  if (verdict == BackupLink::Verdict::kFenced) fenced_ = true;
}

bool Replication::WantsImage(absl::Time now) const {
  return std::any_of(links_.begin(), links_.end(), [&](const BackupLink& l) { return l.wants_image(now); });
}

bool Replication::sending_image() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const BackupLink& l) { return l.stage() == BackupLink::Stage::kImage; });
}

void Replication::SendImages() {
  if (!WantsImage(copy_.now)) return;
  const Image image = MakeImage(copy_.config, copy_.state, {.previous = true});
  for (BackupLink& link : links_) {
    if (!link.wants_image(copy_.now)) continue;
    const uint64_t id = next_request_id_++;
    std::vector<Frame> frames = ImageFrames(copy_.config, image, id);
    size_t bytes = 0;
    for (const Frame& frame : frames) bytes += frame.payload.size();
    copy_.effects.sends.push_back({link.address(), link.epoch(), std::move(frames)});
    link.ImageSent(id, copy_.config.generation, copy_.state.version, bytes);
    for (Updates::Update& update : updates_.under_way()) Replicate(link, update);
  }
}

void Replication::SendAnew() {
  for (BackupLink& link : links_) {
    if (link.stage() != BackupLink::Stage::kDown) link.NeedImage(copy_.now);
  }
}

void Replication::Send(Updates::Update& update) {
  for (BackupLink& link : links_) {
    if (link.streaming()) Replicate(link, update);
  }
}

void Replication::Replicate(BackupLink& link, Updates::Update& update) {
  const v1::LogEntry& entry = update.entry;
  Frame f = copy_.MakeFrame(v1::ExchangeFrame::REPLICATE, next_request_id_++);
  f.version = entry.version();
  f.replica_first = ReplicaId(static_cast<int32_t>(entry.replica_first()));
  f.replica_count = entry.replica_count();
  f.sequence = entry.sequence();
  f.examples = entry.examples();
  f.learning_rate = entry.learning_rate();
  f.ema_overwrite = entry.ema_overwrite();
  f.scalars = entry.norms();
  f.loss_scale = entry.loss_scale();
  f.not_finite = entry.not_finite();
  if (entry.has_figures()) f.figures = entry.figures().SerializeAsString();
  f.dtype = DtypeOf(entry);
  f.payload = update.Packed(copy_.config);
  f.payload_total = f.payload.size();
  link.UpdateSent(f.request_id, f.generation, f.version, f.payload.size());
  PeerSend send{link.address(), link.epoch(), {}};
  send.frames.push_back(std::move(f));
  copy_.effects.sends.push_back(std::move(send));
}

void Replication::Report(const BackupLink& link, const BackupLink::Loss& loss) {
  v1::BackupReport report;
  report.set_job_id(copy_.config.job.value);
  report.set_generation(copy_.config.generation.value);
  report.set_partition(copy_.config.partition.value);
  report.set_node(link.node());
  report.set_version(link.acked());
  report.set_lost(loss.why);
  report.set_busy(loss.busy);
  copy_.effects.reports.push_back(std::move(report));
}

void Replication::OnTick(const TickEvent& event) {
  const absl::Duration gap = copy_.now - std::exchange(ticked_, copy_.now);
  for (BackupLink& link : links_) {
    // After a pause of this process answers may be waiting to be read.
    if (gap > kTickGapMax) link.Paused(gap);
    if (link.reported() && !link.in_sync() && link.stage() == BackupLink::Stage::kFollowing) Report(link);
  }
  if (fenced_ || copy_.now < report_lost_at_) return;
  for (const BackupLink& link : links_) {
    const auto peer = event.peers.find(link.address());
    const std::optional<BackupLink::Loss> loss =
        link.Lost(copy_.now, peer == event.peers.end() ? PeerState() : peer->second);
    if (!loss) continue;
    Report(link, *loss);
    report_lost_at_ = copy_.now + kReportLostEvery;
  }
}

void Replication::Tend() {
  const PartitionState& state = copy_.state;
  const absl::Time now = copy_.now;
  const size_t image_bytes = state.contents->image_bytes();
  absl::Time wake_at = absl::InfiniteFuture();
  for (BackupLink& link : links_) {
    // While an image is not due, everything that a following link has not confirmed is in flight, as required.
    if (link.wants_resend(now) && !fenced_) {
      if (link.has_confirmed(state.version)) {
        link.BeginResend(next_request_id_);
        for (Updates::Update& update : updates_.under_way()) {
          if (!link.has_confirmed(update.entry.version())) Replicate(link, update);
        }
      } else {
        link.NeedImage(now);
      }
    }
    if (!link.required() && link.streaming() && link.unconfirmed_bytes() > kLinkBytesMax(image_bytes)) {
      link.Overflow(now);
    }
    if (link.CatchUp(state.version, now)) Report(link);
    link.Watch(now);
    wake_at = std::min(wake_at, link.wake_at());
  }
  if (wake_at > now && wake_at != absl::InfiniteFuture()) copy_.WakeAt(wake_at);
}

}  // namespace cairn
