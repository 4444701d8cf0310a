// Nodes: sessions, deaths, heartbeats, errors and drains. What a node has: cluster_reconcile.cc.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/text.h"
#include "common/model/loss_scale.h"
#include "common/model/role_text.h"
#include "coordinator/cluster_core.h"
#include "coordinator/copies.h"

namespace cairn {
namespace {

constexpr size_t kRefusalsKept = 1000;
constexpr size_t kLeftOutTextMax = 500;  // of what is shown as long as the job runs

}  // namespace

// A ps drops the jobs that its coordinator does not know: it must be the one that gave them to it.
absl::Status ClusterCore::CheckCluster(const v1::Hello& hello) const {
  if (hello.cluster_id() == 0 || hello.cluster_id() == cluster_id_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("hello.cluster_id: the data directory of ps \"%s\" holds jobs of cluster %016x, this "
                      "coordinator's cluster is %016x; check the ps' "
                      "--coordinator and this coordinator's --data-dir or --state; if what the ps holds is not needed, "
                      "start it with an empty --data-dir",
                      hello.name().substr(0, 63), hello.cluster_id(), cluster_id_));
}

// It tries again every second.
void ClusterCore::NoteRefusal(const NodeName& name, std::string why) {
  if (refused_.size() >= kRefusalsKept && !refused_.contains(name)) refused_.clear();
  std::string& known = refused_[name];
  if (known == why) return;
  Warn("a node called \"%s\" was refused: %s", name, why);
  known = std::move(why);
}

void ClusterCore::OnNodeUp(const NodeUp& event) {
  const absl::Status ours = CheckCluster(event.hello);
  absl::StatusOr<Membership::Admission> admission = ours.ok() ? members_.Admit(event.session, event.hello, now_) : ours;
  if (!admission.ok()) {
    NoteRefusal(event.hello.name().substr(0, 63), std::string(admission.status().message()));
    Emit(CloseSession{event.session, admission.status()});
    return;
  }
  const ClusterNode& node = *admission->node;
  refused_.erase(node.name);
  if (admission->superseded.value != 0) {
    Emit(CloseSession{admission->superseded, absl::AbortedError("the node opened a newer session")});
  }
  if (!admission->was_alive) {
    const std::string what = node.role == v1::PS ? absl::StrCat("at ", node.address)
                                                 : absl::StrFormat("%d slots, %s", node.slots, node.device);
    Log("%s \"%s\" joined (%s)", RoleText(node.role), node.name, what);
  } else {
    Log("%s \"%s\" %s", RoleText(node.role), node.name,
        admission->same_process ? "is connected again" : "was restarted");
  }
  v1::CoordinatorMessage message;
  v1::Welcome& welcome = *message.mutable_welcome();
  welcome.set_heartbeat_interval_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(options_.heartbeat_interval)));
  welcome.set_lease_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(options_.lease)));
  welcome.set_coordinator_incarnation(incarnation_);
  welcome.set_cluster_id(cluster_id_);
  if (!cluster_id_stored_) StoreCluster();
  Send(node, std::move(message));
  if (node.role == v1::PS) {
    ReconcilePs(*admission, event.hello);
  } else {
    ReconcileWorker(*admission, event.hello);
  }
  if (admission->superseded.value != 0) ReleaseWork(node.name);  // what it answered in the old session is not heard
  // Last: while the new incarnation is not stored, a restart of ours takes the node for one that was started anew, and
  // reconciles again.
  StoreCluster();
  reschedule_ = true;
}

