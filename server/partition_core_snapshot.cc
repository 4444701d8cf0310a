// PartitionCore and checkpoints: the state of a primary goes out to a chief (SNAPSHOT), or comes in from one (IMAGE).
//
// Both copy nothing: an image shares its buffers with the state (partition_image.h), and an update copies what it would
// write into.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/partition_core.h"

namespace cairn {

absl::Status PartitionCore::Snapshot(uint64_t client, const Frame& frame, absl::Time now, PartitionEffects& effects) {
  if (frame.generation.value != 0) CAIRN_RETURN_IF_ERROR(CheckGeneration(frame.generation));
  CAIRN_RETURN_IF_ERROR(CheckServes());
  CAIRN_RETURN_IF_ERROR(CheckTrains());
  if (frame.want_version && *frame.want_version < state_.version) {
    return absl::FailedPreconditionError(absl::StrCat("want_version ", *frame.want_version,
                                                      " is gone: ", config_.Name(), " is at version ", state_.version,
                                                      "; ask for a later one"));
  }
  const auto waiting = std::count_if(waiters_.begin(), waiters_.end(), [](const Waiter& w) { return w.is_snapshot; });
  if (waiting >= kSnapshotsWaitingMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(config_.Name(), ": ", waiting, " snapshots are waited for already; retry"));
  }
  Waiter w;
  w.client = client;
  w.request_id = frame.request_id;
  w.since = now;
  w.is_snapshot = true;
  w.want_version = frame.want_version;
  return AnswerOrWait(std::move(w), effects);
}

void PartitionCore::Answer(const Waiter& w, PartitionEffects& effects) {
  if (!w.is_snapshot) {
    effects.replies.push_back(GetsNorms(w) ? MakeNorms(w) : MakeValues(w));
    return;
  }
  for (Frame& frame : ImageFrames(config_, MakeImage(config_, state_, /*with_previous=*/false), w.request_id)) {
    effects.replies.push_back({w.client, std::move(frame)});
  }
}

// The image takes the place of all that this copy has.
void PartitionCore::Adopt(Image image, PartitionEffects& effects) {
  in_flight_.clear();
  measured_.reset();
  for (Buffer& b : converted_) b = {};
  image_to_note_ = 0;
  state_ = StateFrom(config_, image);
  final_image_.reset();
  figures_wanted_ = true;
  accepted_ = state_.sequences;
  persisted_ = state_.version;
  image_synced_ = config_.keep && !config_.ended;
  if (!config_.ended)
    effects.reset = std::move(image);  // else the final image does, which is due now; nobody waits for it
}

// A checkpoint is restored. Which state it replaces does not matter: the coordinator, which raises the generation
// around it, asked for it.
absl::Status PartitionCore::TakeRestoredTensor(uint64_t client, Frame frame, absl::Time now,
                                               PartitionEffects& effects) {
  CAIRN_RETURN_IF_ERROR(CheckServes());
  CAIRN_RETURN_IF_ERROR(CheckTrains());
  if (image_under_way_ || !in_flight_.empty()) {
    return absl::UnavailableError(absl::StrCat(config_.Name(), ": its state is being stored; retry"));
  }
  const uint64_t request_id = frame.request_id;
  CAIRN_ASSIGN_OR_RETURN(std::optional<Image> image, restored_.Add(config_, client, std::move(frame)));
  if (!image) return absl::OkStatus();
  const absl::Status superseded =
      absl::UnavailableError(absl::StrCat(config_.Name(), " is restored from a checkpoint; retry"));
  for (const Waiter& w : waiters_) effects.replies.push_back(MakeError(w.client, w.request_id, superseded));
  waiters_.clear();
  pending_ = PendingSums(config_.replicas);
  open_.reset();
  restored_ack_ = {client, request_id, image->header.version()};
  Adopt(*std::move(image), effects);
  for (BackupLink& link : links_) {
    if (link.stage() != BackupLink::Stage::kDown) link.NeedImage(now);
  }
  return absl::OkStatus();
}

}  // namespace cairn
