#include "server/node/partition_host.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/log.h"

namespace cairn {
namespace {

// The interval at which memory of ended jobs is returned to the system. Each time the allocator scans all free memory.
constexpr absl::Duration kGiveBackEvery = absl::Seconds(1);

}  // namespace

PartitionHost::PartitionHost(KvStore& store, PartitionEnvironment environment, PartitionHostCallbacks callbacks,
                             const ImageOptions& image)
    : persistence_(store),
      callbacks_(std::move(callbacks)),
      image_(image),
      give_back_memory_(std::move(environment.give_back_memory)),
      runner_(persistence_, std::move(environment), RunnerCallbacks()) {}

PartitionHost::~PartitionHost() { Stop(); }

PartitionRunnerCallbacks PartitionHost::RunnerCallbacks() {
  PartitionRunnerCallbacks out;
  out.reply = callbacks_.reply;
  out.backup_report = callbacks_.backup_report;
  out.figures = callbacks_.figures;
  out.storage_failed = [this](const PartitionSlot& slot, Generation generation, const absl::Status& status) {
    (void)failures_.NoteFault(status);
    failures_.Add(slot.config.job, {generation, status});
    callbacks_.job_error(slot.config.job, generation, status);
  };
  out.image_failed = [this](const absl::Status& status) { (void)failures_.NoteFault(status); };
  out.at_rest = [this](const PartitionSlot& slot) { Tidy(slot.config.job.value); };
  out.kept = [this](const PartitionSlot& slot) { TellKept(slot.config.job.value); };
  return out;
}

void PartitionHost::Drain() {
  draining_ = true;
  runner_.Drain();
}

void PartitionHost::Stop() {
  draining_ = true;
  runner_.Stop();
}

// ---- frames ----

absl::StatusOr<PartitionSlotPtr> PartitionHost::FindSlot(const Frame& frame) const {
  if (draining_.load()) return absl::UnavailableError("the ps is stopping; retry");
  absl::ReaderMutexLock lock(&mutex_);
  const auto job = jobs_.find(frame.job.value);
  if (job != jobs_.end() && !job->second.assigned) {
    return absl::UnavailableError(
        absl::StrFormat("job %d: this ps has restarted and waits for the coordinator; retry", frame.job.value));
  }
  if (job != jobs_.end()) {
    const auto slot = job->second.slots.find(frame.partition.value);
    if (slot != job->second.slots.end()) return slot->second;
  }
  return absl::NotFoundError(absl::StrFormat("job %d partition %d is not on this ps; wait for a new route",
                                             frame.job.value, frame.partition.value));
}

void PartitionHost::OnFrame(uint64_t client, Frame frame, Credit credit) {
  absl::StatusOr<PartitionSlotPtr> slot = FindSlot(frame);
  if (!slot.ok()) return runner_.Refuse(client, frame, slot.status());
  runner_.Deliver(*std::move(slot), client, std::move(frame), std::move(credit));
}

void PartitionHost::OnClientGone(uint64_t client) { runner_.OnClientGone(client); }

void PartitionHost::FiguresStored(JobId job, int32_t epochs, uint64_t question) {
  PartitionSlotPtr slot;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return;
    const auto first = found->second.slots.find(0);
    if (first == found->second.slots.end()) return;
    slot = first->second;
  }
  runner_.Post(slot, [this, slot, epochs, question] { runner_.Run(slot, FiguresStoredEvent{epochs, question}); });
}

void PartitionHost::ReportAgain() {
  std::vector<uint64_t> jobs;
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [id, job] : jobs_) {
      job.kept_told = false;
      jobs.push_back(id);
    }
  }
  for (const uint64_t job : jobs) {
    TellKept(job);
    FiguresStored(JobId(job), 0, 0);
  }
  for (const auto& [job, failure] : failures_.by_job()) {
    callbacks_.job_error(JobId(job), failure.generation, failure.status);
  }
}

// ---- jobs that have ended ----

// Called once all partitions of the job are at rest: their other data in the store is deleted, and now the disk space
// is freed.
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
  runner_.PostToDisk([this, job_id] {
    const absl::Status status = persistence_.GiveBackSpace(JobId(job_id));
    if (!status.ok())
      LogWarning("job %d: the disk space of its deleted data was not freed: %s", job_id, status.ToString());
  });
}

// The allocator keeps freed memory for the next steps (TuneAllocator), but ended jobs have none. At most once in
// kGiveBackEvery.
void PartitionHost::GiveBackMemory() {
  if (std::exchange(memory_due_, true)) return;
  runner_.PostToDiskAfter(kGiveBackEvery, [this] {
    {
      absl::MutexLock lock(&mutex_);
      memory_due_ = false;
    }
    give_back_memory_();
  });
}

// HostPartitions.keep: reports once everything that this ps serves of the job is on its disk.
void PartitionHost::TellKept(uint64_t job_id) {
  v1::PartitionsReady ready;
  std::vector<std::shared_ptr<const PartitionSlot>> slots;
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
    if (slots.empty()) return;  // only backups
    ready.set_job_id(job_id);
    ready.set_generation(job->second.generation.value);
  }
  for (const auto& slot : slots) DescribeHeld(*slot, ready.add_partitions());
  callbacks_.kept(std::move(ready));
}

}  // namespace cairn
