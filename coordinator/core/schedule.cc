#include "coordinator/core/schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/callback_check.h"
#include "common/model/data_check.h"
#include "common/model/fault_check.h"
#include "common/model/partition_cut.h"
#include "common/model/step_plan.h"
#include "common/model/strategy_check.h"
#include "common/model/written_paths.h"
#include "coordinator/core/devices.h"
#include "coordinator/core/job_facts.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

// The queue is checked whenever something changes that may start a job. This interval is only a safety net.
constexpr absl::Duration kQueueInterval = absl::Seconds(1);
// Nodes times jobs, up to which the assignments of all jobs are looked at with every node that comes or goes.
constexpr size_t kLooksAtOnce = 20'000;

// Sorts by priority, then by age.
std::vector<uint64_t> InOrder(std::vector<const Job*> jobs) {
  std::sort(jobs.begin(), jobs.end(), [](const Job* a, const Job* b) {
    return std::tuple(-a->status.spec().priority(), a->id()) < std::tuple(-b->status.spec().priority(), b->id());
  });
  std::vector<uint64_t> ids;
  ids.reserve(jobs.size());
  for (const Job* job : jobs) ids.push_back(job->id());
  return ids;
}

}  // namespace

// ---- start ----
void Schedule::StartJob(Job& job, std::vector<WorkerCapacity> workers) {
  ResolveDefaults(job);
  std::stable_sort(workers.begin(), workers.end(), [](const auto& a, const auto& b) { return a.slots > b.slots; });
  const size_t most = job.mirrored() ? 1 : job.status.spec().max_workers();
  if (most > 0 && workers.size() > most) workers.resize(most);
  if (absl::Status status = LayOut(job); !status.ok())
    return endings_.End(job, v1::FAILED, std::string(status.message()));
  jobs_.Transition(job, v1::STARTING);
  OpenEpochs(job, 0);
  job.progress.emplace(job.status, std::vector<int64_t>{}, std::vector<bool>{}, step_.now());
  const v1::JobSpec& spec = job.status.spec();
  if (!spec.resume_from().empty() || !spec.initial_weights().empty()) {
    job.restoring.FillFrom(spec.resume_from().empty() ? spec.initial_weights() : spec.resume_from());
  }
  const double waited_s = absl::ToDoubleSeconds(step_.now() - absl::FromUnixMillis(job.status.submitted_unix_ms()));
  jobs_.Tell(job, "starts, %.1f s after it was submitted: %s, %s", std::max(0.0, waited_s),
             CountText(job.status.replicas_size(), "replica"), CountText(job.status.partitions_size(), "partition"));
  // Partitions first: a crash in between leaves replicas without a worker, which the next Schedule repairs.
  hosting_.PlaceAnew(job);
  assignments_.Place(job, std::move(workers));
}

absl::Status Schedule::LayOut(Job& job) {
  const v1::JobSpec& spec = job.status.spec();
  const StepPlan plan = StepPlan::Of(spec, static_cast<int64_t>(job.status.data().train_examples()));
  job.status.set_steps_per_epoch(plan.steps_per_epoch);
  job.status.set_total_steps(plan.total_steps);
  if (spec.partition_bytes() <= 0) {
    return absl::InvalidArgumentError("partition_bytes: it has no value yet, and no ps is there to tell one; give it");
  }
  const int64_t partitions = (job.queueing.space_size * 4 + spec.partition_bytes() - 1) / spec.partition_bytes();
  const std::string advice = absl::StrFormat(
      "partition_bytes: %d makes %d partitions, too many to be named in one message; use a larger value",
      spec.partition_bytes(), partitions);
  if (partitions > kPartitionsMax) return absl::InvalidArgumentError(advice);
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(spec.model()));
  job.status.clear_partitions();
  for (const v1::PartitionRange& range : CutPartitions(graph, spec.optimizer(), spec.partition_bytes())) {
    v1::PartitionPlacement& p = *job.status.add_partitions();
    p.set_partition(range.partition());
    p.set_begin(range.begin());
    p.set_end(range.end());
  }
  if (static_cast<uint32_t>(job.status.partitions_size()) > kPartitionsMax) return absl::InvalidArgumentError(advice);
  job.status.clear_replicas();
  for (int32_t r = 0; r < spec.replicas(); ++r) job.status.add_replicas()->set_replica(r);
  size_t longest = 0;  // the longest name and address of a route, in bytes
  for (const ClusterNode* ps : nodes_.Connected(v1::PS))
    longest = std::max(longest, ps->name.size() + ps->address.size());
  const int64_t bytes =
      static_cast<int64_t>(MakeAssignReplicas(job, "").ByteSizeLong() + job.status.partitions_size() * (longest + 8));
  return bytes <= kAssignBytesMax ? absl::OkStatus() : absl::InvalidArgumentError(advice);
}

void Schedule::Tick() {
  if (std::exchange(settling_, nodes_.Settling()) && !settling_) all_due_ = true;
  if (step_.now() < queue_at_) return;
  queue_at_ = step_.now() + kQueueInterval;
  queue_due_ = true;
}

