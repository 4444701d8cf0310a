#include "server/node/partition_host.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/base/thread_priority.h"
#include "server/node/partition_slot.h"

namespace cairn {
namespace {

constexpr absl::Duration kTickInterval = absl::Seconds(1);
// Memory of ended jobs to the system: each time the allocator looks through all that is free.
constexpr absl::Duration kGiveBackEvery = absl::Seconds(1);

}  // namespace

PartitionHost::PartitionHost(KvStore& store, Clock& clock, int threads, PartitionHostCallbacks callbacks)
    : store_(store), clock_(clock), persistence_(store), callbacks_(std::move(callbacks)), backups_(clock) {
  lanes_.resize(std::max(threads, 1));
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].executor = std::make_unique<SerialExecutor>(absl::StrFormat("partitions-%d", i));
    lanes_[i].executor->PostAfter(kTickInterval, [this, i] { Tick(i); });
  }
  image_writer_ = std::make_unique<SerialExecutor>("images");
  image_writer_->Post(LowerThreadPriority);  // an image that is written later delays no step
}

PartitionHost::~PartitionHost() { Stop(); }

absl::Status PartitionHost::NoteFault(absl::Status status) {
  if (!status.ok()) {
    absl::MutexLock lock(&mutex_);
    if (fault_.empty()) fault_ = std::string(status.message());
  }
  return status;
}

std::string PartitionHost::fault() const {
  absl::MutexLock lock(&mutex_);
  return fault_;
}

void PartitionHost::Drain() {
  draining_ = true;
  for (Lane& lane : lanes_) lane.executor->RunAndWait([] {});
}

void PartitionHost::Stop() {
  if (stopped_) return;
  stopped_ = true;
  draining_ = true;
  backups_.Close();
  image_writer_->Stop();  // first: what it posts to the lanes yet is run by them
  for (Lane& lane : lanes_) lane.executor->Stop();
}

// ---- frames ----

void PartitionHost::OnFrame(uint64_t client, Frame frame, Credit credit) {
  std::shared_ptr<Slot> slot;
  absl::Status refused;
  if (draining_.load()) {
    refused = absl::UnavailableError("the ps is stopping; retry");
  } else {
    absl::ReaderMutexLock lock(&mutex_);
    auto job = jobs_.find(frame.job.value);
    if (job != jobs_.end() && !job->second.assigned) {
      refused = absl::UnavailableError(
          absl::StrFormat("job %d: this ps has restarted and waits for the coordinator; retry", frame.job.value));
    } else if (job != jobs_.end()) {
      auto it = job->second.slots.find(frame.partition.value);
      if (it != job->second.slots.end()) slot = it->second;
    }
  }
  if (refused.ok() && slot == nullptr) {
    refused = absl::NotFoundError(absl::StrFormat("job %d partition %d is not on this ps; wait for a new route",
                                                  frame.job.value, frame.partition.value));
  }
  if (!refused.ok()) {
    Refuse(client, frame, refused);
    return;
  }
  SerialExecutor& executor = *lanes_[slot->lane].executor;
  executor.Post([this, slot = std::move(slot), client, frame = std::move(frame), credit = std::move(credit)]() mutable {
    if (slot->core == nullptr) {
      Refuse(client, frame, slot->status);
      return;
    }
    Run(slot, FrameEvent{client, std::move(frame)});
  });
}

void PartitionHost::OnClientGone(uint64_t client) {
  for (Lane& lane : lanes_) {
    lane.executor->Post([this, &lane, client] {
      for (const auto& slot : lane.slots) Run(slot, ClientGoneEvent{client});
    });
  }
}

void PartitionHost::Refuse(uint64_t client, const Frame& frame, const absl::Status& status) {
  Frame error;
  error.kind = v1::ExchangeFrame::ERROR;
  error.request_id = frame.request_id;
  error.job = frame.job;
  error.partition = frame.partition;
  error.status = status;
  callbacks_.reply(client, std::move(error));
}

