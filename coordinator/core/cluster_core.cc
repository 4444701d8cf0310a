#include "coordinator/core/cluster_core.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/overloaded.h"
#include "common/base/text.h"
#include "common/model/role_text.h"
#include "coordinator/core/limits.h"

namespace cairn {

ClusterCore::ClusterCore(const CoordinatorOptions& options, uint64_t incarnation, const StoredState& stored,
                         absl::Time now)
    : ground_(options, incarnation, stored, now),
      tokens_(ground_, stored),
      endings_(ground_),
      partitions_(ground_, endings_),
      workers_(ground_, endings_, partitions_),
      outputs_(ground_, endings_, partitions_, workers_),
      reasons_(ground_, endings_, partitions_.copies, outputs_.evaluations),
      submissions_(ground_, endings_, workers_.schedule, reasons_),
      runs_(ground_, {endings_, partitions_.restores, partitions_.rollback, partitions_.copies, workers_.assignments,
                      outputs_.files, outputs_.checkpoints, outputs_.epochs}),
      reconciler_(ground_, endings_, partitions_.copies, workers_.crash_loops, runs_),
      log_reads_(ground_),
      traces_(ground_),
      step_digests_(ground_) {}

std::optional<v1::JobState> ClusterCore::StateOf(JobId id) const {
  const auto found = ground_.jobs.all().find(id.value);
  return found == ground_.jobs.all().end() ? std::nullopt : std::optional(found->second.status.state());
}

absl::StatusOr<v1::JobStatus> ClusterCore::GetJob(JobId id, absl::Time now) const {
  v1::GetJobRequest request;
  request.set_job_id(id.value);
  return GetJob(request, now);
}

absl::StatusOr<v1::ListEventsResponse> ClusterCore::ListEvents(const v1::ListEventsRequest& request,
                                                               const Requester& who) const {
  const std::map<uint64_t, Job>& jobs = ground_.jobs.all();
  if (request.limit() < 0)
    return absl::InvalidArgumentError(absl::StrCat("limit: ", request.limit(), "; use 0 or more"));
  if (const auto job = jobs.find(request.job_id()); job != jobs.end()) {
    CAIRN_RETURN_IF_ERROR(who.Check(job->second.status));
  } else if (request.job_id() != 0 && (!who.everything || request.job_id() >= ground_.jobs.next_id())) {
    return absl::NotFoundError(absl::StrCat("there is no job ", request.job_id(), "; see `cairn jobs`"));
  }
  if (!request.node().empty() && ground_.nodes.Find(request.node()) == nullptr) {
    return absl::NotFoundError(
        absl::StrFormat("there is no node \"%s\"; see `cairn nodes`", request.node().substr(0, kNodeNameBytesMax)));
  }
  // What happened to a job that is deleted is for those who may see everything.
  const auto may_see = [&](uint64_t id) {
    const auto job = jobs.find(id);
    return job == jobs.end() ? who.everything : who.MayUse(job->second.status);
  };
  const auto name_of = [&](uint64_t id) {
    const auto job = jobs.find(id);
    return job == jobs.end() ? std::string() : job->second.status.spec().name();
  };
  return ground_.step.event_log().List(request, may_see, name_of);
}

Effects ClusterCore::Step(const Event& event, absl::Time now) {
  ground_.step.Begin(now);
  ground_.jobs.Begin();
  Dispatch(event);
  DeliverRaised();
  workers_.schedule.RunIfDue(std::holds_alternative<Tick>(event));
  DeliverRaised();
  ground_.jobs.SaveTold();
  DeliverRaised();
  // Nodes' progress reports, by far the most frequent events, do not settle anything.
  const auto* says = std::get_if<NodeSays>(&event);
  const bool progress = says != nullptr && (says->message.has_heartbeat() || says->message.has_replica_report() ||
                                            says->message.has_figures() || says->message.has_step_digest());
  if (!progress) ground_.nodes.SaveIfSettled();
  ground_.jobs.EmitChanged();
  return ground_.step.TakeEffects();
}

void ClusterCore::Dispatch(const Event& event) {
  std::visit(Overloaded{
                 [this](const NodeUp& e) { OnNodeUp(e); },
                 [this](const NodeSays& e) { OnNodeSays(e); },
                 [this](const SessionClosed& e) { OnSessionClosed(e); },
                 [this](const NodeRefused& e) { ground_.nodes.OnRefused(e); },
                 [this](const Tick&) { OnTick(); },
                 [this](const SubmitJob& e) { submissions_.OnSubmit(e); },
                 [this](const CancelJob& e) { endings_.OnCancel(e); },
                 [this](const DeleteJob& e) { endings_.OnDelete(e); },
                 [this](const EvaluateJob& e) { outputs_.evaluations.OnEvaluate(e); },
                 [this](const PredictJob& e) { outputs_.evaluations.OnPredict(e); },
                 [this](const PredictionTaken& e) { outputs_.evaluations.OnPredictionTaken(e.reply); },
                 [this](const PredictionGone& e) { outputs_.evaluations.OnPredictionGone(e.reply); },
                 [this](const DrainNode& e) { workers_.drains.OnDrain(e); },
                 [this](const ReadLog& e) { log_reads_.OnReadLog(e); },
                 [this](const StartTrace& e) { traces_.OnStart(e); },
                 [this](const ReadTrace& e) { traces_.OnRead(e); },
                 [this](const EndTrace& e) { traces_.OnEnd(e); },
                 [this](const CreateToken& e) { tokens_.OnCreate(e); },
                 [this](const RevokeToken& e) { tokens_.OnRevoke(e); },
             },
             event);
}

void ClusterCore::DeliverRaised() {
  while (const std::optional<DomainEvent> event = ground_.step.TakeRaised()) Dispatch(*event);
}

void ClusterCore::Dispatch(const DomainEvent& event) {
  std::visit(Overloaded{
                 [this](ReasonDue e) {
                   if (Job* job = ground_.jobs.Find(e.job); job != nullptr) reasons_.Update(*job);
                 },
                 [this](JobAdvanced e) {
                   if (Job* job = ground_.jobs.Find(e.job); job != nullptr && job->running()) runs_.Advance(*job);
                 },
                 [this](AssignmentsSent e) {
                   if (Job* job = ground_.jobs.Find(e.job); job != nullptr) outputs_.checkpoints.ConsiderBest(*job);
                 },
                 [this](CopiesChanged e) { partitions_.copy_watch.Note(e); },
                 [this](ReadinessDue e) { partitions_.copy_watch.Note(e); },
                 [this](QueueChanged e) { workers_.schedule.Note(e); },
                 [this](SlotsChanged e) {
                   workers_.crash_loops.Note(e);
                   workers_.schedule.Note(e);
                 },
                 [this](QueueLookedAt e) { reasons_.Note(e); },
             },
             event);
}

void ClusterCore::OnTick() {
  bool stored = false;  // all of them with the first
  for (const Membership::Death& death : ground_.nodes.Expire()) OnDeath(death, std::exchange(stored, true));
  ground_.nodes.Tick();
  submissions_.Tick();
  outputs_.evaluations.Tick();
  log_reads_.Tick();
  traces_.Tick();
  partitions_.copies.ForgetOldLinks();
  for (uint64_t id : ground_.jobs.ByUrgency()) {
    Job* job = ground_.jobs.Find(id);
    if (job == nullptr || job->finished()) continue;  // it may end and be forgotten during the loop
    if (job->partitions.copies.returned.empty() || !partitions_.copies.Settle(*job)) partitions_.copies.Repair(*job);
    workers_.assignments.RelieveStragglers(*job);
    if (job->active()) outputs_.files.Tick(*job);
    if (job->running()) runs_.Advance(*job);
    if (job->finalizing()) runs_.TryFinalize(*job);
    if (job->starting()) partitions_.restores.TryRestore(*job);
    if (!job->queued()) reasons_.Update(*job);
  }
  partitions_.copies.TendEnded();
  partitions_.idle_ps.Tick();
  reconciler_.Tick();
  DeliverRaised();  // what is watched is complete only now
  partitions_.copy_watch.Tick();
  reasons_.UpdateQueuedIfDue();
  workers_.schedule.Tick();
}

// ---- nodes ----

void ClusterCore::OnNodeUp(const NodeUp& event) {
  const absl::StatusOr<Membership::Admission> admission = ground_.nodes.Admit(event.session, event.hello);
  if (!admission.ok()) return;
  const ClusterNode& node = *admission->node;
  ground_.nodes.Welcome(node);
  if (node.role == v1::PS) {
    reconciler_.ReconcilePs(*admission, event.hello);
  } else {
    reconciler_.ReconcileWorker(*admission, event.hello);
  }
  if (admission->superseded.value != 0) ReleaseWork(node.name);  // answers from the old session are no longer received
  // Last: if the coordinator restarts while the new incarnation is not stored, it takes the node for a restarted one
  // and reconciles again.
  const bool may_wait = node.role != v1::PS || (admission->was_alive && admission->same_process);
  if (may_wait) {
    ground_.nodes.SaveSoon();
  } else {
    ground_.nodes.Save();
  }
  ground_.step.Raise(SlotsChanged{});
}

void ClusterCore::OnNodeSays(const NodeSays& event) {
  ClusterNode* node = ground_.nodes.Heard(event.session);
  if (node == nullptr) {  // declared dead, or superseded
    return ground_.step.Emit(CloseSession{event.session, absl::AbortedError("the session is over; open a new one")});
  }
  OnMessage(*node, event.message);
}

void ClusterCore::OnMessage(ClusterNode& node, const v1::NodeMessage& m) {
  const bool worker = node.role == v1::WORKER, ps = node.role == v1::PS;
  switch (m.kind_case()) {
    case v1::NodeMessage::kHeartbeat:
      node.load.Note(m.heartbeat(), ground_.step.now());
      workers_.drains.NoteFault(node, std::string(CutUtf8(m.heartbeat().fault(), kFaultTextMax)));
      return runs_.OnProgress(node, m.heartbeat().progress());
    case v1::NodeMessage::kDataInfo:
      if (worker && outputs_.evaluations.OnDataInfo(node, m.data_info())) return;
      if (worker) return submissions_.OnDataInfo(node, m.data_info());
      break;
    case v1::NodeMessage::kEvaluated:
      if (!ps) return outputs_.evaluations.OnEvaluated(node, m.evaluated());
      break;
    case v1::NodeMessage::kPartitionsReady:
      if (ps) return reconciler_.OnPartitionsReady(node, m.partitions_ready());
      break;
    case v1::NodeMessage::kBackupReport:
      if (ps) return partitions_.copies.OnBackupReport(node, m.backup_report());
      break;
    case v1::NodeMessage::kFigures:
      if (ps) return outputs_.epochs.OnFigures(node, m.figures());
      break;
    case v1::NodeMessage::kReplicaReport:
      if (worker) return runs_.OnReplicaReport(node, m.replica_report());
      break;
    case v1::NodeMessage::kPredicted:
      if (worker) return outputs_.evaluations.OnPredicted(node, m.predicted());
      break;
    case v1::NodeMessage::kFinalized:
      if (worker) return runs_.OnFinalized(node, m.finalized());
      break;
    case v1::NodeMessage::kCheckpoint:
      if (worker) return outputs_.checkpoints.OnCheckpoint(node, m.checkpoint());
      break;
    case v1::NodeMessage::kRestored:
      if (worker) return partitions_.restores.OnRestored(node, m.restored());
      break;
    case v1::NodeMessage::kSummariesWritten:
      if (worker) return outputs_.files.OnSummariesWritten(node, m.summaries_written());
      break;
    case v1::NodeMessage::kStepDigest:
      if (worker) return step_digests_.OnReport(node, m.step_digest());
      break;
    case v1::NodeMessage::kModelSaved:
      if (worker) return outputs_.files.OnModelSaved(node, m.model_saved());
      break;
    case v1::NodeMessage::kLogRead: return log_reads_.OnLogRead(node, m.log_read());
    case v1::NodeMessage::kTraceRead: return traces_.OnTraceRead(node, m.trace_read());
    case v1::NodeMessage::kJobError: return reconciler_.OnJobError(node, m.job_error());
    case v1::NodeMessage::kHello:
    case v1::NodeMessage::KIND_NOT_SET: break;
  }
  ground_.step.Warn(OfNode(node), "sent a message of kind %d, which it may not send; ignored", m.kind_case());
}

void ClusterCore::OnSessionClosed(const SessionClosed& event) {
  const ClusterNode* node = ground_.nodes.Closed(event.session);
  if (node == nullptr) return;
  ground_.step.Log(OfNode(*node), "has lost its session");
  ReleaseWork(node->name);
}

void ClusterCore::OnDeath(const Membership::Death& death, bool stored) {
  const ClusterNode& node = *death.node;
  ground_.step.Warn(OfNode(node), "is lost");
  if (death.session.value != 0) {
    ground_.step.Emit(CloseSession{death.session, absl::DeadlineExceededError("no heartbeat within the lease")});
  }
  if (!stored) ground_.nodes.Save();
  ReleaseWork(node.name);
  ground_.step.Raise(ReadinessDue{});
  if (node.role == v1::WORKER) workers_.crash_loops.NoteEnd(node.name, /*gone=*/true);
  if (node.role == v1::WORKER) workers_.assignments.ForgetSpeedOf(node.name);
  if (node.role == v1::PS) reconciler_.OnPsLost(node.name);
  ground_.step.Raise(SlotsChanged{});
}

// Reassigns requests that the worker was to answer. Needed even if only the session broke, since the answer may be lost
// with it.
void ClusterCore::ReleaseWork(const NodeName& worker) {
  partitions_.restores.ReleaseWorker(worker);
  outputs_.files.ReleaseWorker(worker);
  submissions_.ReleaseWorker(worker);
  outputs_.evaluations.ReleaseWorker(worker);
  runs_.ReleaseWorker(worker);
  log_reads_.ReleaseNode(worker);
  traces_.ReleaseNode(worker);
}

}  // namespace cairn
