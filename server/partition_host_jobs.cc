// PartitionHost: which partitions it holds: what the data directory has, what the coordinator assigns, what is dropped.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/blocking_counter.h"
#include "common/base/log.h"
#include "common/model/graph.h"
#include "server/partition_config.h"
#include "server/partition_host.h"
#include "server/partition_slot.h"

namespace cairn {

absl::Status PartitionHost::LoadHeld() {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::HostPartitions> held, persistence_.ListHostedJobs());
  for (const v1::HostPartitions& host : held) {
    absl::StatusOr<Slots> slots = Load(host, {}, /*assigned=*/false);
    if (!slots.ok()) {
      LogError("job %d cannot be recovered: %s", host.job_id(), slots.status().ToString());
      if (absl::IsDataLoss(slots.status())) (void)NoteFault(slots.status());
      continue;
    }
    LogInfo("job %d: %d partitions recovered, generation %d", host.job_id(), slots->size(), host.generation());
    absl::MutexLock lock(&mutex_);
    jobs_[host.job_id()] = Job{Generation(host.generation()), false, *std::move(slots), {}};
  }
  return absl::OkStatus();
}

std::vector<v1::HeldPartitions> PartitionHost::Held() const {
  std::vector<v1::HeldPartitions> out;
  std::vector<std::vector<std::shared_ptr<const Slot>>> slots;  // of each: the store is asked after the lock
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, job] : jobs_) {
      v1::HeldPartitions& held = out.emplace_back();
      held.set_job_id(id);
      held.set_generation(job.generation.value);
      std::vector<std::shared_ptr<const Slot>>& of_job = slots.emplace_back();
      for (const auto& [partition, slot] : job.slots) {
        if (!slot->failed) of_job.push_back(slot);  // else it does not have what it was in sync with
      }
    }
  }
  for (size_t i = 0; i < out.size(); ++i) {
    for (const auto& slot : slots[i]) DescribeHeld(*slot, out[i].add_partitions());
  }
  return out;
}

void PartitionHost::DescribeHeld(const Slot& slot, v1::HeldPartition* held) const {
  const uint64_t version = slot.version.load();
  held->set_partition(slot.config.partition.value);
  held->set_version(version);
  held->set_backup(slot.backup.load());
  held->set_version_min(version);
  const absl::StatusOr<Persistence::Reach> reach = persistence_.ReachOf(slot.config, version);
  if (!reach.ok()) return LogError("%s", reach.status().ToString());
  held->set_version_min(reach->version_min);
  held->mutable_versions()->Add(reach->versions.begin(), reach->versions.end());
}

absl::StatusOr<v1::PartitionsReady> PartitionHost::Host(const v1::HostPartitions& host) {
  const Generation generation(host.generation());
  Slots present;
  bool newer = true;
  {
    absl::MutexLock lock(&mutex_);
    auto it = jobs_.find(host.job_id());
    if (it != jobs_.end()) {
      newer = generation > it->second.generation;
      if (generation < it->second.generation) {
        return absl::AbortedError(absl::StrFormat("job %d: generation %d is older than %d", host.job_id(),
                                                             generation.value, it->second.generation.value));
      }
      present = it->second.slots;
    }
  }
  // Out of the way first, so that nothing writes to what SetHostedJob deletes.
  std::vector<std::shared_ptr<Slot>> gone;
  for (auto it = present.begin(); it != present.end();) {
    const Slot& slot = *it->second;
    const bool stays = std::any_of(host.partitions().begin(), host.partitions().end(), [&](const auto& range) {
      return range.partition() == slot.config.partition.value &&
             static_cast<int64_t>(range.begin()) == slot.config.begin &&
             static_cast<int64_t>(range.end()) == slot.config.end;
    });
    if (!stays) gone.push_back(it->second);
    it = stays ? std::next(it) : present.erase(it);
  }
  if (!gone.empty()) {
    {
      absl::MutexLock lock(&mutex_);
      jobs_[host.job_id()].slots = present;
    }
    Remove(gone);
  }
  v1::HostPartitions stored = host;
  stored.clear_rollback_to();  // done with when it is stored
  if (host.has_rollback_to() && newer) CAIRN_RETURN_IF_ERROR(RollBack(host, present));
  CAIRN_RETURN_IF_ERROR(NoteFault(persistence_.SetHostedJob(stored)));
  std::set<std::string> backups;
  for (const v1::PartitionRange& range : host.partitions()) {
    for (const v1::BackupRoute& route : range.backups()) backups.insert(route.address());
  }
  {
    absl::MutexLock lock(&mutex_);
    jobs_[host.job_id()].backups.insert(backups.begin(), backups.end());  // those of before, too, until the roles are given
  }
  KeepConnections();
  absl::StatusOr<Slots> loaded = Load(host, present, /*assigned=*/true);
  if (!loaded.ok()) {
    absl::MutexLock lock(&mutex_);
    auto job = jobs_.find(host.job_id());
    if (job != jobs_.end() && job->second.slots.empty()) jobs_.erase(job);
    return loaded.status();
  }
  Slots slots = *std::move(loaded);

  v1::PartitionsReady ready;
  ready.set_job_id(host.job_id());
  ready.set_generation(host.generation());
  for (const auto& [partition, slot] : slots) DescribeHeld(*slot, ready.add_partitions());
  {
    absl::MutexLock lock(&mutex_);
    jobs_[host.job_id()] = Job{generation, true, std::move(slots), std::move(backups)};
    failures_.erase(host.job_id());
  }
  KeepConnections();
  return ready;
}