void ClusterCore::OnNodeSays(const NodeSays& event) {
  ClusterNode* node = members_.Heard(event.session, now_);
  if (node == nullptr) {  // declared dead, or superseded
    Emit(CloseSession{event.session, absl::AbortedError("the session is over; open a new one")});
    return;
  }
  const v1::NodeMessage& m = event.message;
  const bool worker = node->role == v1::WORKER, ps = node->role == v1::PS;
  switch (m.kind_case()) {
    case v1::NodeMessage::kHeartbeat: return OnHeartbeat(*node, m.heartbeat());
    case v1::NodeMessage::kPartitionsReady:
      if (ps) return OnPartitionsReady(*node, m.partitions_ready());
      break;
    case v1::NodeMessage::kReplicaReport:
      if (worker) return OnReplicaReport(*node, m.replica_report());
      break;
    case v1::NodeMessage::kDataInfo:
      if (worker) return OnDataInfo(*node, m.data_info());
      break;
    case v1::NodeMessage::kEvaluated:
      if (!ps) return OnEvaluated(*node, m.evaluated());
      break;
    case v1::NodeMessage::kPredicted:
      if (worker) return OnPredicted(*node, m.predicted());
      break;
    case v1::NodeMessage::kFinalized:
      if (worker) return OnFinalized(*node, m.finalized());
      break;
    case v1::NodeMessage::kJobError: return OnJobError(*node, m.job_error());
    case v1::NodeMessage::kBackupReport:
      if (ps) return OnBackupReport(*node, m.backup_report());
      break;
    case v1::NodeMessage::kCheckpoint:
      if (worker) return OnCheckpoint(*node, m.checkpoint());
      break;
    case v1::NodeMessage::kRestored:
      if (worker) return OnRestored(*node, m.restored());
      break;
    case v1::NodeMessage::kSummariesWritten:
      if (worker) return OnSummariesWritten(*node, m.summaries_written());
      break;
    case v1::NodeMessage::kModelSaved:
      if (worker) return OnModelSaved(*node, m.model_saved());
      break;
    case v1::NodeMessage::kFigures:
      if (ps) return OnFigures(*node, m.figures());
      break;
    case v1::NodeMessage::kHello:
    case v1::NodeMessage::KIND_NOT_SET: break;
  }
  Warn("%s \"%s\" sent a message of kind %d, which is not its to send; ignored", RoleText(node->role), node->name,
       m.kind_case());
}

void ClusterCore::OnSessionClosed(const SessionClosed& event) {
  const ClusterNode* node = members_.Closed(event.session, now_);
  if (node == nullptr) return;
  Log("%s \"%s\": its session broke", RoleText(node->role), node->name);
  ReleaseWork(node->name);
}

void ClusterCore::OnDeath(const Membership::Death& death) {
  const ClusterNode& node = *death.node;
  Warn("%s \"%s\" is lost", RoleText(node.role), node.name);
  if (death.session.value != 0) {
    Emit(CloseSession{death.session, absl::DeadlineExceededError("no heartbeat within the lease")});
  }
  StoreCluster();
  ReleaseWork(node.name);
  if (node.role == v1::WORKER) {
    NoteEnd(node.name, /*gone=*/true);
    for (auto& [id, job] : jobs_) job.stragglers.Forget(node.name);
  }
  if (node.role == v1::PS) {
    for (const uint64_t id : ByUrgency()) {
      Job& job = jobs_.at(id);
      if (job.queued() || !job.UsesPs(node.name)) continue;
      if (job.finished()) {
        job.settle_due = true;
        continue;
      }
      if (!job.ran()) {
        PlaceAnew(job);
      } else if (!SettleCopies(job) && job.PrimariesOn(node.name) > 0) {
        TellWarning(job, "waits for ps \"%s\"", node.name);
      }
      UpdateReason(job);
    }
  }
  reschedule_ = true;
}

