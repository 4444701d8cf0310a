#include "coordinator/core/cluster_core.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "common/base/overloaded.h"
#include "common/base/text.h"
#include "common/model/role_text.h"
#include "coordinator/core/limits.h"

namespace cairn {

ClusterCore::ClusterCore(const CoordinatorOptions& options, uint64_t incarnation, const StoredState& stored,
                         absl::Time now)
    : options_(options),
      step_(incarnation, now),
      jobs_(options_, stored, step_),
      nodes_(options_, incarnation, stored, step_, jobs_),
      candidates_(options_, step_, jobs_, nodes_),
      hosting_(step_, jobs_, nodes_, candidates_),
      ground_{options_, step_, jobs_, nodes_, candidates_, hosting_},
      endings_(ground_),
      restores_(ground_, endings_),
      rollback_(ground_, endings_, restores_),
      copies_(ground_, endings_, restores_),
      copy_watch_(ground_),
      crash_loops_(ground_, endings_, copies_),
      drains_(ground_, crash_loops_),
      assignments_(ground_),
      schedule_(ground_, endings_, assignments_),
      files_(ground_),
      checkpoints_(ground_, files_),
      epochs_(ground_, endings_, assignments_, files_),
      evaluations_(ground_, copies_),
      reasons_(ground_, endings_, copies_, evaluations_),
      submissions_(ground_, endings_, schedule_, reasons_),
      runs_(ground_, {endings_, restores_, rollback_, copies_, assignments_, files_, checkpoints_, epochs_}),
      reconciler_(ground_, endings_, copies_, crash_loops_, runs_) {}

absl::StatusOr<v1::JobStatus> ClusterCore::GetJob(JobId id, absl::Time now) const {
  v1::GetJobRequest request;
  request.set_job_id(id.value);
  return GetJob(request, now);
}

Effects ClusterCore::Step(const Event& event, absl::Time now) {
  step_.Begin(now);
  jobs_.Begin();
  Dispatch(event);
  DeliverRaised();
  schedule_.RunIfDue();
  DeliverRaised();
  jobs_.SaveTold();
  DeliverRaised();
  // Nodes' progress reports, by far the most frequent events, do not settle anything.
  const auto* says = std::get_if<NodeSays>(&event);
  const bool progress = says != nullptr && (says->message.has_heartbeat() || says->message.has_replica_report() ||
                                            says->message.has_figures());
  if (!progress) nodes_.SaveIfSettled();
  jobs_.EmitChanged();
  return step_.TakeEffects();
}

void ClusterCore::Dispatch(const Event& event) {
  std::visit(Overloaded{
                 [this](const NodeUp& e) { OnNodeUp(e); },
                 [this](const NodeSays& e) { OnNodeSays(e); },
                 [this](const SessionClosed& e) { OnSessionClosed(e); },
                 [this](const Tick&) { OnTick(); },
                 [this](const SubmitJob& e) { submissions_.OnSubmit(e); },
                 [this](const CancelJob& e) { endings_.OnCancel(e); },
                 [this](const DeleteJob& e) { endings_.OnDelete(e); },
                 [this](const EvaluateJob& e) { evaluations_.OnEvaluate(e); },
                 [this](const PredictJob& e) { evaluations_.OnPredict(e); },
                 [this](const PredictionTaken& e) { evaluations_.OnPredictionTaken(e.reply); },
                 [this](const PredictionGone& e) { evaluations_.OnPredictionGone(e.reply); },
                 [this](const DrainNode& e) { drains_.OnDrain(e); },
             },
             event);
}

void ClusterCore::DeliverRaised() {
  while (const std::optional<DomainEvent> event = step_.TakeRaised()) Dispatch(*event);
}

void ClusterCore::Dispatch(const DomainEvent& event) {
  std::visit(Overloaded{
                 [this](ReasonDue e) {
                   if (Job* job = jobs_.Find(e.job); job != nullptr) reasons_.Update(*job);
                 },
                 [this](JobAdvanced e) {
                   if (Job* job = jobs_.Find(e.job); job != nullptr && job->running()) runs_.Advance(*job);
                 },
                 [this](AssignmentsSent e) {
                   if (Job* job = jobs_.Find(e.job); job != nullptr) checkpoints_.ConsiderBest(*job);
                 },
                 [this](CopiesChanged e) { copy_watch_.Note(e); },
                 [this](ReadinessDue e) { copy_watch_.Note(e); },
                 [this](QueueChanged e) { schedule_.Note(e); },
                 [this](SlotsChanged e) { schedule_.Note(e); },
                 [this](QueueLookedAt e) { reasons_.Note(e); },
             },
             event);
}

void ClusterCore::OnTick() {
  for (const Membership::Death& death : nodes_.Expire()) OnDeath(death);
  submissions_.Tick();
  evaluations_.Tick();
  copies_.ForgetOldLinks();
  for (uint64_t id : jobs_.ByUrgency()) {
    Job* job = jobs_.Find(id);
    if (job == nullptr || job->finished()) continue;  // it may end and be forgotten during the loop
    if (job->copies.returned.empty() || !copies_.Settle(*job)) copies_.Repair(*job);
    assignments_.RelieveStragglers(*job);
    if (job->active()) files_.Tick(*job);
    if (job->running()) runs_.Advance(*job);
    if (job->finalizing()) runs_.TryFinalize(*job);
    if (job->starting()) restores_.TryRestore(*job);
    if (!job->queued()) reasons_.Update(*job);
  }
  copies_.TendEnded();
  DeliverRaised();  // what is watched is complete only now
  copy_watch_.Tick();
  reasons_.UpdateQueuedIfDue();
  schedule_.Tick();
}

// ---- nodes ----

void ClusterCore::OnNodeUp(const NodeUp& event) {
  const absl::StatusOr<Membership::Admission> admission = nodes_.Admit(event.session, event.hello);
  if (!admission.ok()) return;
  const ClusterNode& node = *admission->node;
  nodes_.Welcome(node);
  if (node.role == v1::PS) {
    reconciler_.ReconcilePs(*admission, event.hello);
  } else {
    reconciler_.ReconcileWorker(*admission, event.hello);
  }
  if (admission->superseded.value != 0) ReleaseWork(node.name);  // answers from the old session are no longer received
  // Last: if the coordinator restarts while the new incarnation is not stored, it takes the node for a restarted one
  // and reconciles again.
  nodes_.Save();
  step_.Raise(SlotsChanged{});
}

void ClusterCore::OnNodeSays(const NodeSays& event) {
  ClusterNode* node = nodes_.Heard(event.session);
  if (node == nullptr) {  // declared dead, or superseded
    return step_.Emit(CloseSession{event.session, absl::AbortedError("the session is over; open a new one")});
  }
  OnMessage(*node, event.message);
}

void ClusterCore::OnMessage(ClusterNode& node, const v1::NodeMessage& m) {
  const bool worker = node.role == v1::WORKER, ps = node.role == v1::PS;
  switch (m.kind_case()) {
    case v1::NodeMessage::kHeartbeat:
      node.memory_bytes = m.heartbeat().memory_bytes();
      drains_.NoteFault(node, std::string(CutUtf8(m.heartbeat().fault(), kFaultTextMax)));
      return runs_.OnProgress(node, m.heartbeat().progress());
    case v1::NodeMessage::kDataInfo:
      if (worker && evaluations_.OnDataInfo(node, m.data_info())) return;
      if (worker) return submissions_.OnDataInfo(node, m.data_info());
      break;
    case v1::NodeMessage::kEvaluated:
      if (!ps) return evaluations_.OnEvaluated(node, m.evaluated());
      break;
    case v1::NodeMessage::kPartitionsReady:
      if (ps) return reconciler_.OnPartitionsReady(node, m.partitions_ready());
      break;
    case v1::NodeMessage::kBackupReport:
      if (ps) return copies_.OnBackupReport(node, m.backup_report());
      break;
    case v1::NodeMessage::kFigures:
      if (ps) return epochs_.OnFigures(node, m.figures());
      break;
    case v1::NodeMessage::kReplicaReport:
      if (worker) return runs_.OnReplicaReport(node, m.replica_report());
      break;
    case v1::NodeMessage::kPredicted:
      if (worker) return evaluations_.OnPredicted(node, m.predicted());
      break;
    case v1::NodeMessage::kFinalized:
      if (worker) return runs_.OnFinalized(node, m.finalized());
      break;
    case v1::NodeMessage::kCheckpoint:
      if (worker) return checkpoints_.OnCheckpoint(node, m.checkpoint());
      break;
    case v1::NodeMessage::kRestored:
      if (worker) return restores_.OnRestored(node, m.restored());
      break;
    case v1::NodeMessage::kSummariesWritten:
      if (worker) return files_.OnSummariesWritten(node, m.summaries_written());
      break;
    case v1::NodeMessage::kModelSaved:
      if (worker) return files_.OnModelSaved(node, m.model_saved());
      break;
    case v1::NodeMessage::kJobError: return reconciler_.OnJobError(node, m.job_error());
    case v1::NodeMessage::kHello:
    case v1::NodeMessage::KIND_NOT_SET: break;
  }
  step_.Warn("%s \"%s\" sent a message of kind %d, which it may not send; ignored", RoleText(node.role), node.name,
             m.kind_case());
}

void ClusterCore::OnSessionClosed(const SessionClosed& event) {
  const ClusterNode* node = nodes_.Closed(event.session);
  if (node == nullptr) return;
  step_.Log("%s \"%s\": its session broke", RoleText(node->role), node->name);
  ReleaseWork(node->name);
}

void ClusterCore::OnDeath(const Membership::Death& death) {
  const ClusterNode& node = *death.node;
  step_.Warn("%s \"%s\" is lost", RoleText(node.role), node.name);
  if (death.session.value != 0) {
    step_.Emit(CloseSession{death.session, absl::DeadlineExceededError("no heartbeat within the lease")});
  }
  nodes_.Save();
  ReleaseWork(node.name);
  step_.Raise(ReadinessDue{});
  if (node.role == v1::WORKER) crash_loops_.NoteEnd(node.name, /*gone=*/true);
  if (node.role == v1::WORKER) assignments_.ForgetSpeedOf(node.name);
  if (node.role == v1::PS) reconciler_.OnPsLost(node.name);
  step_.Raise(SlotsChanged{});
}

// Reassigns requests that the worker was to answer. Needed even if only the session broke, since the answer may be lost
// with it.
void ClusterCore::ReleaseWork(const NodeName& worker) {
  restores_.ReleaseWorker(worker);
  files_.ReleaseWorker(worker);
  submissions_.ReleaseWorker(worker);
  evaluations_.ReleaseWorker(worker);
  runs_.ReleaseWorker(worker);
}

}  // namespace cairn
