#include "coordinator/cluster_core.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/base/overloaded.h"
#include "coordinator/job_extract.h"

namespace cairn {
namespace {

// The queue is looked at when something changes that may start a job. This is the safety net.
constexpr absl::Duration kQueueInterval = absl::Seconds(1);

}  // namespace

ClusterCore::ClusterCore(const CoordinatorOptions& options, uint64_t incarnation, const StoredState& stored,
                         absl::Time now)
    : options_(options),
      incarnation_(incarnation),
      cluster_id_(stored.cluster.cluster_id() != 0 ? stored.cluster.cluster_id() : std::max<uint64_t>(1, incarnation)),
      cluster_id_stored_(stored.cluster.cluster_id() != 0),
      members_(options, stored.cluster, now),
      next_job_id_(std::max<uint64_t>(1, stored.cluster.next_job_id())),
      last_request_id_(incarnation),  // answers to requests of an earlier life match nothing
      now_(now),
      stored_epochs_(stored),
      orphans_(stored.orphans) {
  for (const v1::StoredJob& stored_job : stored.jobs) {
    Job& job = jobs_[stored_job.status().job_id()];
    job.status = stored_job.status();
    job.request_key = stored_job.request_key();
    job.assignment = stored_job.assignment();
    job.restore_from.assign(stored_job.restore_from().begin(), stored_job.restore_from().end());
    job.rollback_generation = stored_job.rollback_generation();
    job.rollback_to = stored_job.rollback_to();
    job.rolling_back = stored_job.rolling_back();
    job.recovered = stored_job.recovered();
    job.callbacks = stored_job.callbacks();
    job.learning_rates.assign(stored_job.learning_rates().begin(), stored_job.learning_rates().end());
    job.stopped_early = stored_job.stopped_early();
    job.summaries_written = stored_job.summaries_written();
    job.saves.assign(stored_job.saves().begin(), stored_job.saves().end());
    job.former_chiefs.assign(stored_job.former_chiefs().begin(), stored_job.former_chiefs().end());
    job.files_missing = stored_job.files_missing();
    job.file_missing = stored_job.file_missing();
    job.restores_best = stored_job.restores_best();
    job.has_best = stored_job.has_best();
    for (const v1::StoredEnd& e : stored_job.ends()) job.ends[e.worker()] = {e.step(), e.times(), e.gone()};
    for (const v1::StoredLeftOut& l : stored_job.left_out()) job.left_out[l.node()] = {l.incarnation(), l.why()};
    job.final_versions.assign(stored_job.final_versions().begin(), stored_job.final_versions().end());
    for (const v1::StepValidation& v : job.status.validations()) {
      job.validations_written = std::max(job.validations_written, v.step());
    }
    job.version.assign(job.status.partitions_size(), 0);
    job.at.resize(job.status.partitions_size());
    if (job.status.has_degraded()) job.lacking_since = absl::FromUnixMillis(job.status.degraded().since_unix_ms());
    next_job_id_ = std::max(next_job_id_, job.id() + 1);
    if (job.active()) {
      job.progress.emplace(
          job.status, std::vector<int64_t>(stored_job.replica_step().begin(), stored_job.replica_step().end()),
          std::vector<bool>(stored_job.replica_finished().begin(), stored_job.replica_finished().end()), now);
      const int64_t epoch_start = stored_job.epoch_started_unix_ms();
      job.progress->GoesOn(now, epoch_start > 0 ? std::optional(absl::FromUnixMillis(epoch_start)) : std::nullopt);
      job.checkpoint_heard = now;  // what was said before is not known
      // Nor whether the chief has that role since all its steps were done: one that has written before says so again.
      const bool asked = job.running() && job.status.spec().has_checkpoints() && job.status.checkpoint_error().empty();
      if (asked) job.late_chief_since = now;
      // What the nodes hold and run is learned from their Hello.
      job.awaiting_ready = true;
      job.ready.assign(job.status.partitions_size(), false);
    }
    if (job.queued()) {
      if (auto checked = CheckJob(job.status.spec()); checked.ok()) {
        job.checked = std::make_shared<const CheckedJob>(*std::move(checked));
      } else {
        Transition(job, v1::FAILED);
        job.status.set_reason(std::string(checked.status().message()));
        job.status.set_finished_unix_ms(absl::ToUnixMillis(now));
      }
    }
    usage_.Note(job);
    if (job.finished()) continue;
    AddEvent(job, now, false, "the coordinator was started anew, or another one leads from now on");
    events_unstored_.insert(job.id());
  }
}

Effects ClusterCore::Step(const Event& event, absl::Time now) {
  now_ = std::max(now_, now);
  effects_.clear();
  changed_.clear();
  // Before all else: the event may store an epoch under one of these keys.
  for (std::string& key : std::exchange(orphans_, {})) Emit(Store{std::move(key), std::nullopt});
  std::visit(Overloaded{
                 [this](const NodeUp& e) { OnNodeUp(e); },
                 [this](const NodeSays& e) { OnNodeSays(e); },
                 [this](const SessionClosed& e) { OnSessionClosed(e); },
                 [this](const Tick&) { OnTick(); },
                 [this](const SubmitJob& e) { OnSubmit(e); },
                 [this](const CancelJob& e) { OnCancel(e); },
                 [this](const DeleteJob& e) { OnDelete(e); },
                 [this](const EvaluateJob& e) { BeginEvaluation(e.reply, e.request, false, e.deadline); },
                 [this](const PredictJob& e) { BeginEvaluation(e.reply, e.request, true, e.deadline); },
                 [this](const PredictionTaken& e) { OnPredictionTaken(e.reply); },
                 [this](const PredictionGone& e) { OnPredictionGone(e.reply); },
                 [this](const DrainNode& e) { OnDrain(e); },
             },
             event);
  const bool queue_due = std::exchange(queue_due_, false);
  if (const bool all = std::exchange(reschedule_, false); all || queue_due) Schedule(all);
  for (uint64_t id : std::exchange(events_unstored_, {})) {
    if (const Job* job = Find(id); job != nullptr) StoreJob(*job);
  }
  // What nodes say of their progress changes nothing of it; these are the most events by far.
  const auto* says = std::get_if<NodeSays>(&event);
  const bool progress = says != nullptr && (says->message.has_heartbeat() || says->message.has_replica_report() ||
                                            says->message.has_figures());
  if (!progress && Unsettled() != unsettled_stored_) StoreCluster();
  for (uint64_t id : changed_) Emit(JobChanged{JobId(id)});
  return std::exchange(effects_, {});
}

void ClusterCore::OnTick() {
  for (const Membership::Death& death : members_.Expire(now_)) OnDeath(death);
  TickInspections();
  TickEvaluations();
  TickEvaluators();
  links_.ForgetOld(now_);
  const bool look = std::exchange(reasons_due_, false) || now_ >= queue_at_;
  for (uint64_t id : ByUrgency()) {
    Job* job = Find(id);
    if (job == nullptr || job->finished()) continue;  // it may end and be forgotten on the way
    if (job->returned.empty() || !SettleCopies(*job)) RepairCopies(*job);
    RelieveStragglers(*job);
    if (job->active()) TickCallbacks(*job);
    if (job->running()) Advance(*job);
    if (job->finalizing()) TryFinalize(*job);
    if (job->starting()) TryRestore(*job);
    if (!job->queued()) UpdateReason(*job);
  }
  TendEnded();
  TickCopies();
  if (look) UpdateQueuedReasons();
  if (std::exchange(settling_, members_.Settling(now_)) && !settling_) reschedule_ = true;
  if (now_ < queue_at_) return;
  queue_at_ = now_ + kQueueInterval;
  queue_due_ = true;
}

// ---- queries ----

Job* ClusterCore::Find(uint64_t job_id) {
  auto it = jobs_.find(job_id);
  return it == jobs_.end() ? nullptr : &it->second;
}

const Job* ClusterCore::Find(const v1::GetJobRequest& request) const {
  if (request.job_id() != 0) {
    auto it = jobs_.find(request.job_id());
    return it == jobs_.end() ? nullptr : &it->second;
  }
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    const Job& job = it->second;
    if (request.name().empty() || job.status.spec().name() != request.name()) continue;
    if (!request.with_weights() || job.has_weights()) return &job;
  }
  return nullptr;
}

