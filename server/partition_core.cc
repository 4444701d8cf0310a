#include "server/partition_core.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/overloaded.h"
#include "common/tensor/dtype.h"

namespace cairn {
namespace {

// A push's payload as float32, rounded as the job's gradients are: itself where it is, converted or (where it lies
// askew) copied. A client may send another type than the job's, and INT8 that nobody packed.
Buffer GradientOf(const PartitionConfig& config, Frame& frame) {
  if (frame.examples == 0) return {};
  Buffer out = std::exchange(frame.payload, {});
  const bool aligned = reinterpret_cast<uintptr_t>(out.data()) % alignof(float) == 0;
  const GradientRounding rounding = config.RoundingOf(frame.sequence), sent_as = rounding.As(frame.dtype);
  const bool rounds =
      !rounding.exact() &&
      (frame.dtype != config.wire || !IsRounded(sent_as, {out.data(), out.size()}, static_cast<size_t>(config.size())));
  if (frame.dtype != v1::FLOAT32 || !aligned || (rounds && !out.unique())) {
    const Buffer sent = std::move(out);
    out = Buffer::Allocate(static_cast<size_t>(config.size()) * sizeof(float));
    UnpackRounded(sent_as, {sent.data(), sent.size()}, out.mutable_floats());
  }
  if (rounds) {
    RoundGradient(rounding, {static_cast<uint32_t>(frame.replica_first.value), frame.replica_count},
                  out.mutable_floats());
  }
  return out;
}

}  // namespace

absl::StatusOr<v1::DataType> PartitionCore::ReplyType(const Frame& frame) {
  if (frame.reply_dtype == v1::DATA_TYPE_UNSPECIFIED) return v1::FLOAT32;
  if (SizeOf(frame.reply_dtype) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("reply_dtype: ", static_cast<int>(frame.reply_dtype),
                                                   " is no type of values; use FLOAT32, BFLOAT16 or FLOAT16"));
  }
  return frame.reply_dtype;
}

PartitionCore::PartitionCore(PartitionConfig config, PartitionState state)
    : config_(std::move(config)),
      state_(std::move(state)),
      pending_(config_.replicas),
      persisted_(state_.version),
      accepted_(state_.sequences),
      snapshots_(config_.image.snapshot_every),
      image_to_note_(state_.image_version) {
  CAIRN_CHECK(state_.sequences.size() == config_.replicas, "state of another job");
  if (config_.ended && at_rest()) {
    final_image_ = state_.version;
    return;
  }
  CAIRN_CHECK(state_.values.size() == static_cast<size_t>(config_.size()) * sizeof(float),
              "state of another partition");
  CAIRN_CHECK(state_.slots.size() == static_cast<size_t>(config_.optimizer.slots()), "state of another optimizer");
}

PartitionEffects PartitionCore::Step(PartitionEvent event, absl::Time now) {
  PartitionEffects effects;
  if (WantsValues(event)) {
    Defer(std::move(event), effects);
  } else {
    Dispatch(std::move(event), now, effects);
  }
  TendLinks(now, effects);
  TellFigures(now, effects);
  Rest();
  return effects;
}

void PartitionCore::Dispatch(PartitionEvent event, absl::Time now, PartitionEffects& effects) {
  std::visit(Overloaded{
                 [&](FrameEvent& e) { OnFrame(std::move(e), now, effects); },
                 [&](const AssignEvent& e) { OnAssign(e, effects); },
                 [&](const LinkUpEvent& e) { OnLinkUp(e); },
                 [&](const LinkDownEvent& e) { OnLinkDown(e, effects); },
                 [&](const PeerFrameEvent& e) { OnPeerFrame(e, now, effects); },
                 [&](const SendImageEvent&) { OnSendImage(now, effects); },
                 [&](const PersistedEvent& e) { OnPersisted(e, effects); },
                 [&](const ResetEvent& e) { OnReset(e, effects); },
                 [&](const TakeImageEvent&) { OnTakeImage(effects); },
                 [&](const ImageWrittenEvent& e) { OnImageWritten(e, effects); },
                 [&](LoadedEvent& e) { OnLoaded(std::move(e), now, effects); },
                 [&](const FiguresStoredEvent& e) {
                   DropStored(e.epochs, state_.figures);
                   figures_wanted_ = true;
                 },
                 [&](const ClientGoneEvent& e) { OnClientGone(e); },
                 [&](const TickEvent& e) { OnTick(e, now, effects); },
             },
             event);
}

