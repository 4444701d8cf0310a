// ClusterCore: who is alive, who owns what, which jobs run. A state machine without I/O, threads or a clock
// (docs/architecture.md#processes-cores-and-nodes).
//
// Not thread-safe: one executor drives it. Step takes one event and returns what is to be done, in order; a Store is
// durable before the effects after it are carried out, so a crash between any two effects leaves a state from which the
// constructor goes on. Invariants:
//   1. A command that depends on stored state comes after its Store.
//   2. The generation of a job is raised, and stored, whenever its
//      routes change or a ps was restarted; the assignment number
//      whenever a replica changes its worker.
//   3. Partitions of a job that has run are never placed anew: a copy in sync takes the place of one
//      that is lost, else one is waited for (cluster_copies.cc). If none can come back the job fails.
//   4. While its primaries are not all ready in the present generation,
//      a job's replicas get no new commands; they retry by themselves.
//   5. Nodes, jobs, requests in flight and what waits for them are bounded (limits.h, CoordinatorOptions).
//   6. Nothing that a node or a user sends crashes it: it is refused, or ignored with a log line.
//
// Files: cluster_core.cc (dispatch, time, queries), cluster_nodes.cc (sessions, heartbeats, drains),
// cluster_reconcile.cc (what a node has, compared with what it should have), cluster_submit.cc (submission, data),
// cluster_jobs.cc (the life of a job), cluster_ended.cc (its end, and after), cluster_restore.cc (jobs filled from a
// checkpoint), cluster_reasons.cc (why it waits), cluster_copies.cc (which copy serves), cluster_repair.cc (copies are
// replaced and moved), cluster_degraded.cc (what is said of those that are missing),
// cluster_links.cc (ps that cannot reach each other), cluster_rollback.cc (going back to a common version),
// cluster_checkpoints.cc (checkpoints), cluster_schedule.cc (queue, replicas), cluster_events.cc (what a user
// is told as it happens), cluster_devices.cc (what is computed on CPUs, what on GPUs), cluster_evaluate.cc,
// cluster_predict.cc, evaluators.cc, cluster_callbacks.cc (decisions at the end of epochs), cluster_files.cc (model
// files, summaries), cluster_ends.cc (workers that die again).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"
#include "coordinator/evaluation.h"
#include "coordinator/events.h"
#include "coordinator/job.h"
#include "coordinator/membership.h"
#include "coordinator/options.h"
#include "coordinator/placement.h"
#include "coordinator/ps_links.h"
#include "coordinator/stored_state.h"
#include "coordinator/usage.h"

namespace cairn {

inline constexpr size_t kErrorTextMax = 4000;  // bytes of what a node says of a failure

class ClusterCore {
 public:
  // options: valid. incarnation: random, new for each start.
  ClusterCore(const CoordinatorOptions& options, uint64_t incarnation, const StoredState& stored, absl::Time now);

  Effects Step(const Event& event, absl::Time now);

  // Queries change nothing. Errors: NOT_FOUND.
  absl::StatusOr<v1::JobStatus> GetJob(const v1::GetJobRequest& request, absl::Time now) const;
  absl::StatusOr<v1::JobStatus> GetJob(JobId id, absl::Time now) const;
  // Newest first; without the model's layers and the placements.
  v1::ListJobsResponse ListJobs(absl::Time now) const;
  // The same jobs, each as CopyForRow (job_extract.h).
  std::vector<v1::JobStatus> JobRows(absl::Time now) const;
  v1::ListNodesResponse ListNodes() const;