// Requests that the worker was to answer are asked of another one. Also after a mere broken session: the answer may be
// lost with it.
void ClusterCore::ReleaseWork(const NodeName& worker) {
  ReleaseRestores(worker);
  ReleaseCallbacks(worker);
  std::vector<Inspection> inspections;
  for (auto it = inspections_.begin(); it != inspections_.end();) {
    if (it->second.worker == worker) {
      inspections.push_back(std::move(it->second));
      it = inspections_.erase(it);
    } else {
      ++it;
    }
  }
  for (Inspection& inspection : inspections) {
    if (inspection.submission == 0 && (Find(inspection.job) == nullptr || !Find(inspection.job)->queued())) continue;
    StartInspection(std::move(inspection));
  }
  ReleaseShards(worker);
  for (auto& [id, job] : jobs_) {
    if (!job.finalizing() || job.finalize_worker != worker) continue;
    job.finalize_worker.clear();
    job.finalize_at = now_;
    TryFinalize(job);
  }
}

void ClusterCore::OnHeartbeat(ClusterNode& node, const v1::Heartbeat& heartbeat) {
  node.memory_bytes = heartbeat.memory_bytes();
  NoteFault(node, std::string(CutUtf8(heartbeat.fault(), kFaultTextMax)));
  for (const v1::JobProgress& progress : heartbeat.progress()) {
    Job* job = Find(progress.job_id());
    if (job == nullptr || !job->running() || !job->progress) continue;
    // Of before the job fell back, or was filled from a checkpoint.
    if (progress.generation() < std::max(job->rollback_generation, job->restored_in)) continue;
    if (!job->ReplicasOf(node.name).empty()) job->stragglers.Heard(node.name, progress.replica_ms(), now_);
    if (node.name == job->status.chief() && job->status.spec().compute_dtype() == v1::FLOAT16 &&
        IsLossScale(progress.loss_scale()))
      job->status.set_loss_scale(progress.loss_scale());
    job->progress->Reached(job->ReplicasOf(node.name), progress.step(), now_);
    Advance(*job);
    Changed(*job);
  }
}

void ClusterCore::OnReplicaReport(const ClusterNode& node, const v1::ReplicaReport& report) {
  Job* job = Find(report.job_id());
  if (job == nullptr || !job->running() || !job->progress) return;                         // it ended meanwhile
  if (report.generation() < std::max(job->rollback_generation, job->restored_in)) return;  // likewise
  absl::StatusOr<bool> counted = job->progress->Count(report, job->status, now_);
  if (!counted.ok()) {
    return Warn("job %d: worker \"%s\" sent a report that does not fit it (%s); ignored", job->id(), node.name,
                counted.status().message());
  }
  if (!*counted) return;
  if (report.finished()) StoreJob(*job);
  Advance(*job);
  Changed(*job);
}

void ClusterCore::OnJobError(const ClusterNode& node, const v1::JobError& error) {
  Job* job = Find(error.job_id());
  if (job == nullptr || !job->active()) return;
  if (error.generation() != 0 && error.generation() != job->status.generation()) return;  // superseded
  const std::string message =
      absl::StrFormat("%s \"%s\": %s", RoleText(node.role), node.name, CutUtf8(error.message(), kErrorTextMax));
  if (!job->UsesPs(node.name) && job->ReplicasOf(node.name).empty()) {
    return Warn("job %d: %s, which has no part in it; ignored", job->id(), message.substr(0, 1000));
  }
  if (node.role == v1::PS) return LeavePsOut(*job, node, message);
  if (!error.worker_only() || !OthersMayWork(*job, node.name)) return EndJob(*job, v1::FAILED, message);
  TellWarning(*job, "goes on without %s", message);
  job->left_out[node.name] = {node.incarnation, std::string(CutUtf8(message, kLeftOutTextMax))};
  reschedule_ = true;
  UpdateReason(*job);
  StoreJob(*job);
}