void PartitionCore::OnClientGone(const ClientGoneEvent& event) {
  std::erase_if(waiters_, [&](const Waiter& w) { return w.client == event.client; });
  std::erase_if(deferred_, [&](const PartitionEvent& e) {
    const auto* deferred = std::get_if<FrameEvent>(&e);
    return deferred != nullptr && deferred->client == event.client;
  });
  follower_.ClientGone(event.client);
  if (restored_.receiving() && restored_.client() == event.client) restored_.Forget();
}

void PartitionCore::OnFrame(FrameEvent event, absl::Time now, PartitionEffects& effects) {
  Frame& frame = event.frame;
  const uint64_t request_id = frame.request_id;
  absl::Status status;
  if (frame.job != config_.job || frame.partition != config_.partition) {
    status = absl::NotFoundError(
        absl::StrCat("job ", frame.job.value, " partition ", frame.partition.value, " reached ", config_.Name()));
  } else if (frame.kind == v1::ExchangeFrame::PUSH) {
    status = Push(event.client, frame, now, effects);
  } else if (frame.kind == v1::ExchangeFrame::CLIP) {
    status = Clip(event.client, frame, now, effects);
  } else if (frame.kind == v1::ExchangeFrame::PULL) {
    status = Pull(event.client, frame, now, effects);
  } else if (frame.kind == v1::ExchangeFrame::REPLICATE) {
    status = TakeUpdate(event.client, frame, effects);
  } else if (frame.kind == v1::ExchangeFrame::IMAGE) {
    status = TakeImageTensor(event.client, std::move(frame), now, effects);
  } else if (frame.kind == v1::ExchangeFrame::SNAPSHOT) {
    status = Snapshot(event.client, frame, now, effects);
  } else {
    status = absl::InvalidArgumentError(
        absl::StrCat("kind: ", static_cast<int>(frame.kind),
                     " is no request; a ps takes PUSH, CLIP, PULL, SNAPSHOT, REPLICATE and IMAGE"));
  }
  if (!status.ok()) effects.replies.push_back(MakeError(event.client, request_id, status));
}

// ---- requests ----

absl::Status PartitionCore::CheckGeneration(Generation generation) const {
  if (generation < config_.generation) {
    return absl::FailedPreconditionError(absl::StrCat("generation ", generation.value,
                                                      " is fenced: the partition is in ", config_.generation.value,
                                                      "; wait for a new assignment"));
  }
  if (generation > config_.generation) {
    return absl::UnavailableError(absl::StrCat("generation ", generation.value,
                                               " has not reached this ps, which is in ", config_.generation.value,
                                               "; retry"));
  }
  return absl::OkStatus();
}