 private:
  // A Submit whose data is being looked at; not a job yet.
  struct Submission {
    std::vector<ReplyToken> replies;
    std::shared_ptr<const CheckedJob> checked;
    std::string request_key;
    absl::Time since;
  };
  struct Inspection {
    uint64_t submission = 0;  // or
    uint64_t job = 0;
    NodeName worker;
    std::set<NodeName> tried;
    absl::Time deadline;
    std::map<NodeName, std::string> failed;  // that do not see the data, for a reason of their own
    NodeName first_failed;
  };
  // cluster_nodes.cc
  absl::Status CheckCluster(const v1::Hello& hello) const;
  void NoteRefusal(const NodeName& name, std::string why);
  void OnNodeUp(const NodeUp& event);
  void OnNodeSays(const NodeSays& event);
  void OnSessionClosed(const SessionClosed& event);
  void OnDeath(const Membership::Death& death);
  void NoteEnd(const NodeName& worker, bool gone);
  void LeaveOutWhoLostDevice(const ClusterNode& worker);
  void LeaveOutWhoEnds(const ClusterNode& worker);
  void ReconcilePs(const Membership::Admission& admission, const v1::Hello& hello);
  void ReconcilePsJob(Job& job, const Membership::Admission& admission, const v1::HeldPartitions* held);
  void ReconcileWorker(const Membership::Admission& admission, const v1::Hello& hello);
  void OnHeartbeat(ClusterNode& node, const v1::Heartbeat& heartbeat);
  void NoteLostMemory(Job& job, const ClusterNode& node, const v1::HeldPartitions* held);
  void OnPartitionsReady(const ClusterNode& node, const v1::PartitionsReady& ready);
  void OnReplicaReport(const ClusterNode& node, const v1::ReplicaReport& report);
  void OnFigures(const ClusterNode& node, const v1::FiguresReport& report);
  void SendFiguresStored(const Job& job);
  void OnJobError(const ClusterNode& node, const v1::JobError& error);
  void ReleaseWork(const NodeName& worker);
  bool OthersMayWork(const Job& job, const NodeName& worker);
  bool OthersServe(const Job& job, const NodeName& ps) const;
  void LeavePsOut(Job& job, const ClusterNode& node, const std::string& message);
  void OnDrain(const DrainNode& event);
  void NoteFault(ClusterNode& node, const std::string& fault);
  std::string FaultsText() const;
  v1::NodeStatus NodeStatusOf(const NodeName& name) const;
  v1::NodeStatus NodeStatusWithoutPartitions(const NodeName& name) const;

  // cluster_events.cc
  void TellText(Job& job, bool warning, const std::string& text);
  std::string TroubleText(const Job& job, const NodeName& name) const;
  using ReplicaMoves = std::map<NodeName, std::map<NodeName, std::vector<int32_t>>>;
  void TellMoves(Job& job, const ReplicaMoves& moves, const std::string& why);
  static std::vector<NodeName> PrimariesOf(const Job& job);
  void TellPromotions(Job& job, const std::vector<NodeName>& before);
  std::set<NodeName> LeavingHolders(const Job& job) const;
  void TellDrain(const ClusterNode& node);

  // cluster_submit.cc
  void OnSubmit(const SubmitJob& event);
  void StartInspection(Inspection inspection);
  void OnDataInfo(const ClusterNode& node, const v1::DataInfoReply& reply);
  void NoWorkerForInspection(const Inspection& inspection);
  void LeaveOutBlind(Job& job, const Inspection& inspection);
  std::vector<ClusterNode*> Askable(v1::Role role, const Job* job, bool computes = false);
  // reply: a worker's; null: there is none.
  void Accept(Submission submission, const v1::DataInfoReply* reply, const Inspection* inspection = nullptr);
  void ResolveDefaults(Job& job);
  void TickInspections();

  // cluster_jobs.cc
  // The only place where a job's state changes (job_state.h).
  void Transition(Job& job, v1::JobState to);
  void StartJob(Job& job, std::vector<WorkerCapacity> workers);
  absl::Status LayOut(Job& job);
  void PlaceAnew(Job& job);
  void HostAll(Job& job, bool anew);
  void Host(const Job& job, ClusterNode& ps, bool anew);
  void NewGeneration(Job& job, uint64_t at_least = 0);
  bool MarkReady(Job& job, const NodeName& ps, const v1::HeldPartition& held);
  void AllReady(Job& job);
  void Advance(Job& job);
  void BeginFinalizing(Job& job);
  void BackToRunning(Job& job);
  void NoteFinalVersions(Job& job);
  void TryFinalize(Job& job);
  void OnFinalized(const ClusterNode& node, const v1::FinalizeReply& reply);
  void FinalizeFailed(Job& job, const std::string& why);