// The ps, as it is, is of no use to the job: it begins or goes on with others, or fails for that reason.
void ClusterCore::LeavePsOut(Job& job, const ClusterNode& node, const std::string& message) {
  const bool others = !job.ran() || OthersServe(job, node.name);
  job.left_out[node.name] = {node.incarnation, std::string(CutUtf8(message, kLeftOutTextMax))};
  StoreJob(job);
  if (!job.active()) return Warn("job %d: %s", job.id(), message);
  // One that was started goes on with fewer copies: it is filled from a checkpoint just now.
  const size_t least = job.status.started_unix_ms() == 0 ? static_cast<size_t>(1 + job.status.spec().backups()) : 1;
  if (!others || (!job.ran() && PsThere(job) < least)) {
    return EndJob(job, v1::FAILED, message);
  }
  TellWarning(job, "%s without %s", job.ran() ? "goes on" : "begins", message);
  if (job.ran()) {
    SettleCopies(job);
  } else {
    PlaceAnew(job);
  }
  UpdateReason(job);
  Changed(job);
}

// Whether the job can go on without this worker.
bool ClusterCore::OthersMayWork(const Job& job, const NodeName& worker) {
  const std::vector<ClusterNode*> workers = members_.Connected(v1::WORKER);
  return std::any_of(workers.begin(), workers.end(),
                     [&](const ClusterNode* w) { return w->name != worker && MayWork(job, *w); });
}

// Whether every partition that this ps serves has another copy that can be promoted, as soon as its ps is connected:
// after a change of the leader it may not be yet.
bool ClusterCore::OthersServe(const Job& job, const NodeName& ps) const {
  return std::all_of(job.status.partitions().begin(), job.status.partitions().end(), [&](const auto& p) {
    if (p.primary() != ps) return true;
    return std::any_of(p.backups().begin(), p.backups().end(), [&](const v1::BackupPlacement& b) {
      const ClusterNode* node = UsablePs(job, b.node());
      return Complete(b) && node != nullptr && !job.returned.contains({p.partition(), b.node()});
    });
  });
}

// ---- drains, faults ----

// A ps says that its store is of no use, a worker that its device is lost: it is given nothing more, and what it has
// moves away as from one that is drained.
void ClusterCore::NoteFault(ClusterNode& node, const std::string& fault) {
  if (node.fault == fault) return;
  node.fault = fault;
  const char* const what = node.role == v1::PS ? "partitions" : "replicas";
  if (!fault.empty()) Warn("%s \"%s\" has failed and is given no %s: %s", RoleText(node.role), node.name, what, fault);
  if (!fault.empty() && node.role == v1::WORKER) LeaveOutWhoLostDevice(node);
  reschedule_ = true;
}

std::string ClusterCore::FaultsText() const {
  std::string text;
  for (const auto& [name, node] : members_.nodes()) {
    if (node.alive && node.role == v1::PS && !node.fault.empty())
      absl::StrAppendFormat(&text, "; ps \"%s\": %s", name, node.fault);
  }
  return text;
}

void ClusterCore::OnDrain(const DrainNode& event) {
  const NodeName& name = event.request.name();
  ClusterNode* node = members_.Find(name);
  if (node == nullptr) {
    return ReplyError(event.reply, absl::NotFoundError(absl::StrFormat("there is no node \"%s\"; see `cairn nodes`",
                                                                       name.substr(0, 63))));
  }
  const bool draining = !event.request.undo();
  if (draining && node->role == v1::PS && NodeStatusOf(name).partitions() > 0) {
    const std::vector<ClusterNode*> all = members_.Connected(v1::PS);
    const bool others =
        std::any_of(all.begin(), all.end(), [&](const ClusterNode* n) { return n->name != name && !n->leaving(); });
    if (!others) {
      return ReplyError(event.reply,
                        absl::FailedPreconditionError(absl::StrFormat(
                            "ps \"%s\" holds partitions, and no other ps is there to take them; start one", name)));
    }
  }
  if (node->draining != draining) {
    node->draining = draining;
    StoreCluster();
    Log("%s \"%s\" %s", RoleText(node->role), name, draining ? "is drained" : "may work again");
    if (node->role == v1::PS) TellDrain(*node);
    reschedule_ = true;
  }
  Emit(Reply{event.reply, absl::OkStatus(), NodeStatusOf(name)});
}

}  // namespace cairn
