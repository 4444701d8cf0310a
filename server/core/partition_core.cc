#include "server/core/partition_core.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/overloaded.h"

namespace cairn {

PartitionCore::PartitionCore(PartitionConfig config, PartitionState state)
    : copy_(std::move(config), std::move(state)),
      images_(copy_),
      updates_(copy_, images_),
      replication_(copy_, updates_),
      figures_(copy_, updates_, replication_),
      step_(copy_, updates_, figures_),
      waiting_(copy_, updates_, replication_, step_),
      primary_(copy_, updates_, replication_, figures_, step_, waiting_),
      follower_(copy_, images_, updates_),
      restored_(copy_, images_, updates_, replication_),
      resting_(copy_) {
  const PartitionConfig& c = copy_.config;
  const PartitionState& s = copy_.state;
  CAIRN_CHECK(s.sequences.size() == c.replicas, "state of another job");
  if (c.ended && at_rest()) {
    images_.BeginAtRest();
    return;
  }
  CAIRN_CHECK(s.contents->trainable(c), "state of another partition or optimizer");
}

PartitionEffects PartitionCore::Step(PartitionEvent event, absl::Time now) {
  copy_.Begin(now);
  if (resting_.Wants(event, replication_.serves())) {
    resting_.Defer(std::move(event), waiting_.max());
  } else {
    Dispatch(std::move(event));
  }
  Advance();
  replication_.Tend();
  figures_.Tell();
  LetValuesRest();
  return std::move(copy_.effects);
}

void PartitionCore::Dispatch(PartitionEvent event) {
  std::visit(Overloaded{
                 [&](FrameEvent& e) { OnFrame(std::move(e)); },
                 [&](const AssignEvent& e) { OnAssign(e); },
                 [&](const LinkUpEvent& e) { replication_.OnLinkUp(e); },
                 [&](const LinkDownEvent& e) { replication_.OnLinkDown(e); },
                 [&](const PeerFrameEvent& e) { replication_.OnAnswer(e); },
                 [&](const SendImageEvent&) { replication_.SendImages(); },
                 [&](const PersistedEvent& e) { updates_.OnPersisted(e.version); },
                 [&](const ResetEvent& e) { OnReset(e); },
                 [&](const TakeImageEvent&) { images_.Take(activity()); },
                 [&](const ImageWrittenEvent& e) {
                   if (images_.OnWritten(e)) follower_.GiveAcks(e.version);
                 },
                 [&](LoadedEvent& e) {
                   for (PartitionEvent& waited : resting_.OnLoaded(std::move(e))) Dispatch(std::move(waited));
                 },
                 [&](const FiguresStoredEvent& e) { figures_.OnStored(e); },
                 [&](const ClientGoneEvent& e) { OnClientGone(e.client); },
                 [&](const TickEvent& e) { OnTick(e); },
             },
             event);
}

std::vector<PartitionReply> PartitionCore::End(const absl::Status& why) {
  std::vector<PartitionReply> replies = waiting_.End(why);
  for (PartitionReply& reply : resting_.End(why)) replies.push_back(std::move(reply));
  return replies;
}

// ---- requests ----

void PartitionCore::OnFrame(FrameEvent event) {
  const uint64_t request_id = event.frame.request_id;
  const absl::Status status = Handle(event.client, event.frame);
  if (!status.ok()) copy_.ReplyError(event.client, request_id, status);
}

absl::Status PartitionCore::Handle(uint64_t client, Frame& frame) {
  const PartitionConfig& c = copy_.config;
  if (frame.job != c.job || frame.partition != c.partition) {
    return absl::NotFoundError(
        absl::StrCat("job ", frame.job.value, " partition ", frame.partition.value, " reached ", c.Name()));
  }
  switch (frame.kind) {
    case v1::ExchangeFrame::PUSH: return primary_.Push(client, frame);
    case v1::ExchangeFrame::CLIP: return primary_.Clip(client, frame);
    case v1::ExchangeFrame::PULL: return primary_.Pull(client, frame);
    case v1::ExchangeFrame::SNAPSHOT: return primary_.Snapshot(client, frame);
    case v1::ExchangeFrame::REPLICATE:
      CAIRN_RETURN_IF_ERROR(copy_.CheckGeneration(frame.generation));
      if (c.backup) return follower_.TakeUpdate(client, frame);
      return absl::FailedPreconditionError(absl::StrCat(c.Name(), " is the primary here; it follows no other copy"));
    case v1::ExchangeFrame::IMAGE: return OnImageTensor(client, std::move(frame));
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("kind: ", static_cast<int>(frame.kind),
                       " is not a request; a ps takes PUSH, CLIP, PULL, SNAPSHOT, REPLICATE and IMAGE"));
  }
}