absl::Status PartitionCore::CheckPush(const Frame& f) const {
  const auto bad = [](auto... what) { return absl::InvalidArgumentError(absl::StrCat(what...)); };
  const TreeNode node{static_cast<uint32_t>(f.replica_first.value), f.replica_count};
  if (f.replica_first.value < 0 || !IsNode(node, config_.replicas)) {
    return bad("replica_first ", f.replica_first.value, ", replica_count ", f.replica_count,
               ": not a node of the summation tree of ", config_.replicas, " replicas");
  }
  if (config_.mode != UpdateMode::kSynchronous && f.replica_count != 1) {
    return bad("replica_count ", f.replica_count, ": an asynchronous job takes one replica a push");
  }
  if (f.sequence == 0) return bad("sequence: 0; the first update of a replica is 1");
  if (!std::isfinite(f.learning_rate) || f.learning_rate < 0) {
    return bad("learning_rate: ", f.learning_rate, " is not a number >= 0");
  }
  if (f.ema_overwrite && !config_.optimizer.ema) return bad("ema_overwrite: the job keeps no moving average");
  if (config_.loss_scale ? !IsLossScale(f.loss_scale) : f.loss_scale != 0 || f.not_finite) {
    return bad("loss_scale: ", f.loss_scale,
               config_.loss_scale ? ", but the job computes in FLOAT16; say the scale of its gradient, 1 to 2^24"
                                  : ", but the job has none");
  }
  if (f.not_finite && config_.mode == UpdateMode::kSynchronous) {
    return bad("not_finite: a synchronous job pushes its gradients as they are");
  }
  if (f.not_finite && f.examples > 0)
    return bad("not_finite: the gradient is left out; send examples = 0 and no payload");
  if (f.examples > kPushExamplesMax) return bad("examples: ", f.examples, " is more than ", kPushExamplesMax);
  if (f.examples == 0) {
    if (!f.payload.empty()) return bad("payload: ", f.payload.size(), " bytes with examples = 0; send none");
    return absl::OkStatus();
  }
  const size_t bytes = config_.GradientBytes(f.dtype);
  if (bytes == 0)
    return bad("dtype: ", static_cast<int>(f.dtype), " is not known; use FLOAT32, BFLOAT16, FLOAT16 or INT8");
  if (f.payload.size() != bytes) {
    return bad("payload: ", f.payload.size(), " bytes, but ", config_.Name(), " has ", config_.size(), " numbers (",
               bytes, " bytes as ", v1::DataType_Name(f.dtype), ")");
  }
  return absl::OkStatus();
}

absl::Status PartitionCore::Push(uint64_t client, Frame& frame, absl::Time now, PartitionEffects& effects) {
  CAIRN_RETURN_IF_ERROR(CheckGeneration(frame.generation));
  CAIRN_RETURN_IF_ERROR(CheckServes());
  CAIRN_RETURN_IF_ERROR(CheckTrains());
  CAIRN_RETURN_IF_ERROR(CheckPush(frame));
  Waiter w;
  CAIRN_ASSIGN_OR_RETURN(w.reply_dtype, ReplyType(frame));
  w.client = client;
  w.request_id = frame.request_id;
  w.since = now;
  w.is_push = true;
  w.wants_values = frame.reply_dtype != v1::DATA_TYPE_UNSPECIFIED;
  w.replica = frame.replica_first;
  w.shows_sequence = true;
  w.sequence = frame.sequence;
  w.clock_min = ClockMinFor(frame.sequence);
  CAIRN_RETURN_IF_ERROR(config_.mode == UpdateMode::kSynchronous ? AcceptSynchronous(frame, effects)
                                                                 : AcceptAsynchronous(frame, effects));
  return AnswerOrWait(std::move(w), effects);
}

