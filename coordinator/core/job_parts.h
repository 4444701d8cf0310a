// The state that each part of the core keeps for one job (component.h). Job holds one of each.
//
// Each struct has one owner, the part that its comment names first: only the owner writes the fields. Where a decision
// of another part invalidates state (a new generation, a fall back), that part calls a function of the struct. LoadJob
// fills all of them. Fields marked "stored" survive a restart of the coordinator (StoredJob); the rest is learned again
// from the nodes, or starts over.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/ids.h"
#include "common/model/job_check.h"
#include "coordinator/core/ps_links.h"
#include "coordinator/core/stragglers.h"

namespace cairn {

// A request to a worker.
struct Asked {
  NodeName worker;  // empty: none
  absl::Time until = absl::InfinitePast();
  absl::Time not_before = absl::InfinitePast();  // no new request before this time
};

// Reasons: JobStatus.reason.
struct JobReason {
  absl::Time since;
  bool logged = false;
};

// Submissions: QUEUED.
struct JobQueueing {
  std::string request_key;  // stored
  // Needed to check the data and to cut the parameter space.
  std::shared_ptr<const CheckedJob> checked;
  bool inspecting = false;  // a worker is looking at the data
  absl::Time inspect_after = absl::InfinitePast();

  // The job starts, or has ended.
  void Leave() { checked.reset(); }
};

// Hosting: what the ps have answered in the present generation.
struct JobHosting {
  bool awaiting_ready = false;          // some ps has not answered the HostPartitions of this generation yet
  std::vector<bool> ready;              // by partition, in this generation
  std::vector<uint64_t> versions;       // by partition: the highest that its ps has reported
  std::vector<v1::HeldPartition> held;  // by partition, with `ready`: what its primary said

  // Every ps has answered, or the answers are no longer awaited.
  void EndWait() { awaiting_ready = false; }
  // All partitions continue from `version`; versions reported before are void.
  void SetVersions(uint64_t version) { versions.assign(versions.size(), version); }
  // Another copy serves the partition: the version reported by the previous one is void.
  void SetVersion(uint32_t partition, uint64_t version) { versions[partition] = version; }
};

// Rollback: whether the partitions go back to an earlier version. Stored (StoredJob.rollback_generation and so on).
struct JobRollback {
  uint64_t generation = 0;  // the last one that rolled them back: reports of earlier generations are ignored
  uint64_t to = 0;
  bool under_way = false;
  bool recovered = false;  // a partition was recovered from a disk: the versions have to be checked

  // When all partitions are ready, the version to which they go back has to be determined.
  void NeedsCheck() { recovered = true; }
  // The check was made, or is void.
  void EndCheck() { recovered = false; }
  // Every ps has reported its partitions ready. False: no rollback was under way.
  bool End() { return std::exchange(under_way, false); }
  // Reports of generations before this one are ignored from now on.
  void RefuseBefore(uint64_t present) { generation = present; }
  void Forget() { recovered = under_way = false; }
};

// Reconciler: what ps reported in Hello.
struct JobReconciling {
  // Ps whose process was restarted and has not answered a HostPartitions of the present generation: the partitions in
  // its Hello are those on its disk.
  std::set<NodeName> untold;
};

// Copies: in every state once there are partitions.
struct JobCopies {
  struct Returned {
    absl::Time since;
    std::optional<v1::HeldPartition> held;  // nullopt: not on its disk
  };
  // Copies whose process was restarted and that have had no role since: what their disk holds.
  std::map<std::pair<uint32_t, NodeName>, Returned> returned;
  std::set<std::pair<uint32_t, NodeName>> caught_up;         // backups, as reported in this generation, not stored yet
  std::map<std::pair<uint32_t, NodeName>, LinkLoss> lost;    // backups that their primary cannot reach, likewise
  std::map<uint32_t, NodeName> moves;                        // by partition: where its primary is to move, for balance
  std::map<uint32_t, std::pair<NodeName, NodeName>> shifts;  // by partition: the move of a backup, likewise: from, to
  bool repair_due = true;                                    // something changed since the last Repair
  // For an ended job, pending until its turn (TendEnded): ps came or went; the ps have to be told their roles again, in
  // a new generation.
  bool settle_due = false, renew_due = false;
  absl::Time balance_at = absl::InfinitePast();