v1::JobStatus ClusterCore::StatusOf(const Job& job, absl::Time now) const {
  v1::JobStatus status = job.status;
  FillRunning(job, now, status);
  return status;
}

// What is not in job.status itself while the job runs.
void ClusterCore::FillRunning(const Job& job, absl::Time now, v1::JobStatus& status) const {
  if (!job.progress || !job.active()) return;
  job.progress->Fill(now, status);
  status.set_learning_rate(RateAt(job, std::min(status.step(), std::max<int64_t>(status.total_steps() - 1, 0))));
}

v1::JobStatus ClusterCore::StatusOf(const Job& job) const { return StatusOf(job, now_); }

absl::StatusOr<v1::JobStatus> ClusterCore::GetJob(const v1::GetJobRequest& request, absl::Time now) const {
  const Job* job = Find(request);
  if (job == nullptr) {
    if (request.job_id() != 0) return absl::NotFoundError(absl::StrCat("there is no job ", request.job_id()));
    return absl::NotFoundError(absl::StrCat(request.with_weights() ? "no job named \"" : "there is no job named \"",
                                            request.name(),
                                            request.with_weights() ? "\" has weights; see `cairn jobs`" : "\""));
  }
  return StatusOf(*job, std::max(now, now_));
}

absl::StatusOr<v1::JobStatus> ClusterCore::GetJob(JobId id, absl::Time now) const {
  v1::GetJobRequest request;
  request.set_job_id(id.value);
  return GetJob(request, now);
}