// Takes the partitions out of memory and back to host.rollback_to() on disk. Those that are at that version stay: without a log it may be
// in memory alone. Nobody pushes to them meanwhile, for the workers were not told of the generation before this one.
absl::Status PartitionHost::RollBack(const v1::HostPartitions& host, Slots& present) {
  std::vector<std::shared_ptr<Slot>> ahead;
  for (auto it = present.begin(); it != present.end();) {
    const Slot& slot = *it->second;
    const bool stays = !slot.failed && slot.version == host.rollback_to();
    if (!stays) ahead.push_back(it->second);
    it = stays ? std::next(it) : present.erase(it);
  }
  {
    absl::MutexLock lock(&mutex_);
    auto job = jobs_.find(host.job_id());
    if (job != jobs_.end()) job->second.slots = present;
  }
  if (!ahead.empty()) Remove(ahead);
  absl::StatusOr<Graph> graph = Graph::Build(host.spec().model());
  if (!graph.ok()) return Annotate(graph.status(), absl::StrFormat("job %d", host.job_id()));
  const auto shared = std::make_shared<const Graph>(*std::move(graph));
  for (const v1::PartitionRange& range : host.partitions()) {
    if (present.contains(range.partition())) continue;
    CAIRN_ASSIGN_OR_RETURN(const PartitionConfig config,
                           MakePartitionConfig(host.spec(), shared, range, JobId(host.job_id()),
                                               Generation(host.generation())));
    // A backup starts with an image anyway.
    CAIRN_RETURN_IF_ERROR(range.backup() ? persistence_.Forget(config)
                                         : persistence_.RollBack(config, host.rollback_to()));
  }
  LogInfo("job %d: taken back to version %d", host.job_id(), host.rollback_to());
  return absl::OkStatus();
}

// Slots for all of host's partitions: those present get the new generation, the others are recovered or initialized, in
// parallel on their executors.
absl::StatusOr<PartitionHost::Slots> PartitionHost::Load(const v1::HostPartitions& host, const Slots& present,
                                                           bool assigned) {
  const std::string where = absl::StrFormat("job %d", host.job_id());
  absl::StatusOr<Graph> built = Graph::Build(host.spec().model());
  if (!built.ok()) return Annotate(built.status(), where);
  const auto graph = std::make_shared<const Graph>(*std::move(built));
  const Generation generation(host.generation());

  Slots slots;
  std::map<uint32_t, AssignEvent> roles;
  for (const v1::PartitionRange& range : host.partitions()) {
    roles[range.partition()] = {generation, range.backup(), {range.backups().begin(), range.backups().end()}};
    auto it = present.find(range.partition());
    if (it != present.end()) {
      slots.insert(*it);
      continue;
    }
    absl::StatusOr<PartitionConfig> config =
        MakePartitionConfig(host.spec(), graph, range, JobId(host.job_id()), generation);
    if (!config.ok()) return Annotate(config.status(), where);
    slots.emplace(range.partition(), NewSlot(*std::move(config)));
  }

  absl::Mutex failed_mutex;
  absl::Status failed;
  absl::BlockingCounter left(static_cast<int>(slots.size()));
  for (const auto& [partition, slot] : slots) {
    Lane& lane = lanes_[slot->lane];
    lane.executor->Post([&, slot = slot] {
      if (slot->core == nullptr) {
        slot->config.generation = generation;
        absl::StatusOr<PartitionState> state = persistence_.Recover(slot->config);
        slot->status = state.status();
        if (absl::IsDataLoss(state.status())) (void)NoteFault(state.status());
        if (state.ok()) {
          slot->core = std::make_unique<PartitionCore>(slot->config, *std::move(state));
          slot->version = slot->core->version();
          slot->backup = slot->config.backup;
          slot->failed = false;
          if (std::find(lane.slots.begin(), lane.slots.end(), slot) == lane.slots.end()) lane.slots.push_back(slot);
        } else {
          absl::MutexLock lock(&failed_mutex);
          failed = state.status();
        }
      }
      if (assigned) {
        Run(slot, roles.at(slot->config.partition.value));
      }
      left.DecrementCount();
    });
  }
  left.Wait();
  if (!failed.ok()) {
    std::vector<std::shared_ptr<Slot>> loaded;
    for (const auto& [partition, slot] : slots) {
      if (!present.contains(partition)) loaded.push_back(slot);
    }
    Remove(loaded);
    return failed;
  }
  return slots;
}

std::shared_ptr<PartitionHost::Slot> PartitionHost::NewSlot(PartitionConfig config) {
  auto slot = std::make_shared<Slot>();
  slot->config = std::move(config);
  slot->lane = next_lane_++ % lanes_.size();
  return slot;
}

// Ends the slots' cores. After it nothing of theirs is written any more.
void PartitionHost::Remove(const std::vector<std::shared_ptr<Slot>>& slots) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].executor->RunAndWait([&] {
      for (const auto& slot : slots) {
        if (slot->lane != i) continue;
        slot->status = absl::NotFoundError(absl::StrCat(slot->config.Name(), " is not on this ps any more"));
        EndCore(*slot);
        std::erase(lanes_[i].slots, slot);
        TendBackupImages(slot);
      }
    });
  }
  image_writer_->RunAndWait([] {});
}

absl::Status PartitionHost::Drop(JobId job) {
  Slots slots;
  {
    absl::MutexLock lock(&mutex_);
    failures_.erase(job.value);
    auto it = jobs_.find(job.value);
    if (it != jobs_.end()) {
      slots = std::move(it->second.slots);
      jobs_.erase(it);
    }
  }
  std::vector<std::shared_ptr<Slot>> gone;
  for (const auto& [partition, slot] : slots) gone.push_back(slot);
  if (!gone.empty()) Remove(gone);
  KeepConnections();
  return persistence_.DropJob(job);
}

}  // namespace cairn
