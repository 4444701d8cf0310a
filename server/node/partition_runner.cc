#include "server/node/partition_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace cairn {
namespace {

constexpr absl::Duration kTickInterval = absl::Seconds(1);

}  // namespace

PartitionRunner::PartitionRunner(Persistence& persistence, PartitionEnvironment environment,
                                 PartitionRunnerCallbacks callbacks)
    : persistence_(persistence),
      clock_(*environment.clock),
      callbacks_(std::move(callbacks)),
      observer_(environment.observer),
      trace_(environment.trace),
      backups_(std::move(environment.backups)),
      lanes_(environment.lanes.size()),
      disk_(std::move(environment.disk)) {
  for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].executor = std::move(environment.lanes[i]);
  for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].executor->PostAfter(kTickInterval, [this, i] { Tick(i); });
}

PartitionRunner::~PartitionRunner() { Stop(); }

void PartitionRunner::WaitForLanes() {
  for (Lane& lane : lanes_) lane.executor->RunAndWait([] {});
}

void PartitionRunner::Drain() {
  draining_ = true;
  WaitForLanes();
}

void PartitionRunner::Stop() {
  if (stopped_) return;
  stopped_ = true;
  draining_ = true;
  backups_->Close();
  disk_->Stop();  // first: what it has already posted to the lanes still runs
  for (Lane& lane : lanes_) lane.executor->Stop();
}

// ---- slots ----

PartitionSlotPtr PartitionRunner::NewSlot(PartitionConfig config) {
  auto slot = std::make_shared<PartitionSlot>();
  slot->config = std::move(config);
  slot->lane = next_lane_++ % lanes_.size();
  return slot;
}

void PartitionRunner::Post(const PartitionSlotPtr& slot, std::function<void()> task) {
  executor_of(*slot).Post(std::move(task));
}

absl::Status PartitionRunner::Open(const PartitionSlotPtr& slot, Generation generation) {
  if (slot->core != nullptr) return absl::OkStatus();
  slot->config.generation = generation;
  absl::StatusOr<PartitionState> state = persistence_.Open(slot->config);
  slot->status = state.status();
  if (!state.ok()) return state.status();
  if (observer_ != nullptr) observer_->OnRecovered(slot->config, *state);
  slot->core = std::make_unique<PartitionCore>(slot->config, *std::move(state));
  slot->version = slot->core->version();
  slot->backup = slot->config.backup;
  slot->at_rest = slot->core->at_rest();
  slot->failed = false;
  std::vector<PartitionSlotPtr>& slots = lanes_[slot->lane].slots;
  if (std::find(slots.begin(), slots.end(), slot) == slots.end()) slots.push_back(slot);
  if (observer_ != nullptr) observer_->OnOpened(*slot);
  return absl::OkStatus();
}

void PartitionRunner::Remove(const std::vector<PartitionSlotPtr>& slots) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].executor->RunAndWait([&] {
      for (const PartitionSlotPtr& slot : slots) {
        if (slot->lane != i) continue;
        slot->status = absl::NotFoundError(absl::StrCat(slot->config.Name(), " is not on this ps any more"));
        EndCore(*slot);
        std::erase(lanes_[i].slots, slot);
        TendBackupImages(slot);
      }
    });
  }
  disk_->RunAndWait([] {});
}

// slot.status holds the reason. Every caller that waits for an answer of the core gets it; otherwise a chief in the
// middle of a checkpoint would wait for ever.
void PartitionRunner::EndCore(PartitionSlot& slot) {
  if (slot.core == nullptr) return;
  if (observer_ != nullptr) observer_->OnEnding(slot);
  for (PartitionReply& reply : slot.core->End(slot.status)) callbacks_.reply(reply.client, std::move(reply.frame));
  slot.core.reset();
}

// ---- events ----

void PartitionRunner::Deliver(PartitionSlotPtr slot, uint64_t client, Frame frame, Credit credit) {
  Executor& executor = executor_of(*slot);
  executor.Post([this, slot = std::move(slot), client, frame = std::move(frame), credit = std::move(credit)]() mutable {
    if (slot->core == nullptr) {
      Refuse(client, frame, slot->status);
      return;
    }
    Run(slot, FrameEvent{client, std::move(frame)});
  });
}

void PartitionRunner::OnClientGone(uint64_t client) {
  for (Lane& lane : lanes_) {
    lane.executor->Post([this, &lane, client] {
      for (const PartitionSlotPtr& slot : lane.slots) Run(slot, ClientGoneEvent{client});
    });
  }
}

void PartitionRunner::Refuse(uint64_t client, const Frame& frame, const absl::Status& status) {
  Frame error;
  error.kind = v1::ExchangeFrame::ERROR;
  error.request_id = frame.request_id;
  error.job = frame.job;
  error.partition = frame.partition;
  error.status = status;
  callbacks_.reply(client, std::move(error));
}

void PartitionRunner::Tick(size_t lane) {
  const TickEvent tick{backups_->Peers()};
  for (const PartitionSlotPtr& slot : lanes_[lane].slots) Run(slot, tick);
  lanes_[lane].executor->PostAfter(kTickInterval, [this, lane] { Tick(lane); });
}

void PartitionRunner::Run(const PartitionSlotPtr& slot, PartitionEvent event) {
  if (slot->core == nullptr) return;
  // The sender of the frame, needed if the store fails.
  uint64_t client = 0;
  Frame request;
  if (const FrameEvent* f = std::get_if<FrameEvent>(&event)) {
    client = f->client;
    request.request_id = f->frame.request_id;
    request.job = f->frame.job;
    request.partition = f->frame.partition;
  }
  slot->image_turn = std::holds_alternative<TakeImageEvent>(event);

  if (observer_ != nullptr) observer_->OnEvent(*slot, event);
  const absl::Status stored = RunEvent(
      *slot->core, persistence_, std::move(event), clock_.Now(),
      [&](PartitionEffects& effects) {
        if (observer_ != nullptr) observer_->OnEffects(*slot, effects);
        CarryOut(slot, effects);
      },
      trace_);
  if (!stored.ok()) {
    StorageFailed(slot, stored);
    if (client != 0) Refuse(client, request, slot->status);
    return;
  }
  if (observer_ != nullptr) observer_->OnHandled(*slot);
  slot->version.store(slot->core->version());
  slot->backup.store(slot->core->config().backup);
  const bool was_in_memory = slot->in_memory.exchange(slot->core->in_memory());
  if (std::exchange(slot->image_turn, false)) NextImage();  // there was no image to write
  if (slot->core->image_due() && !std::exchange(slot->image_queued, true) && store_turns_.Queue(slot)) NextImage();
  TendBackupImages(slot);
  if (!slot->at_rest.exchange(slot->core->at_rest()) && slot->at_rest) callbacks_.at_rest(*slot);
  if (was_in_memory && !slot->in_memory && slot->core->config().keep) callbacks_.kept(*slot);
}

// The core is ahead of the store, or its state cannot be read from the store.
void PartitionRunner::StorageFailed(const PartitionSlotPtr& slot, const absl::Status& status) {
  const Generation generation = slot->core->generation();
  slot->status = absl::UnavailableError(absl::StrCat(slot->config.Name(), ": storage failed: ", status.message()));
  slot->failed = true;  // before anyone is notified
  EndCore(*slot);
  LogError("%s", slot->status.message());
  if (std::exchange(slot->image_turn, false)) NextImage();
  TendBackupImages(slot);
  callbacks_.storage_failed(*slot, generation, status);
}

}  // namespace cairn