  // Reports of the previous generation are void.
  void BeginGeneration() {
    caught_up.clear();
    lost.clear();
    repair_due = true;
  }
  void RepairLater() { repair_due = true; }
  void SettleLater(bool renew) {
    settle_due = true;
    renew_due = renew_due || renew;
  }
  // The copies are placed again; disks that came back no longer matter.
  void ForgetReturned() { returned.clear(); }
  void BeginAnew() {
    returned.clear();
    moves.clear();
    shifts.clear();
  }
};

// CopyWatch: which copies were missing at the last look.
struct JobCopyWatch {
  struct Lack {
    int partitions = 0;              // with fewer backups in sync than the job asks for
    int mendable = 0;                // with fewer than the present ps allow, while their primary serves
    std::map<NodeName, int> behind;  // by ps: partitions that it should hold, but has incomplete or not loaded
  };
  Lack lack;
  absl::Time lacking_since = absl::InfiniteFuture();
};

// Assignments: workers that are slower than the others.
struct JobStragglers {
  StragglerWatch watch;
  absl::Time looked_at = absl::InfinitePast();
  absl::Time relieve_at = absl::InfinitePast();  // no relief before this time
};

// CrashLoops: how often a worker's process ended at the present step. Stored.
struct JobCrashLoops {
  struct Ends {
    int64_t step = 0;
    int times = 0;
    bool gone = false;  // has not come back since the last end
  };
  std::map<NodeName, Ends> ends;
};

// Candidates: nodes that cannot work for the job. Stored.
struct JobLeftOut {
  struct Node {
    uint64_t incarnation = 0;  // a restart may have mended it
    std::string why;
  };
  std::map<NodeName, Node> nodes;

  void Add(const NodeName& node, uint64_t incarnation, std::string why) { nodes[node] = {incarnation, std::move(why)}; }
};

// Restores: STARTING with partitions to fill.
struct JobRestoring {
  std::vector<std::string> from;  // stored: checkpoints, tried in turn; empty: nothing to fill, or done
  NodeName worker;                // the one that was asked; empty: none
  uint64_t request = 0;
  absl::Time until = absl::InfinitePast();
  absl::Time not_before = absl::InfinitePast();
  int attempts = 0;
  uint64_t filled_in = 0;  // the generation in which all partitions are filled

  void FillFrom(std::string checkpoint) { from = {std::move(checkpoint)}; }
  // Another worker is to be asked; an answer of the present one is ignored.
  void AskAnew() { worker.clear(); }
  void End() { from.clear(); }
};

// Restores: at the end of the job, replaces the last weights by those of the best epoch. All but given_up are stored.
struct JobBest {
  bool restoring = false;  // all steps are done; JobRestoring.from names the weights that the job ends with
  bool restored = false;   // the weights are those of the best epoch, not of the last step
  bool given_up = false;   // the best weights could not be read, and are not tried again

  // All partitions are filled. False: they were filled for another reason.
  bool End() {
    restored = restored || restoring;
    return std::exchange(restoring, false);
  }
};

// A checkpoint that a worker reported it cannot write.
struct UnwrittenCheckpoint {
  int64_t step = 0;
  std::string error;
};

// Checkpoints: requests to the chief, and its reports.
struct JobCheckpoints {
  std::vector<NodeName> former_chiefs;  // stored; only the newest: they may still report that they wrote a checkpoint
  // By former chief, its newest: it does not retry that step if it becomes the chief again.
  std::map<NodeName, UnwrittenCheckpoint> unwritten;
  Asked best_asked;
  int64_t best_asked_step = 0;  // of the last MarkBest
  double best_asked_monitored = 0;
  absl::Time heard = absl::InfinitePast();  // the chief's last checkpoint report since the last decision
  int64_t failed_step = -1;                 // a step of the epoch to decide whose checkpoint could not be written
  int64_t error_step = 0;  // the step of JobStatus.checkpoint_error, which is given up; 0: it may still be written
  // When a chief whose steps were all done got its role, or lost replicas; infinite: no such chief, or it has reported.
  absl::Time late_chief_since = absl::InfiniteFuture();
  bool chief_told_end = false;  // the chief, in that role, reported a replica done: no checkpoint of it is pending