absl::Status PartitionCore::AcceptSynchronous(Frame& frame, PartitionEffects& effects) {
  const uint64_t next = state_.version + 1;
  if (frame.sequence > next) {
    return absl::OutOfRangeError(absl::StrCat("sequence ", frame.sequence, ": ", config_.Name(), " is at version ",
                                              state_.version, " and waits for update ", next,
                                              "; pull its values and go on from there"));
  }
  if (frame.sequence < next || !in_flight_.empty() || measured_) return absl::OkStatus();  // applied, or complete
  CAIRN_ASSIGN_OR_RETURN(v1::EpochFigures figures, FiguresOf(frame));
  const OpenStep step{frame.learning_rate, figures.epoch()};
  if (open_ && *open_ != step) {
    return absl::InvalidArgumentError(absl::StrCat("learning_rate: ", step.learning_rate, ", epoch ", step.epoch,
                                                   ", but update ", next, " began with ", open_->learning_rate,
                                                   " in epoch ", open_->epoch, "; all replicas use the same"));
  }
  if (config_.loss_scale && frame.loss_scale != state_.loss_scale.scale) {  // of a history that was taken back
    return absl::OutOfRangeError(absl::StrCat("loss_scale: ", frame.loss_scale, ", but ", config_.Name(), " is at ",
                                              state_.loss_scale.scale, "; pull its values and go on from there"));
  }
  const TreeNode node{static_cast<uint32_t>(frame.replica_first.value), frame.replica_count};
  if (pending_.Holds(node)) return absl::OkStatus();

  ForgetPrevious();
  open_ = step;
  const uint64_t examples = frame.examples;
  const GradientRounding rounding = config_.RoundingOf(next);
  pending_.Add(node, {GradientOf(config_, frame), examples, std::move(figures)}, rounding);
  // Those who come later find the step closed, and get the present values.
  const bool closed = config_.backup_replicas > 0
                          ? pending_.replicas_held() + config_.backup_replicas >= config_.replicas
                          : pending_.complete();
  if (!closed) return absl::OkStatus();

  PendingSums::Sum root = pending_.complete() ? pending_.TakeRoot() : pending_.TakeAll(rounding);
  open_.reset();
  v1::LogEntry entry;
  if (root.figures.replica_steps() > 0) *entry.mutable_figures() = std::move(root.figures);
  entry.set_replica_first(0);
  entry.set_replica_count(config_.replicas);
  entry.set_sequence(next);
  entry.set_examples(root.examples);
  entry.set_learning_rate(frame.learning_rate);
  entry.set_ema_overwrite(frame.ema_overwrite);
  entry.set_loss_scale(frame.loss_scale);
  root.gradient = WithPenalty(std::move(root.gradient), root.examples);
  AcceptSum(std::move(entry), std::move(root), effects);
  return absl::OkStatus();
}

absl::Status PartitionCore::AcceptAsynchronous(Frame& frame, PartitionEffects& effects) {
  uint64_t& accepted = accepted_[frame.replica_first.value];
  if (frame.sequence <= accepted) return absl::OkStatus();
  if (frame.sequence > accepted + 1) {
    return absl::OutOfRangeError(absl::StrCat("sequence ", frame.sequence, ": the last update of replica ",
                                              frame.replica_first.value, " here is ", accepted, "; push update ",
                                              accepted + 1, " first"));
  }
  if (in_flight_.size() >= kUpdatesInFlightMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(config_.Name(), ": ", in_flight_.size(), " updates are on their way to the disk; retry"));
  }
  CAIRN_ASSIGN_OR_RETURN(v1::EpochFigures figures, FiguresOf(frame));
  ForgetPrevious();
  ++accepted;
  v1::LogEntry entry;
  if (figures.replica_steps() > 0) *entry.mutable_figures() = std::move(figures);
  entry.set_replica_first(static_cast<uint32_t>(frame.replica_first.value));
  entry.set_replica_count(1);
  entry.set_sequence(frame.sequence);
  entry.set_examples(frame.examples);
  entry.set_learning_rate(frame.learning_rate);
  entry.set_loss_scale(frame.loss_scale);
  entry.set_not_finite(frame.not_finite);
  // The average takes the values' place once in a step of the job: with the last of the replicas.
  entry.set_ema_overwrite(frame.ema_overwrite && std::all_of(accepted_.begin(), accepted_.end(),
                                                             [&](uint64_t a) { return a >= frame.sequence; }));
  Accept(std::move(entry), WithPenalty(GradientOf(config_, frame), frame.examples), effects);
  return absl::OkStatus();
}

Buffer PartitionCore::WithPenalty(Buffer gradient, uint64_t examples) const {
  if (config_.penalties.empty() || gradient.empty()) return gradient;
  if (!gradient.unique()) gradient = Buffer::CopyOf(gradient.data(), gradient.size());
  AddPenaltyGradient(config_.penalties, examples, state_.values.floats(), gradient.mutable_floats());
  return gradient;
}

