// A simulated ps: what the checkers are told of its partitions.
#include <algorithm>

#include "tests/sim/sim_cluster.h"
#include "tests/sim/sim_ps.h"

namespace cairn::sim {

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
    on_disk_[partition] = PartitionState::Initial(core.config());  // where another checker alone is listened to
    return {name(), partition, core.generation().value, on_disk_[partition]};
  }
  return {name(), partition, core.generation().value, core.state()};
}

// Planted defects of a driver that begins with less than the store has.
void SimPs::OnRecovered(const PartitionConfig& config, PartitionState& state) {
  switch (cluster_.options().bug) {
    case PlantedBug::kForgetSequences: std::fill(state.sequences.begin(), state.sequences.end(), 0); break;
    case PlantedBug::kLoseFigures: state.figures.Clear(); break;
    case PlantedBug::kForgetScale:
      if (config.loss_scale) state.loss_scale = LossScale::Initial(*config.loss_scale);
      break;
    default: break;
  }
}

void SimPs::OnOpened(const PartitionSlot& slot) {
  if (!Watches(slot)) return;
  const uint32_t partition = slot.config.partition.value;
  world_.Trace("%s loads partition %d at version %d", name(), partition, slot.core->version());
  cores_[partition] = slot.core.get();
  serving_.erase(partition);
  const Copy copy = CopyOf(partition);
  cluster_.checkers().exactly_once.Changed(copy);
  cluster_.checkers().reference.Changed(copy);
}

void SimPs::OnEnding(const PartitionSlot& slot) {
  const auto core = cores_.find(slot.config.partition.value);
  if (core == cores_.end() || core->second != slot.core.get()) return;
  serving_.erase(core->first);
  cores_.erase(core);
}

void SimPs::OnEvent(const PartitionSlot& slot, const PartitionEvent& event) {
  if (!Watches(slot)) return;
  if (const auto* assign = std::get_if<AssignEvent>(&event)) return OnAssign(slot, *assign);
  const auto* f = std::get_if<FrameEvent>(&event);
  if (f == nullptr || f->frame.kind != v1::ExchangeFrame::IMAGE || slot.core->config().backup) return;
  if (f->frame.tensor + 1 == f->frame.tensors) {
    restoring_ = {slot.config.partition.value, f->client, f->frame.request_id, f->frame.generation};
  }
}

// Serving begins with the event: what is told before it is the last owner's word.
void SimPs::OnAssign(const PartitionSlot& slot, const AssignEvent& event) {
  const uint32_t partition = slot.config.partition.value;
  if (event.backup) return void(serving_.erase(partition));
  if (serving_.insert(partition).second || goes_back_)
    cluster_.OnServes(*this, partition, event.generation.value, goes_back_);
  cluster_.OnStillServes(partition, event.generation.value);
}

// What the checkers have to say about a step of the core and the state after it.
void SimPs::OnEffects(const PartitionSlot& slot, const PartitionEffects& effects) {
  if (!Watches(slot)) return;
  Checkers& checkers = cluster_.checkers();
  const uint32_t partition = slot.config.partition.value;
  if (restoring_ && restoring_->partition == partition) {
    const Restoring restoring = *restoring_;
    restoring_.reset();
    const bool refused = std::any_of(effects.replies.begin(), effects.replies.end(), [&](const PartitionReply& r) {
      return r.frame.kind == v1::ExchangeFrame::ERROR && r.client == restoring.client &&
             r.frame.request_id == restoring.request_id;
    });
    if (!refused) cluster_.OnRestored(*this, partition, restoring.generation.value);
  }
  for (const Persist& persist : effects.persists) checkers.exactly_once.Logged(name(), partition, persist.entry);
  const Copy copy = CopyOf(partition);
  checkers.exactly_once.Changed(copy);
  checkers.reference.Changed(copy);
  if (!slot.core->config().backup) cluster_.Updated(partition, slot.core->version());
  OnReplies(slot, effects);
}

void SimPs::OnReplies(const PartitionSlot& slot, const PartitionEffects& effects) {
  Checkers& checkers = cluster_.checkers();
  const PartitionCore& core = *slot.core;
  const uint32_t partition = slot.config.partition.value;
  for (const PartitionReply& reply : effects.replies) {
    const Frame& f = reply.frame;
    if (f.kind != v1::ExchangeFrame::VALUES) continue;
    if (!f.payload.empty()) checkers.reference.Answered(name(), partition, f.version, f.dtype, f.payload);
    if (f.version == core.version()) checkers.history.Answers(CopyOf(partition));
    if (f.replica_count > 0) {
      checkers.acknowledged.Told(partition, core.generation().value, f.version,
                                 static_cast<uint32_t>(f.replica_first.value), f.sequence);
    }
  }
}

void SimPs::OnHandled(const PartitionSlot& slot) {
  BoundsChecker& bounds = cluster_.checkers().bounds;
  const PartitionCore& core = *slot.core;
  bounds.Check(core);
  for (const BackupLink& link : core.links()) {
    bounds.Queue("bytes unconfirmed by a backup", link.unconfirmed_bytes(),
                 kLinkBytesMax(core.state().contents->image_bytes()));
  }
}

}  // namespace cairn::sim