  // cluster_ended.cc
  absl::StatusOr<Job*> FindOnly(const std::string& name, const char* action, bool (Job::*fits)() const);
  void OnCancel(const CancelJob& event);
  void OnDelete(const DeleteJob& event);
  static void NoteShortfall(Job& job, int epoch, const char* callback, const std::string& text);
  void NoteFinite(Job& job);
  std::string ShortfallText(const Job& job, const std::string& variable) const;
  void EndComplete(Job& job, const std::string& variable_not_finite);
  void EndJob(Job& job, v1::JobState state, std::string reason);
  void Forget(uint64_t job_id);
  void DropFromNodes(uint64_t job_id, v1::Role role);
  std::string ForgetReason(const Job& job, int newer) const;
  void ForgetEnded();
  absl::Status CheckRoomForEnded() const;

  // cluster_reasons.cc
  std::string QueuedReason(const Job& job) const;
  void UpdateQueuedReasons();
  void SetReason(Job& job, std::string reason);
  std::string Reason(const Job& job) const;
  std::string KeepReason(const Job& job) const;
  static std::string NotFiniteText(const Job& job);
  std::string LastingText(const Job& job) const;
  std::string WarningText(const Job& job) const;
  void UpdateReason(Job& job);
  NodeName MissingPs(const Job& job) const;

  // cluster_copies.cc
  enum class SettleResult { kSame, kChanged, kLost };
  const ClusterNode* UsablePs(const Job& job, const NodeName& name) const;
  bool LeftOut(const Job& job, const ClusterNode& node) const;
  size_t PsThere(const Job& job);
  std::vector<PsLoad> PsLoads(const Job& job, bool with_own = true);
  void NoteReturned(Job& job, const ClusterNode& node, const v1::HeldPartitions* held);
  bool SettleCopies(Job& job);
  SettleResult SettlePartition(Job& job, v1::PartitionPlacement& p);
  uint64_t LeastVersion(const Job& job, uint32_t partition) const;
  SettleResult SettleFromDisk(Job& job, v1::PartitionPlacement& p);
  void LoseWeights(Job& job, const std::string& why);
  void MakePrimary(Job& job, v1::PartitionPlacement& p, const NodeName& heir, bool planned = false);
  bool StaysComplete(const Job& job, uint32_t partition, const NodeName& name) const;
  void BeginCopiesAnew(Job& job);
  bool EndFormers(Job& job);
  bool Draining(const NodeName& name) const;

  // cluster_repair.cc
  void OnBackupReport(const ClusterNode& node, const v1::BackupReport& report);
  bool Recruit(Job& job);
  bool MayRecruit(const NodeName& ps, const std::map<NodeName, int>& more) const;
  void RepairCopies(Job& job);
  std::vector<uint64_t> ByUrgency() const;
  bool EndedAndDue(const Job& job) const;
  void TendEnded();
  void TendEndedJob(Job& job);
  bool Move(Job& job, v1::PartitionPlacement& p, size_t there);
  void PlanMoves(Job& job);

  // cluster_degraded.cc
  void LookAtCopies(Job& job);
  std::string MendText(const Job& job);
  std::string DegradedText(const Job& job);
  void UpdateDegraded(Job& job);
  void TickCopies();
  void TellReadiness();

  // cluster_rollback.cc
  static bool AllCameBack(const Job& job);
  bool FallBack(Job& job);
  bool GoOnFromWhatIsLeft(Job& job);
  std::string CopiesReason(const Job& job) const;

  // cluster_links.cc
  bool TakeLostAway(Job& job, bool* stored);
  std::string LinksText(const Job& job) const;

  // cluster_checkpoints.cc
  void OnCheckpoint(const ClusterNode& node, const v1::CheckpointReport& report);
  void OnFormerChiefsCheckpoint(Job& job, const ClusterNode& node, const v1::CheckpointReport& report);
  void NoteWritten(Job& job, v1::CheckpointInfo info);
  void CheckpointsChanged(Job& job);
  static void NoteFailedCheckpoint(Job& job, int64_t step);
  void ConsiderBest(Job& job);
  void SendMarkBest(Job& job, int64_t step, double monitored);
  static void TakeFacts(const v1::CheckpointFacts& facts, v1::JobSpec& spec);
  void TryRestore(Job& job);
  static void RefreshRestoreFrom(Job& job);
  void OnRestored(const ClusterNode& node, const v1::RestoreReply& reply);
  void RestoreFailed(Job& job, const std::string& why, bool silent);
  void ReleaseRestores(const NodeName& worker);
  static std::vector<std::string> CheckpointsToGoOnFrom(const Job& job);
  bool RestoreInstead(Job& job, const std::string& why);