  // An epoch was decided, or is repeated: earlier reports of the chief do not count for the next one.
  void ForgetWord() { heard = absl::InfinitePast(); }
  // The job has another chief. all_done: its replicas have done all steps.
  void NameChief(bool all_done, absl::Time now) {
    late_chief_since = all_done ? now : absl::InfiniteFuture();
    chief_told_end = false;
  }
  // The chief keeps only replicas that are done, perhaps computed by others: a checkpoint that it owes does not show.
  void LeaveChiefDone(absl::Time now) {
    if (!chief_told_end) late_chief_since = now;
  }
  // The chief reports that one of its replicas is done.
  void ChiefToldEnd() { chief_told_end = true; }
  // Steps are repeated, and then the last checkpoint.
  void RollBack() {
    chief_told_end = false;
    unwritten.clear();
  }
  void FormerChiefFailed(const NodeName& worker, int64_t step, std::string error) {
    std::erase_if(unwritten, [&](const auto& u) {
      return std::find(former_chiefs.begin(), former_chiefs.end(), u.first) == former_chiefs.end();
    });
    if (step >= unwritten[worker].step) unwritten[worker] = {step, std::move(error)};
  }
  // The worker is dead; a request to it is void.
  void ReleaseWorker(const NodeName& worker) {
    if (best_asked.worker == worker) best_asked = {};
  }
};

// Evaluations (evaluators.cc): checkpoints that evaluators evaluate.
struct JobEvaluations {
  std::map<int64_t, int> failures;  // by step: how often its evaluation failed
};

// Epochs, OpenEpochs (job_facts.h): decisions of callbacks. All but the last two are stored.
struct JobDecisions {
  google::protobuf::RepeatedPtrField<v1::StoredCallback> callbacks;
  std::vector<float> learning_rates;
  bool stopped_early = false;
  absl::Time checkpoint_wanted_since = absl::InfiniteFuture();  // the next decision has waited for a checkpoint
  int files_of_epoch = -1;                                      // the last epoch whose model files were requested

  // Epochs are repeated, and their checkpoints written again.
  void WaitAnew() { checkpoint_wanted_since = absl::InfiniteFuture(); }
};

// ModelFiles: the files of model_checkpoint.
struct JobFiles {
  std::vector<v1::SaveModel> saves;  // stored, as are the next two
  int32_t missing = 0;               // things the job asked for that were given up
  std::string first_missing;         // the first of these, and why
  Asked asked;
  int failures = 0;                                  // of the first of `saves`
  std::string error;                                 // the last of these failures
  absl::Time waited_since = absl::InfiniteFuture();  // when the next epoch began to wait (SavesHoldUp)
  absl::Time until = absl::InfiniteFuture();         // all steps are done: the deadline of its files

  // Steps are to be repeated: the deadline of the end is void.
  void WaitAnew() { until = absl::InfiniteFuture(); }
  void NoteMissing(std::string why) {
    if (missing++ == 0) first_missing = std::move(why);
  }
};

// ModelFiles: TensorBoard and csv_logger.
struct JobSummaries {
  int32_t written = 0;  // epochs whose summaries are written; stored
  Asked asked;
  std::string error;                                      // the last error of a worker that could not write them
  int64_t validations_sent = 0, validations_written = 0;  // up to these steps
  std::vector<v1::StepValidation> step_figures;           // not written yet
  size_t step_figures_sent = 0;                           // how many of them were sent to asked.worker
  int64_t step_figures_until = 0;
  absl::Time step_figures_at = absl::InfinitePast();
};

// JobRuns: FINALIZING.
struct JobEnd {
  std::vector<uint64_t> versions;        // stored
  NodeName worker;                       // the one asked for the digest; empty: none
  absl::Time at = absl::InfinitePast();  // with a worker: its deadline; without: no request before this time
  int attempts = 0;

  // Ignores the answer of the worker that was asked, and asks one now. No effect where none was asked.
  void AskAnew(absl::Time now) {
    if (worker.empty()) return;
    worker.clear();
    at = now;
  }
  // Steps are to be repeated.
  void BeginAnew(absl::Time now) {
    versions.clear();
    worker.clear();
    attempts = 0;
    at = now;
  }
  void Forget() { worker.clear(); }
};

}  // namespace cairn