void Schedule::RunIfDue(bool tick) {
  const bool waits = !tick && nodes_.all().size() * jobs_.all().size() > kLooksAtOnce;
  const bool queue = std::exchange(queue_due_, false), all = all_due_ && !waits;
  all_due_ = all_due_ && !all;
  if (all || queue) Run(all);
}

// all: also assigns the work of running jobs. Otherwise only the queue is processed, and running jobs may grow if no
// job waits any more.
void Schedule::Run(bool all) {
  endings_.ForgetEnded();
  step_.Raise(QueueLookedAt{});
  // Just after the coordinator's start, known nodes are waited for: a job should get all of them.
  const bool waited = std::exchange(someone_waits_, nodes_.Settling() || StartQueued());
  if (!all && (someone_waits_ || !waited)) return;
  for (auto& [id, job] : jobs_.all()) {  // nodes may have come, gone or been drained
    job.partitions.copies.RepairLater();
    step_.Raise(CopiesChanged{id});
  }
  std::vector<const Job*> running;
  for (const auto& [id, job] : jobs_.all()) {
    if (job.starting() || job.running()) running.push_back(&job);
  }
  for (uint64_t id : InOrder(std::move(running))) {
    Job& job = jobs_.At(id);
    assignments_.Rebalance(job, !someone_waits_);
    assignments_.Send(job);
  }
}

std::vector<WorkerCapacity> Schedule::FreeWorkers(const Job& job) {
  std::vector<WorkerCapacity> free;
  for (const ClusterNode* node : nodes_.Connected(v1::WORKER)) {
    if (!candidates_.MayWork(job, *node)) continue;
    if (const int32_t slots = candidates_.FreeSlots(*node); slots > 0)
      free.push_back({node->name, slots, node->machine.device_kind});
  }
  return free;
}

// Starts what can be started. Returns true if a job waits for slots in use; slots that become free are reserved for it.
bool Schedule::StartQueued() {
  std::vector<const Job*> queue;
  for (const auto& [id, job] : jobs_.all()) {
    if (job.queued() && job.has_data()) queue.push_back(&job);
  }
  if (queue.empty()) return false;
  std::set<Needs> too_large;  // for this cluster, even if nothing else runs
  for (uint64_t id : InOrder(std::move(queue))) {
    Job& job = jobs_.At(id);
    if (job.workers.left_out.nodes.empty() && too_large.contains(NeedsOf(job))) continue;
    const size_t needed = WorkersNeeded(job);
    if (candidates_.PsThere(job) < size_t{1} + static_cast<size_t>(job.status.spec().backups())) {
      if (job.workers.left_out.nodes.empty()) too_large.insert(NeedsOf(job));
      continue;
    }
    std::vector<WorkerCapacity> free = OfOneDevice(FreeWorkers(job), PreferredDevices(job), needed);
    if (!free.empty()) {
      StartJob(job, std::move(free));
    } else if (candidates_.MostOfOneDevice(job, /*free=*/false) >= needed) {
      return true;  // later jobs do not overtake it
    } else if (job.workers.left_out.nodes.empty()) {
      too_large.insert(NeedsOf(job));  // others need not wait for it
    }
  }
  return false;
}

// Fields whose default depends on the cluster or on a checkpoint. They stay 0 while it is not known.
void Schedule::ResolveDefaults(Job& job) {
  v1::JobSpec& spec = *job.status.mutable_spec();
  // A worker has to inspect the checkpoint first.
  if ((!spec.resume_from().empty() || BackupOf(spec) != nullptr) && !job.has_data()) return;
  if (spec.replicas() == 0) {
    std::vector<int32_t> slots;
    std::vector<WorkerCapacity> fit;
    for (const ClusterNode* worker : nodes_.Connected(v1::WORKER)) {
      if (Fits(spec, *worker)) fit.push_back({worker->name, worker->slots, worker->machine.device_kind});
    }
    // None while fewer workers are there than it needs: it has a replica for each slot of those that it waits for, too.
    const std::vector<WorkerCapacity> one_kind = OfOneDevice(std::move(fit), PreferredDevices(job), WorkersNeeded(job));
    slots.reserve(one_kind.size());
    for (const WorkerCapacity& worker : one_kind) slots.push_back(worker.slots);
    std::sort(slots.rbegin(), slots.rend());
    size_t workers = slots.size();
    if (spec.max_workers() > 0) workers = std::min<size_t>(workers, spec.max_workers());
    if (job.mirrored()) workers = std::min<size_t>(workers, 1);
    int64_t total = 0;
    for (size_t i = 0; i < workers; ++i) total += slots[i];
    const int64_t most = std::clamp<int64_t>(spec.batch_size(), 1, kReplicasMax);
    if (total > 0) spec.set_replicas(static_cast<int32_t>(std::min(total, most)));
  }
  if (const size_t ps = nodes_.Connected(v1::PS).size(); spec.partition_bytes() == 0 && ps > 0) {
    spec.set_partition_bytes(DefaultPartitionBytes(job.queueing.space_size, static_cast<int>(ps)));
  }
  if (const size_t ps = nodes_.Connected(v1::PS).size(); ps > 0) ResolveBackups(static_cast<int>(ps), &spec);
}

}  // namespace cairn
