// PartitionCore as the primary of its backups, and as a backup of its primary.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/tensor/dtype.h"
#include "server/partition_core.h"

namespace cairn {
namespace {

v1::LogEntry EntryOf(const Frame& f) {
  v1::LogEntry entry;
  entry.set_generation(f.generation.value);
  entry.set_version(f.version);
  entry.set_replica_first(static_cast<uint32_t>(f.replica_first.value));
  entry.set_replica_count(f.replica_count);
  entry.set_sequence(f.sequence);
  entry.set_examples(f.examples);
  entry.set_learning_rate(f.learning_rate);
  entry.set_ema_overwrite(f.ema_overwrite);
  entry.set_norms(f.scalars);
  entry.set_loss_scale(f.loss_scale);
  entry.set_not_finite(f.not_finite);
  if (f.examples > 0 && f.dtype != v1::FLOAT32) entry.set_dtype(f.dtype);
  if (!f.figures.empty() && !entry.mutable_figures()->ParseFromString(f.figures))
    entry.mutable_figures()->set_epoch(-1);
  return entry;
}

}  // namespace

// ---- roles ----

absl::Status PartitionCore::CheckServes() const {
  if (config_.backup) {
    return absl::NotFoundError(
        absl::StrCat(config_.Name(), " has only a backup on this ps; wait for a new route from the coordinator"));
  }
  if (fenced_) {
    return absl::UnavailableError(absl::StrCat(config_.Name(), ": a backup knows a newer assignment than generation ",
                                               config_.generation.value, "; retry"));
  }
  return absl::OkStatus();
}

void PartitionCore::OnAssign(const AssignEvent& event, PartitionEffects& effects) {
  if (event.generation < config_.generation) return;
  const bool newer = event.generation > config_.generation;
  // In a generation that this ps has not heard of a backup may have dropped its copy, and begun with a new one.
  const bool missed = event.generation.value > config_.generation.value + 1;
  config_.generation = event.generation;
  if (event.ended && !config_.ended) EndTraining(effects);
  config_.keep = event.keep;
  if (newer) {
    fenced_ = false;
    figures_wanted_ = true;
    follower_.NewGeneration();
  }
  if (event.backup && !config_.backup) {
    BecomeBackup(effects);
  } else if (!event.backup && config_.backup) {
    config_.backup = false;
    settled_ = false;
    follower_.Reset();
  }
  std::vector<BackupLink> links;
  for (const v1::BackupRoute& route : event.backups) {
    if (event.backup) break;
    auto same = std::find_if(links_.begin(), links_.end(), [&](const BackupLink& l) {
      return l.node() == route.node() && l.address() == route.address();
    });
    if (same == links_.end()) {
      links.emplace_back(route);
      effects.connect.push_back(route.address());
    } else {
      links.push_back(std::move(*same));
      links.back().Assign(route, newer, missed);
    }
  }
  links_ = std::move(links);
  Advance(effects);
}

// What was accepted stays: it may be in the log. What is not complete is forgotten; the new primary is told again.
void PartitionCore::BecomeBackup(PartitionEffects& effects) {
  config_.backup = true;
  for (const Waiter& w : waiters_) effects.replies.push_back(MakeError(w.client, w.request_id, CheckServes()));
  waiters_.clear();
  pending_ = PendingSums(config_.replicas);
  measured_.reset();
  open_.reset();
  follower_.Reset();
}

bool PartitionCore::Kept(uint64_t version) const {
  if (persisted_ < version) return false;
  return std::all_of(links_.begin(), links_.end(),
                     [&](const BackupLink& l) { return !l.required() || l.has_confirmed(version); });
}

bool PartitionCore::Settled() {
  settled_ = settled_ || Kept(state_.version);
  return settled_;
}

// ---- primary ----

BackupLink* PartitionCore::LinkOf(const std::string& address, uint64_t epoch) {
  auto link = std::find_if(links_.begin(), links_.end(),
                           [&](const BackupLink& l) { return l.address() == address && l.epoch() == epoch; });
  return link == links_.end() ? nullptr : &*link;
}

void PartitionCore::OnLinkUp(const LinkUpEvent& event) {
  for (BackupLink& link : links_) {
    if (link.address() == event.address && event.epoch > link.epoch()) link.Up(event.epoch);
  }
}

void PartitionCore::OnLinkDown(const LinkDownEvent& event, PartitionEffects& effects) {
  if (BackupLink* link = LinkOf(event.address, event.epoch)) link->Down();
  Advance(effects);  // one that was not named in sync is not waited for any more
}

void PartitionCore::OnPeerFrame(const PeerFrameEvent& event, absl::Time now, PartitionEffects& effects) {
  BackupLink* link = LinkOf(event.address, event.epoch);
  if (link == nullptr) return;
  const auto verdict = link->Answer(event.frame, config_.generation, next_peer_request_id_, now);
  if (verdict == BackupLink::Verdict::kFenced) fenced_ = true;
  Advance(effects);
}

bool PartitionCore::image_to_send(absl::Time now) const {
  return !ImageDeferred() &&
         std::any_of(links_.begin(), links_.end(), [&](const BackupLink& l) { return l.wants_image(now); });
}

bool PartitionCore::sending_image() const {
  return ImageDeferred() || std::any_of(links_.begin(), links_.end(),
                                        [](const BackupLink& l) { return l.stage() == BackupLink::Stage::kImage; });
}

void PartitionCore::OnSendImage(absl::Time now, PartitionEffects& effects) {
  if (!image_to_send(now)) return;
  const Image image = MakeImage(config_, state_, /*with_previous=*/true);
  for (BackupLink& link : links_) {
    if (!link.wants_image(now)) continue;
    const uint64_t id = next_peer_request_id_++;
    std::vector<Frame> frames = ImageFrames(config_, image, id);
    size_t bytes = 0;
    for (const Frame& frame : frames) bytes += frame.payload.size();
    effects.sends.push_back({link.address(), link.epoch(), std::move(frames)});
    link.ImageSent(id, config_.generation, state_.version, bytes);
    for (InFlight& update : in_flight_) Replicate(link, update, effects);
  }
}

void PartitionCore::Replicate(BackupLink& link, InFlight& update, PartitionEffects& effects) {
  Frame f;
  f.kind = v1::ExchangeFrame::REPLICATE;
  f.request_id = next_peer_request_id_++;
  f.job = config_.job;
  f.partition = config_.partition;
  f.generation = config_.generation;
  f.version = update.entry.version();
  f.replica_first = ReplicaId(static_cast<int32_t>(update.entry.replica_first()));
  f.replica_count = update.entry.replica_count();
  f.sequence = update.entry.sequence();
  f.examples = update.entry.examples();
  f.learning_rate = update.entry.learning_rate();
  f.ema_overwrite = update.entry.ema_overwrite();
  f.scalars = update.entry.norms();
  f.loss_scale = update.entry.loss_scale();
  f.not_finite = update.entry.not_finite();
  if (update.entry.has_figures()) f.figures = update.entry.figures().SerializeAsString();
  f.dtype = DtypeOf(update.entry);
  f.payload = update.Packed(config_);
  f.payload_total = f.payload.size();
  link.UpdateSent(f.request_id, f.generation, f.version, f.payload.size());
  PeerSend send{link.address(), link.epoch(), {}};
  send.frames.push_back(std::move(f));
  effects.sends.push_back(std::move(send));
}

void PartitionCore::Report(const BackupLink& link, PartitionEffects& effects, const BackupLink::Loss& loss) const {
  v1::BackupReport report;
  report.set_job_id(config_.job.value);
  report.set_generation(config_.generation.value);
  report.set_partition(config_.partition.value);
  report.set_node(link.node());
  report.set_version(link.acked());
  report.set_lost(loss.why);
  report.set_busy(loss.busy);
  effects.reports.push_back(std::move(report));
}

// Who has caught up and is not named in sync yet, again; and who is lost.
void PartitionCore::ReportLinks(const TickEvent& event, absl::Time now, PartitionEffects& effects) {
  const absl::Duration gap = now - std::exchange(ticked_, now);
  for (BackupLink& link : links_) {
    // After a pause of this process answers are waiting to be read.
    if (gap > kTickGapMax) link.Paused(gap);
    if (link.reported() && !link.in_sync() && link.stage() == BackupLink::Stage::kFollowing) Report(link, effects);
  }
  if (fenced_ || now < report_lost_at_) return;
  for (const BackupLink& link : links_) {
    const auto peer = event.peers.find(link.address());
    const std::optional<BackupLink::Loss> loss = link.Lost(now, peer == event.peers.end() ? PeerState() : peer->second);
    if (!loss) continue;
    Report(link, effects, *loss);
    report_lost_at_ = now + kReportLostEvery;
  }
}

// After every event: who has caught up, who fell too far behind, what is to be tried again.
void PartitionCore::TendLinks(absl::Time now, PartitionEffects& effects) {
  const size_t image_bytes = state_.values.size() * (1 + state_.slots.size());
  absl::Time wake_at = absl::InfiniteFuture();
  for (BackupLink& link : links_) {
    // Everything that a following link did not confirm is in in_flight_, where it is required; else an image is due.
    if (link.wants_resend(now) && !fenced_) {
      if (link.has_confirmed(state_.version)) {
        link.BeginResend(next_peer_request_id_);
        for (InFlight& update : in_flight_) {
          if (!link.has_confirmed(update.entry.version())) Replicate(link, update, effects);
        }
      } else {
        link.NeedImage(now);
      }
    }
    if (!link.required() && link.streaming() && link.unconfirmed_bytes() > kLinkBytesMax(image_bytes)) {
      link.Overflow(now);
    }
    if (link.CatchUp(state_.version, now)) Report(link, effects);
    link.Watch(now);
    wake_at = std::min(wake_at, link.wake_at());
  }
  if (wake_at > now && wake_at != absl::InfiniteFuture()) effects.wake_at = wake_at;
}

// ---- backup ----

PartitionReply PartitionCore::MakeAck(const Follower::Ack& ack) const {
  PartitionReply reply{ack.client, {}};
  Frame& f = reply.frame;
  f.kind = v1::ExchangeFrame::ACK;
  f.request_id = ack.request_id;
  f.job = config_.job;
  f.partition = config_.partition;
  f.generation = config_.generation;
  f.version = ack.version;
  return reply;
}

absl::Status PartitionCore::TakeImageTensor(uint64_t client, Frame frame, absl::Time now, PartitionEffects& effects) {
  CAIRN_RETURN_IF_ERROR(CheckGeneration(frame.generation));
  if (!config_.backup) return TakeRestoredTensor(client, std::move(frame), now, effects);
  if (image_under_way_) {
    return absl::UnavailableError(absl::StrCat(config_.Name(), ": an image is being stored; retry"));
  }
  const uint64_t request_id = frame.request_id;
  CAIRN_ASSIGN_OR_RETURN(std::optional<Image> image, follower_.AddTensor(config_, client, std::move(frame)));
  if (!image) return absl::OkStatus();
  follower_.Reset();
  follower_.Started(client);
  follower_.Owe({client, request_id, image->header.version()});
  Adopt(*std::move(image), effects);
  return absl::OkStatus();
}

void PartitionCore::OnReset(const ResetEvent& event, PartitionEffects& effects) {
  if (event.version != state_.version) return;
  if (restored_ack_) effects.replies.push_back(MakeAck(*std::exchange(restored_ack_, std::nullopt)));
  for (const Follower::Ack& ack : follower_.TakeUpTo(event.version)) effects.replies.push_back(MakeAck(ack));
}

absl::Status PartitionCore::TakeUpdate(uint64_t client, Frame& frame, PartitionEffects& effects) {
  CAIRN_RETURN_IF_ERROR(CheckGeneration(frame.generation));
  if (!config_.backup) {
    return absl::FailedPreconditionError(absl::StrCat(config_.Name(), " is the primary here; it follows nobody"));
  }
  CAIRN_RETURN_IF_ERROR(follower_.CheckSource(config_, client));
  const uint64_t accepted = state_.version + in_flight_.size();
  const Follower::Ack ack{client, frame.request_id, frame.version};
  if (frame.version > accepted + 1) {
    return absl::FailedPreconditionError(absl::StrCat(config_.Name(), ": update ", frame.version,
                                                      " does not follow version ", accepted,
                                                      "; begin again with an image"));
  }
  if (frame.version <= accepted) {
    if (frame.version <= state_.version || config_.durability == v1::REPLICATED) {
      effects.replies.push_back(MakeAck(ack));
    } else {
      follower_.Owe(ack);
    }
    return absl::OkStatus();
  }
  CAIRN_RETURN_IF_ERROR(CheckCanApply());
  v1::LogEntry entry = EntryOf(frame);
  if (frame.replica_first.value < 0 || !std::isfinite(frame.learning_rate) ||
      (frame.examples > 0 && BytesOf(frame.dtype, kSpaceAlignment) == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        config_.Name(), ": update ", frame.version,
        ": replica_first, learning_rate or dtype is not that of an update; all cairn-ps are to be of one version"));
  }
  const absl::Status fits = CheckEntry(config_, accepted, accepted_, entry, frame.payload.size());
  if (!fits.ok()) return absl::InvalidArgumentError(fits.message());
  if (config_.durability == v1::REPLICATED) {
    effects.replies.push_back(MakeAck(ack));
  } else {
    follower_.Owe(ack);
  }
  for (uint32_t r = 0; r < entry.replica_count(); ++r) accepted_[entry.replica_first() + r] = entry.sequence();
  Buffer packed = std::move(frame.payload), gradient = packed;
  if (DtypeOf(entry) != v1::FLOAT32 || reinterpret_cast<uintptr_t>(packed.data()) % alignof(float) != 0) {
    gradient = UnpackGradient(config_, entry, {packed.data(), packed.size()});
  }
  in_flight_.push_back({std::move(entry), std::move(gradient), std::move(packed)});
  InFlight& update = in_flight_.back();
  if (config_.durability ==
      v1::SNAPSHOT) {  // no log, here neither: recovery would take it for one that reaches further
    persisted_ = update.entry.version();
    Advance(effects);
  } else {
    effects.persists.push_back({update.entry, update.Packed(config_), std::exchange(image_to_note_, 0)});
  }
  return absl::OkStatus();
}

}  // namespace cairn