// From its primary, or from a checkpoint.
absl::Status PartitionCore::OnImageTensor(uint64_t client, Frame frame) {
  CAIRN_RETURN_IF_ERROR(copy_.CheckGeneration(frame.generation));
  const bool restored = !copy_.config.backup;
  CAIRN_ASSIGN_OR_RETURN(std::optional<Image> image, restored ? restored_.TakeTensor(client, std::move(frame))
                                                              : follower_.TakeImageTensor(client, std::move(frame)));
  if (!image) return absl::OkStatus();
  if (restored) {
    waiting_.FailAll(
        absl::UnavailableError(absl::StrCat(copy_.config.Name(), " is restored from a checkpoint; retry")));
  }
  Adopt(*std::move(image));
  if (restored) replication_.SendAnew();
  return absl::OkStatus();
}

void PartitionCore::Adopt(Image image) {
  copy_.state = StateFrom(copy_.config, image);
  updates_.StateReplaced();
  images_.StateReplaced();
  step_.Forget();
  figures_.TellAgain();
  // The last image of an ended job replaces the data in the store. It is written now; nothing waits for it.
  if (!copy_.config.ended) copy_.effects.reset = std::move(image);
}

void PartitionCore::OnReset(const ResetEvent& event) {
  if (event.version != version()) return;
  restored_.OnReset();
  follower_.GiveAcks(event.version);
}

void PartitionCore::OnClientGone(uint64_t client) {
  waiting_.OnClientGone(client);
  resting_.OnClientGone(client);
  follower_.OnClientGone(client);
  restored_.OnClientGone(client);
}

// ---- roles ----

void PartitionCore::OnAssign(const AssignEvent& event) {
  PartitionConfig& c = copy_.config;
  if (event.generation < c.generation) return;
  const bool newer = event.generation > c.generation;
  // A backup may have dropped its copy in a generation that this ps has not heard of, or because of the rollback.
  const bool dropped = event.goes_back || event.generation.value > c.generation.value + 1;
  c.generation = event.generation;
  if (event.ended && !c.ended) EndTraining();
  c.keep = event.keep;
  if (newer) {
    figures_.TellAgain();
    follower_.OnNewGeneration();
  }
  if (event.backup && !c.backup) {
    BecomeBackup();
  } else if (!event.backup && c.backup) {
    c.backup = false;
    replication_.BecomePrimary();
    follower_.Reset();
  }
  replication_.Assign(event, newer, dropped);
}

// Accepted updates are kept: they may be in the log. Incomplete ones are dropped; the new primary receives them again.
void PartitionCore::BecomeBackup() {
  copy_.config.backup = true;
  waiting_.FailAll(replication_.CheckServes());
  step_.Forget();
  follower_.Reset();
}

void PartitionCore::EndTraining() {
  images_.EndTraining();
  copy_.config.ended = true;
  waiting_.EndTraining();
  restored_.EndTraining();
  step_.Forget();
}

// ---- after every event ----

void PartitionCore::Advance() {
  const bool settled = replication_.was_settled();
  while (!updates_.empty() && replication_.Kept(version() + 1)) {
    updates_.ApplyNext();
    waiting_.Release();
    follower_.GiveAcks(version());
    images_.OnApplied(activity());
  }
  if (!settled && replication_.Settled()) waiting_.Release();
}

void PartitionCore::LetValuesRest() {
  const CopyActivity a = activity();
  const bool busy = a.updating || a.receiving || a.restoring || images_.writing() || waiting_.size() > 0;
  if (copy_.config.ended && !at_rest() && images_.has_final() && !busy) resting_.LetGo();
}

void PartitionCore::OnTick(const TickEvent& event) {
  replication_.OnTick(event);
  images_.OnTick();
  waiting_.OnTick();
}

}  // namespace cairn