// On the slot's executor.
void PartitionHost::Run(const std::shared_ptr<Slot>& slot, PartitionEvent event) {
  if (slot->core == nullptr) return;
  // Who sent the frame, should the store fail.
  uint64_t client = 0;
  Frame request;
  if (const FrameEvent* f = std::get_if<FrameEvent>(&event)) {
    client = f->client;
    request.request_id = f->frame.request_id;
    request.job = f->frame.job;
    request.partition = f->frame.partition;
  }
  slot->image_turn = std::holds_alternative<TakeImageEvent>(event);

  const absl::Status stored = RunEvent(*slot->core, persistence_, std::move(event), clock_.Now(),
                                       [&](PartitionEffects& effects) { CarryOut(slot, effects); });
  if (!stored.ok()) {
    StorageFailed(slot, stored);
    if (client != 0) Refuse(client, request, slot->status);
    return;
  }
  slot->version.store(slot->core->version());
  slot->backup.store(slot->core->config().backup);
  const bool was_in_memory = slot->in_memory.exchange(slot->core->in_memory());
  if (std::exchange(slot->image_turn, false)) NextImage();  // there was none to take
  if (slot->core->image_due() && !slot->image_queued) QueueImage(slot);
  TendBackupImages(slot);
  if (!slot->at_rest.exchange(slot->core->at_rest()) && slot->at_rest) Tidy(slot->config.job.value);
  if (was_in_memory && !slot->in_memory && slot->core->config().keep) TellKept(slot->config.job.value);
}

// On the slot's executor: its core is ahead of the store, or cannot be had from it.
void PartitionHost::StorageFailed(const std::shared_ptr<Slot>& slot, const absl::Status& status) {
  const Generation generation = slot->core->generation();
  slot->status = absl::UnavailableError(absl::StrCat(slot->config.Name(), ": storage failed: ", status.message()));
  slot->failed = true;  // before anybody hears of it
  EndCore(*slot);
  LogError("%s", slot->status.message());
  (void)NoteFault(status);
  if (std::exchange(slot->image_turn, false)) NextImage();
  TendBackupImages(slot);
  JobFailed(slot->config.job, generation, status);
}

void PartitionHost::JobFailed(JobId job, Generation generation, const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    failures_[job.value] = {generation, status};
  }
  callbacks_.job_error(job, generation, status);
}

void PartitionHost::ReportAgain() {
  std::map<uint64_t, Failure> failures;
  std::vector<uint64_t> jobs;
  {
    absl::MutexLock lock(&mutex_);
    failures = failures_;
    for (auto& [id, job] : jobs_) {
      job.kept_told = false;
      jobs.push_back(id);
    }
  }
  for (const uint64_t job : jobs) {
    TellKept(job);
    FiguresStored(JobId(job), 0);
  }
  for (const auto& [job, failure] : failures) callbacks_.job_error(JobId(job), failure.generation, failure.status);
}

// slot.status says why. Who waits for an answer of the core gets that one: a chief whose checkpoint has begun would
// wait for ever.
void PartitionHost::EndCore(Slot& slot) {
  if (slot.core == nullptr) return;
  for (PartitionReply& reply : slot.core->End(slot.status)) callbacks_.reply(reply.client, std::move(reply.frame));
  slot.core.reset();
}

void PartitionHost::Tick(size_t lane) {
  const TickEvent tick{backups_.Peers()};
  for (const auto& slot : lanes_[lane].slots) Run(slot, tick);
  lanes_[lane].executor->PostAfter(kTickInterval, [this, lane] { Tick(lane); });
}

// ---- images ----

void PartitionHost::WriteImage(const std::shared_ptr<Slot>& slot, Image image) {
  const bool has_turn = std::exchange(slot->image_turn, false);
  image_writer_->Post([this, slot, has_turn, config = slot->core->config(), image = std::move(image)] {
    const absl::Status status = persistence_.WriteImage(config, image);
    const uint64_t version = image.header.version();
    lanes_[slot->lane].executor->Post([this, slot, version, status] {
      const bool before = std::exchange(slot->image_failed, !status.ok());
      if (!NoteFault(status).ok() && !before) LogError("%s: image: %s", slot->config.Name(), status.ToString());
      Run(slot, ImageWrittenEvent{version, status.ok()});
    });
    if (has_turn) NextImage();
  });
}

