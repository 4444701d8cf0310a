// PartitionCore of a job that has ended (docs/architecture.md#persistence: its values are on the disk alone).
//
// Nobody trains it any more: pushes and checkpoints are refused, and its last image, of the values alone, takes the
// place of all that the store had of the partition. Then values and slots leave the memory: the partition is at rest. A
// request for values, or a backup that wants an image, has them loaded; they are let go of when nobody waits for them.
// What is on its way keeps its own reference to them.
//
// The slots are nowhere then. Who goes on from a job does so from its checkpoint, or from its weights (export).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/partition_core.h"

namespace cairn {

void PartitionCore::EndTraining(PartitionEffects& effects) {
  ends_even_ = config_.keep;  // all its steps were done before; else it ended in the middle of one
  config_.ended = true;
  const absl::Status ended = CheckTrains();
  std::erase_if(waiters_, [&](const Waiter& w) {
    if (!w.is_push && !w.is_snapshot && !WaitsForTraining(w)) return false;
    effects.replies.push_back(MakeError(w.client, w.request_id, ended));
    return true;
  });
  restored_.Forget();
  pending_ = PendingSums(config_.replicas);
  measured_.reset();
  open_.reset();
}

// For updates that are not made any more: beyond those that are on their way.
bool PartitionCore::WaitsForTraining(const Waiter& w) const {
  return w.clock_min > 0 || w.want_version.value_or(0) > state_.version + in_flight_.size();
}

absl::Status PartitionCore::CheckTrains() const {
  if (!config_.ended) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(config_.Name(), ": the job has ended; of its state the values alone are kept"));
}

// A backup of an ended job takes updates that its primary had accepted before the end, as long as it has the slots for
// them.
absl::Status PartitionCore::CheckCanApply() const {
  if (!config_.ended) return absl::OkStatus();
  if (image_under_way_)
    return absl::UnavailableError(absl::StrCat(config_.Name(), ": its last image is being stored; retry"));
  if (!at_rest() && state_.slots.size() == static_cast<size_t>(config_.optimizer.slots())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(config_.Name(), ": the job has ended and its slots are gone; begin again with an image"));
}

// Nothing changes the state, or is about to.
bool PartitionCore::Quiet() const {
  return in_flight_.empty() && !image_under_way_ && !follower_.receiving() && !restored_.receiving();
}

Image PartitionCore::FinalImage() const {
  Image image = MakeImage(config_, state_, /*with_previous=*/config_.mode == UpdateMode::kSynchronous && !ends_even_);
  const auto slots = image.tensors.begin() + 1;
  image.tensors.erase(slots, slots + image.header.slots());
  image.header.set_slots(0);
  return image;
}

void PartitionCore::Rest() {
  if (!config_.ended || at_rest() || final_image_ != state_.version || !waiters_.empty() || !Quiet()) return;
  state_.values = state_.previous = {};
  state_.slots.clear();
  for (Buffer& b : converted_) b = {};
}

// ---- at rest ----

bool PartitionCore::WantsValues(const PartitionEvent& event) const {
  if (!at_rest()) return false;
  if (std::holds_alternative<SendImageEvent>(event)) return true;
  const auto* f = std::get_if<FrameEvent>(&event);
  return f != nullptr && f->frame.kind == v1::ExchangeFrame::PULL && CheckServes().ok();
}

bool PartitionCore::ImageDeferred() const {
  return std::any_of(deferred_.begin(), deferred_.end(),
                     [](const PartitionEvent& e) { return std::holds_alternative<SendImageEvent>(e); });
}

void PartitionCore::Defer(PartitionEvent event, PartitionEffects& effects) {
  const auto* f = std::get_if<FrameEvent>(&event);
  if (f != nullptr && deferred_.size() >= WaitersMax()) {
    const absl::Status full = absl::ResourceExhaustedError(
        absl::StrCat(config_.Name(), ": ", deferred_.size(), " requests wait already; retry"));
    effects.replies.push_back(MakeError(f->client, f->frame.request_id, full));
    return;
  }
  deferred_.push_back(std::move(event));
  effects.load = !std::exchange(loading_, true);
}

void PartitionCore::OnLoaded(LoadedEvent event, absl::Time now, PartitionEffects& effects) {
  if (!std::exchange(loading_, false)) return;
  if (at_rest() && event.state.version != state_.version) {  // its primary sent another image meanwhile
    effects.load = loading_ = !deferred_.empty();
    return;
  }
  if (at_rest()) state_ = std::move(event.state);
  for (PartitionEvent& deferred : std::exchange(deferred_, {})) Dispatch(std::move(deferred), now, effects);
}

}  // namespace cairn