  // cluster_callbacks.cc
  float RateAt(const Job& job, int64_t step) const;
  void OpenEpochs(Job& job, int done);
  bool Undecided(const Job& job) const;
  void DecideEpochs(Job& job);
  bool CheckpointMayCome(Job& job, int epoch);
  bool FilesHoldUp(Job& job, int epoch);
  void AddSavesOf(Job& job, int epoch, const std::vector<std::string>& paths);
  void Decide(Job& job, int epoch);
  int64_t EpochsCode(const Job& job) const;
  void AddSave(Job& job, int64_t step, std::string path);
  void SaveAtStep(Job& job, int64_t step);
  void SendSaves(Job& job);
  void OnModelSaved(const ClusterNode& node, const v1::ModelSaved& saved);
  void NoteStepFigures(Job& job);
  void SendSummaries(Job& job);
  void OnSummariesWritten(const ClusterNode& node, const v1::SummariesWritten& written);
  const ClusterNode* ChiefOrAnother(const Job& job);
  void TickCallbacks(Job& job);
  void ReleaseCallbacks(const NodeName& worker);
  bool FilesWritten(Job& job);
  std::string StopText(const Job& job) const;
  bool LastCheckpointMayCome(const Job& job) const;
  bool SavesHoldUp(Job& job) const;
  static const v1::CheckpointInfo* BestCheckpoint(const Job& job);
  static std::vector<std::string> BestPaths(const Job& job);
  bool EndWithoutBest(Job& job, const std::string& why);
  bool RestoreBest(Job& job);
  void MarkBestEpoch(Job& job);
  void RemoveBackup(Job& job);

  // cluster_schedule.cc
  void Schedule(bool all);
  int32_t FreeSlots(const ClusterNode& worker) const;
  std::vector<WorkerCapacity> FreeWorkers(const Job& job);
  bool MayWork(const Job& job, const ClusterNode& worker) const;
  std::vector<WorkerCapacity> WorkersFor(const Job& job, bool may_change_device);
  bool StartQueued();
  static std::vector<NodeName> PlaceUnits(const Job& job, std::vector<WorkerCapacity> workers);
  void Rebalance(Job& job, bool may_grow);
  void RelieveStragglers(Job& job);
  void SetOwners(Job& job, const std::vector<NodeName>& owners, const std::string& why = "");
  void SendAssignments(Job& job);

  // cluster_devices.cc
  static bool Computes(const v1::JobSpec& spec, const ClusterNode& node);
  static bool Fits(const v1::JobSpec& spec, const ClusterNode& worker);
  static std::vector<v1::Device> PreferredDevices(const Job& job);
  static size_t WorkersNeeded(const Job& job);
  // What decides whether a queued job can start, and why it does not: the same for many jobs.
  using Needs = std::tuple<v1::DataType, v1::Device, size_t, int32_t>;  // compute_dtype, device, workers, backups
  static Needs NeedsOf(const Job& job);
  size_t MostOfOneDevice(const Job& job, bool free) const;
  void NoteDevices(Job& job) const;
  std::string NobodyComputesText(const Job& job, v1::Role role) const;
  std::string NobodyFitsText(const Job& job) const;
  std::string BitsText(const Job& job) const;

  // cluster_evaluate.cc
  void BeginEvaluation(ReplyToken reply, const v1::EvaluateRequest& request, bool predict, absl::Time deadline);
  absl::Status CheckEvaluate(const Job& job, const Evaluation& evaluation) const;
  void InspectForEvaluation(uint64_t request_id, Evaluation& evaluation);
  bool OnEvaluationData(const ClusterNode& node, const v1::DataInfoReply& reply);
  void CutIntoShards(uint64_t request_id, uint64_t examples);
  bool PsWentAway(const Job& job, const Evaluation::Shard& shard) const;
  void SendShards(uint64_t request_id, Evaluation& evaluation);
  void OnEvaluated(const ClusterNode& node, const v1::EvaluateShardReply& reply);
  void ShardDone(uint64_t request_id, uint32_t shard, const v1::EvaluateShardReply& reply);
  void EndEvaluation(uint64_t request_id, absl::Status status);
  void ReleaseShards(const NodeName& worker);
  void TickEvaluations();