void PartitionCore::Accept(v1::LogEntry entry, Buffer gradient, PartitionEffects& effects) {
  entry.set_generation(config_.generation.value);
  entry.set_version(state_.version + in_flight_.size() + 1);
  if (!gradient.empty() && config_.log_dtype() != v1::FLOAT32) entry.set_dtype(config_.log_dtype());
  in_flight_.push_back({std::move(entry), std::move(gradient), {}});
  InFlight& update = in_flight_.back();
  for (BackupLink& link : links_) {
    if (link.streaming()) Replicate(link, update, effects);
  }
  if (config_.durability == v1::SNAPSHOT) {
    persisted_ = update.entry.version();
    Advance(effects);
  } else {
    effects.persists.push_back({update.entry, update.Packed(config_), std::exchange(image_to_note_, 0)});
  }
}

void PartitionCore::ForgetPrevious() {
  state_.previous = {};
  for (Buffer& b : converted_) b = {};
}

absl::Status PartitionCore::Pull(uint64_t client, const Frame& frame, absl::Time now, PartitionEffects& effects) {
  if (frame.generation.value != 0) CAIRN_RETURN_IF_ERROR(CheckGeneration(frame.generation));
  CAIRN_RETURN_IF_ERROR(CheckServes());
  Waiter w;
  CAIRN_ASSIGN_OR_RETURN(w.reply_dtype, ReplyType(frame));
  w.client = client;
  w.request_id = frame.request_id;
  w.since = now;
  if (frame.replica_count > 0) {
    if (frame.replica_first.value < 0 || static_cast<uint32_t>(frame.replica_first.value) >= config_.replicas) {
      return absl::InvalidArgumentError(
          absl::StrCat("replica_first: ", frame.replica_first.value, "; the job has ", config_.replicas, " replicas"));
    }
    w.replica = frame.replica_first;
    w.shows_sequence = true;
    if (frame.replica_count == 1) w.clock_min = ClockMinFor(frame.sequence);
  }
  if (frame.want_version) {
    const uint64_t want = *frame.want_version;
    const bool previous_kept = !state_.previous.empty() && want + 1 == state_.version;
    if (want < state_.version && !previous_kept) {
      return absl::FailedPreconditionError(absl::StrCat("want_version ", want, " is gone: ", config_.Name(),
                                                        " is at version ", state_.version, "; pull anew"));
    }
    w.want_version = want;
  }
  return AnswerOrWait(std::move(w), effects);
}

// ---- the driver's events ----

void PartitionCore::OnPersisted(const PersistedEvent& event, PartitionEffects& effects) {
  CAIRN_CHECK(event.version <= state_.version + in_flight_.size(), "persisted what was never accepted");
  persisted_ = std::max(persisted_, event.version);
  Advance(effects);
}

void PartitionCore::Advance(PartitionEffects& effects) {
  while (!in_flight_.empty() && Kept(state_.version + 1)) {
    InFlight update = std::move(in_flight_.front());
    in_flight_.pop_front();
    update.packed = {};  // the update reuses its memory
    for (Buffer& b : converted_) b = {};
    ApplyEntry(config_, update.entry, std::move(update.gradient), state_);
    if (config_.mode == UpdateMode::kSynchronous) accepted_ = state_.sequences;
    ReleaseWaiters(effects);
    for (const Follower::Ack& ack : follower_.TakeUpTo(state_.version)) effects.replies.push_back(MakeAck(ack));
    if (config_.durability == v1::SNAPSHOT && snapshots_.Due(state_.version, image_under_way_.has_value()))
      OnTakeImage(effects);
  }
  if (!settled_ && Settled()) ReleaseWaiters(effects);
}

void PartitionCore::OnTick(const TickEvent& event, absl::Time now, PartitionEffects& effects) {
  ReportLinks(event, now, effects);
  image_failed_ = false;
  std::erase_if(waiters_, [&](const Waiter& w) {
    if (w.is_push || now - w.since < kPullWaitMax) return false;
    effects.replies.push_back(MakeError(
        w.client, w.request_id,
        absl::UnavailableError(absl::StrCat(config_.Name(), " is still at version ", state_.version, "; retry"))));
    return true;
  });
}

}  // namespace cairn