v1::ListJobsResponse ClusterCore::ListJobs(absl::Time now) const {
  v1::ListJobsResponse response;
  response.set_retention(options_.retention.Text());
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    v1::JobStatus& status = *response.add_jobs();
    CopyForList(it->second.status, &status);
    FillRunning(it->second, std::max(now, now_), status);
  }
  return response;
}

std::vector<v1::JobStatus> ClusterCore::JobRows(absl::Time now) const {
  std::vector<v1::JobStatus> rows;
  rows.reserve(jobs_.size());
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    CopyForRow(it->second.status, &rows.emplace_back());
    FillRunning(it->second, std::max(now, now_), rows.back());
  }
  return rows;
}

v1::ListNodesResponse ClusterCore::ListNodes() const {
  v1::ListNodesResponse response;
  // In one pass: there may be many jobs of many partitions, and many ps.
  absl::flat_hash_map<NodeName, int> primaries, backups;
  for (const auto& [id, job] : jobs_) {
    for (const v1::PartitionPlacement& p : job.status.partitions()) {
      ++primaries[p.primary()];
      for (const v1::BackupPlacement& b : p.backups()) ++backups[b.node()];
    }
  }
  for (const v1::NodeStatus& node : members_.List()) {
    v1::NodeStatus& status = *response.add_nodes() = NodeStatusWithoutPartitions(node.name());
    if (status.role() != v1::PS) continue;
    status.set_primaries(primaries[node.name()]);
    status.set_partitions(primaries[node.name()] + backups[node.name()]);
  }
  return response;
}

v1::NodeStatus ClusterCore::NodeStatusWithoutPartitions(const NodeName& name) const {
  const ClusterNode& node = *members_.Find(name);
  v1::NodeStatus status = StatusOfNode(node);
  // A node of our earlier life that is still waited for is not shown as alive, nor as dead.
  status.set_expected(node.expected);
  if (node.expected) {
    status.set_alive(false);
    status.clear_last_heartbeat_unix_ms();
  }
  if (node.role != v1::PS) status.set_slots_used(std::min(node.slots, usage_.ReplicasOn(name)));
  return status;
}

v1::NodeStatus ClusterCore::NodeStatusOf(const NodeName& name) const {
  v1::NodeStatus status = NodeStatusWithoutPartitions(name);
  if (status.role() != v1::PS) return status;
  for (const auto& [id, job] : jobs_) {
    status.set_partitions(status.partitions() + job.PartitionsOn(name));
    status.set_primaries(status.primaries() + job.PrimariesOn(name));
  }
  return status;
}

// ---- effects ----

void ClusterCore::StoreJob(const Job& job) {
  copies_due_.insert(job.id());
  events_unstored_.erase(job.id());
  usage_.Note(job);
  v1::StoredJob stored = job.ToStored();
  if (job.progress && job.active()) job.progress->Fill(now_, *stored.mutable_status());
  stored.mutable_status()->clear_images_per_second();
  if (job.finished() && job.status.has_images_per_second())
    stored.mutable_status()->set_images_per_second(job.status.images_per_second());
  for (Store& epoch : stored_epochs_.TakeOut(stored)) Emit(std::move(epoch));
  Emit(Store{absl::StrCat(kJobKeyPrefix, job.id()), stored.SerializeAsString()});
  changed_.insert(job.id());
}

// ps that were started anew, whose copies wait for others that may know more. That is known here alone: after a restart
// of ours they have to be taken for started anew again, so that their incarnation is not stored before it is settled.
std::set<NodeName> ClusterCore::Unsettled() const {
  std::set<NodeName> names;
  for (const auto& [id, job] : jobs_) {
    for (const auto& [copy, returned] : job.returned) names.insert(copy.second);
    for (const NodeName& ps : job.untold) {
      if (job.active() && job.UsesPs(ps)) names.insert(ps);
    }
  }
  return names;
}

void ClusterCore::StoreCluster() {
  v1::StoredCluster stored;
  stored.set_next_job_id(next_job_id_);
  stored.set_cluster_id(cluster_id_);
  cluster_id_stored_ = true;
  members_.Save(stored);
  unsettled_stored_ = Unsettled();
  for (int i = 0; i < stored.incarnation_size(); ++i) {
    if (unsettled_stored_.contains(stored.nodes(i).name())) stored.set_incarnation(i, 0);
  }
  Emit(Store{kClusterKey, stored.SerializeAsString()});
}

void ClusterCore::Send(const ClusterNode& node, v1::CoordinatorMessage message) {
  if (node.connected()) Emit(SendCommand{node.session, std::move(message)});
}

void ClusterCore::ReplyError(ReplyToken token, absl::Status status) { Emit(Reply{token, std::move(status), {}}); }

}  // namespace cairn