  // evaluators.cc
  void TickEvaluators();
  void FollowCheckpoints(Job& job);
  void OnCheckpointEvaluated(const Evaluation& evaluation, const absl::Status& status);
  std::string EvaluatorsText(const Job& job) const;

  // cluster_predict.cc
  absl::Status CutPrediction(const Job& job, Evaluation& evaluation);
  void OnPredicted(const ClusterNode& node, const v1::PredictBlock& block);
  void Deliver(uint64_t request_id, Evaluation& evaluation);
  void OnPredictionTaken(ReplyToken reply);
  void OnPredictionGone(ReplyToken reply);

  // cluster_core.cc
  void OnTick();
  Job* Find(uint64_t job_id);
  const Job* Find(const v1::GetJobRequest& request) const;
  v1::JobStatus StatusOf(const Job& job) const;
  v1::JobStatus StatusOf(const Job& job, absl::Time now) const;
  void FillRunning(const Job& job, absl::Time now, v1::JobStatus& status) const;
  void StoreJob(const Job& job);
  void StoreCluster();
  std::set<NodeName> Unsettled() const;
  void Changed(const Job& job) { changed_.insert(job.id()); }
  void Send(const ClusterNode& node, v1::CoordinatorMessage message);
  void ReplyError(ReplyToken token, absl::Status status);
  template <typename T>
  void Emit(T effect) {
    effects_.emplace_back(std::in_place_type<T>, std::move(effect));
  }
  uint64_t NextRequestId() { return ++last_request_id_; }
  template <typename... Args>
  void Log(const absl::FormatSpec<Args...>& format, const Args&... args) {
    Emit(LogLine{false, absl::StrFormat(format, args...)});
  }
  template <typename... Args>
  void Warn(const absl::FormatSpec<Args...>& format, const Args&... args) {
    Emit(LogLine{true, absl::StrFormat(format, args...)});
  }
  // What happened to the job: a log line, and one of its events, which is stored by the end of the Step.
  template <typename... Args>
  void Tell(Job& job, const absl::FormatSpec<Args...>& format, const Args&... args) {
    TellText(job, false, absl::StrFormat(format, args...));
  }
  template <typename... Args>
  void TellWarning(Job& job, const absl::FormatSpec<Args...>& format, const Args&... args) {
    TellText(job, true, absl::StrFormat(format, args...));
  }

  const CoordinatorOptions options_;
  const uint64_t incarnation_;
  const uint64_t cluster_id_;
  bool cluster_id_stored_;
  Membership members_;
  std::map<uint64_t, Job> jobs_;  // by id, so by age
  uint64_t next_job_id_ = 1;
  std::set<NodeName> unsettled_stored_;  // as the stored state of the cluster has it

  std::map<uint64_t, Submission> submissions_;  // by a number of their own
  std::map<uint64_t, Inspection> inspections_;  // by request id
  std::map<uint64_t, Evaluation> evaluations_;  // by request id
  std::map<NodeName, std::string> refused_;     // nodes, and why: what is logged once
  uint64_t last_tended_ = 0;                    // the ended job whose turn was last
  PsLinks links_;
  uint64_t last_submission_ = 0;
  uint64_t last_request_id_;

  // Of the Step that runs.
  absl::Time now_;
  Effects effects_;
  std::set<uint64_t> changed_;
  std::set<uint64_t> copies_due_;       // jobs whose copies, or whose nodes, have changed: to be looked at (TickCopies)
  bool readiness_due_ = false;          // a ps is to be told whether it is ready
  std::set<uint64_t> events_unstored_;  // jobs that were told something since their last Store
  Usage usage_;
  StoredEpochs stored_epochs_;
  std::vector<std::string> orphans_;  // keys to be deleted
  bool reschedule_ = false;           // nodes or slots came or went: the queue, and who computes what of all jobs
  bool queue_due_ = false;            // a job was queued: the queue
  bool reasons_due_ = false;          // the queue was looked at since the last Tick
  bool someone_waits_ = false;        // for slots that others use, or for nodes that are to come back
  bool settling_ = true;              // at the last Tick
  absl::Time queue_at_ = absl::InfinitePast();  // when it is looked at in any case
};

}  // namespace cairn