void PartitionHost::QueueImage(const std::shared_ptr<Slot>& slot) {
  slot->image_queued = true;
  {
    absl::MutexLock lock(&mutex_);
    images_due_.push_back(slot);
    if (image_under_way_) return;
    image_under_way_ = true;
  }
  NextImage();
}

// The caller holds image_under_way_ (it is true) and its own image is done with.
void PartitionHost::NextImage() {
  std::shared_ptr<Slot> slot;
  {
    absl::MutexLock lock(&mutex_);
    if (images_due_.empty()) {
      image_under_way_ = false;
      return;
    }
    slot = std::move(images_due_.front());
    images_due_.pop_front();
  }
  SerialExecutor& executor = *lanes_[slot->lane].executor;
  executor.Post([this, slot = std::move(slot)] {
    slot->image_queued = false;
    if (slot->core == nullptr) {
      NextImage();
    } else {
      Run(slot, TakeImageEvent{});
    }
  });
}

// ---- jobs that have ended ----

// For PartitionEffects::load.
void PartitionHost::LoadValues(const std::shared_ptr<Slot>& slot) {
  image_writer_->Post([this, slot, config = slot->core->config()] {
    absl::StatusOr<PartitionState> state = persistence_.Recover(config);
    lanes_[slot->lane].executor->Post([this, slot, state = std::move(state)]() mutable {
      if (slot->core == nullptr) return;
      if (!state.ok()) return StorageFailed(slot, state.status());
      Run(slot, LoadedEvent{*std::move(state)});
    });
  });
}

// Once all partitions of the job are at rest: what the store had of them besides is deleted, and now its room is given
// back.
void PartitionHost::Tidy(uint64_t job_id) {
  {
    absl::MutexLock lock(&mutex_);
    const auto job = jobs_.find(job_id);
    if (job == jobs_.end()) return;
    for (const auto& [partition, slot] : job->second.slots) {
      if (!slot->at_rest) return;
    }
    GiveBackMemory();
    if (std::exchange(job->second.tidied, true)) return;
  }
  image_writer_->Post([this, job_id] {
    const absl::Status status = persistence_.GiveBackSpace(JobId(job_id));
    if (!status.ok())
      LogWarning("job %d: the room of what it needs no more is not given back: %s", job_id, status.ToString());
  });
}

// The allocator keeps what is freed for the next steps (TuneAllocator); nobody computes these. At most once in
// kGiveBackEvery.
void PartitionHost::GiveBackMemory() {
  if (std::exchange(memory_due_, true)) return;
  image_writer_->PostAfter(kGiveBackEvery, [this] {
    {
      absl::MutexLock lock(&mutex_);
      memory_due_ = false;
    }
    malloc_trim(0);
  });
}

// HostPartitions.keep: says it once all that this ps serves of the job is on its disk.
void PartitionHost::TellKept(uint64_t job_id) {
  v1::PartitionsReady ready;
  std::vector<std::shared_ptr<const Slot>> slots;
  {
    absl::MutexLock lock(&mutex_);
    const auto job = jobs_.find(job_id);
    if (job == jobs_.end() || !job->second.keep || job->second.kept_told) return;
    for (const auto& [partition, slot] : job->second.slots) {
      if (slot->backup || slot->failed) continue;
      if (slot->in_memory) return;
      slots.push_back(slot);
    }
    job->second.kept_told = true;
    if (slots.empty()) return;  // backups alone
    ready.set_job_id(job_id);
    ready.set_generation(job->second.generation.value);
  }
  for (const auto& slot : slots) DescribeHeld(*slot, ready.add_partitions());
  callbacks_.kept(std::move(ready));
}

}  // namespace cairn
