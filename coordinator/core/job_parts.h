// What the parts of the core keep of one job (component.h). Job holds one of each.
//
// Each struct has one owner, the part that its comment names first: it alone writes the fields. Where the decision of
// another part makes something void (a new generation, a fall back), that part says so by a function of the struct.
// LoadJob fills all of them. What is marked "stored" survives a restart of the coordinator (StoredJob); the rest is
// learned again from the nodes, or starts over.
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

// A worker that was asked for something.
struct Asked {
  NodeName worker;  // empty: nobody
  absl::Time until = absl::InfinitePast();
  absl::Time not_before = absl::InfinitePast();  // not asked again before
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

  // The job starts, or ended.
  void Leave() { checked.reset(); }
};

// Hosting: what each ps was told, and has answered, of the present generation.
struct JobHosting {
  bool awaiting_ready = false;          // HostPartitions of this generation is not answered by every ps yet
  std::vector<bool> ready;              // by partition, in this generation
  std::vector<uint64_t> versions;       // by partition: the highest that its ps has named
  std::vector<v1::HeldPartition> held;  // by partition, with `ready`: what its primary said

  // Every ps has answered, or nobody waits for the answers any longer.
  void EndWait() { awaiting_ready = false; }
  // All partitions go on from there; versions that were named before mean nothing.
  void SetVersions(uint64_t version) { versions.assign(versions.size(), version); }
  // Another copy serves the partition: what the one before it has named means nothing.
  void SetVersion(uint32_t partition, uint64_t version) { versions[partition] = version; }
};

// Rollback: whether its partitions go back to an earlier version. Stored (StoredJob.rollback_generation and so on).
struct JobRollback {
  uint64_t generation = 0;  // the last one that took them back: what is said of earlier ones does not count
  uint64_t to = 0;
  bool under_way = false;
  bool recovered = false;  // a partition was taken up from its disk: to be checked

  // It is to be checked, when all are there, to which version they go back.
  void NeedsCheck() { recovered = true; }
  // It was checked, or is void.
  void EndCheck() { recovered = false; }
  // Every ps has said that its partitions are there. False: none was under way.
  bool End() { return std::exchange(under_way, false); }
  // What was said in generations before this one does not count any more.
  void RefuseBefore(uint64_t present) { generation = present; }
  void Forget() { recovered = under_way = false; }
};

// Reconciler: what ps said in Hello.
struct JobReconciling {
  // Ps whose process was restarted and has not answered a HostPartitions of the present generation: what it names in
  // Hello is its disk's.
  std::set<NodeName> untold;
};

// Copies: in every state once there are partitions.
struct JobCopies {
  struct Returned {
    absl::Time since;
    std::optional<v1::HeldPartition> held;  // none: its disk does not have it
  };
  // Copies whose process was restarted and that were given no role since: what their disk holds.
  std::map<std::pair<uint32_t, NodeName>, Returned> returned;
  std::set<std::pair<uint32_t, NodeName>> caught_up;       // backups, as reported in this generation, not stored yet
  std::map<std::pair<uint32_t, NodeName>, LinkLoss> lost;  // backups over to which their primary gets nothing, likewise
  std::map<uint32_t, NodeName> moves;                      // partitions whose primary is to be elsewhere, for balance
  std::map<uint32_t, std::pair<NodeName, NodeName>> shifts;  // backups that are to be elsewhere, likewise: from, to
  bool repair_due = true;                                    // something changed since they were looked at
  // Of an ended job, until its turn (TendEnded): ps came or went; ps have to be told of their part anew, by a new
  // generation.
  bool settle_due = false, renew_due = false;
  absl::Time balance_at = absl::InfinitePast();

  // What was reported in the generation before is void.
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
  // Where copies are is decided again; disks that came back do not matter.
  void ForgetReturned() { returned.clear(); }
  void BeginAnew() {
    returned.clear();
    moves.clear();
    shifts.clear();
  }
};

// CopyWatch: what its copies lacked when they were looked at last.
struct JobCopyWatch {
  struct Lack {
    int partitions = 0;              // with fewer backups in sync than the job asks for
    int mendable = 0;                // with fewer than there can be, while their primary serves
    std::map<NodeName, int> behind;  // by ps: partitions that it is to hold and has not in full, or not loaded
  };
  Lack lack;
  absl::Time lacking_since = absl::InfiniteFuture();
};

// Assignments: workers that are slower than the others.
struct JobStragglers {
  StragglerWatch watch;
  absl::Time looked_at = absl::InfinitePast();
  absl::Time relieve_at = absl::InfinitePast();  // not relieved before
};

// CrashLoops: how often a worker's process ended at the present step. Stored.
struct JobCrashLoops {
  struct Ends {
    int64_t step = 0;
    int times = 0;
    bool gone = false;  // not back since the last time
  };
  std::map<NodeName, Ends> ends;
};

// Candidates: nodes that cannot work for it. Stored.
struct JobLeftOut {
  struct Node {
    uint64_t incarnation = 0;  // a restart may have mended it
    std::string why;
  };
  std::map<NodeName, Node> nodes;

  void Add(const NodeName& node, uint64_t incarnation, std::string why) { nodes[node] = {incarnation, std::move(why)}; }
};

// Restores: STARTING with partitions to be filled.
struct JobRestoring {
  std::vector<std::string> from;  // stored: checkpoints, tried in turn; empty: nothing to fill, or done
  NodeName worker;                // that was asked; empty: none
  uint64_t request = 0;
  absl::Time until = absl::InfinitePast();
  absl::Time not_before = absl::InfinitePast();
  int attempts = 0;
  uint64_t filled_in = 0;  // the generation in which all partitions are filled

  void FillFrom(std::string checkpoint) { from = {std::move(checkpoint)}; }
  // Another worker is asked; an answer of the one that was counts for nothing.
  void AskAnew() { worker.clear(); }
  void End() { from.clear(); }
};

// Restores: the weights of the best epoch in place of the last one's, at the end. Stored but for the last.
struct JobBest {
  bool restoring = false;  // all steps are done; JobRestoring.from names the weights that it ends with
  bool restored = false;   // the weights are not those of its last step
  bool given_up = false;   // they could not be read: they are not tried again

  // All partitions are filled. False: they were not filled for that.
  bool End() {
    restored = restored || restoring;
    return std::exchange(restoring, false);
  }
};

// A checkpoint that a worker says it cannot write.
struct UnwrittenCheckpoint {
  int64_t step = 0;
  std::string error;
};

// Checkpoints: what the chief was asked, and said.
struct JobCheckpoints {
  std::vector<NodeName> former_chiefs;  // stored; the newest: they may still say that they wrote one
  // By former chief, the newest: it does not try that step again, should it become the chief once more.
  std::map<NodeName, UnwrittenCheckpoint> unwritten;
  Asked best_asked;
  int64_t best_asked_step = 0;  // of the last MarkBest
  double best_asked_monitored = 0;
  absl::Time heard = absl::InfinitePast();  // the chief's last word of one, since the last decision
  int64_t failed_step = -1;                 // that could not be written, of the epoch to be decided
  int64_t error_step = 0;  // JobStatus.checkpoint_error is of this step, which is given up; 0: it may still be written
  // Since then its chief has that role, or fewer replicas, after all their steps, and it said of no checkpoint yet.
  absl::Time late_chief_since = absl::InfiniteFuture();
  bool chief_told_end = false;  // of a replica, since it has that role: it owes no checkpoint then

  // An epoch was decided, or is done once more: what the chief said before does not count for the next one.
  void ForgetWord() { heard = absl::InfinitePast(); }
  // The job has another chief. all_done: which has done all its steps.
  void NameChief(bool all_done, absl::Time now) {
    late_chief_since = all_done ? now : absl::InfiniteFuture();
    chief_told_end = false;
  }
  // Of the chief's replicas those stay with it that are done, perhaps by others before: what it holds back is not seen.
  void LeaveChiefDone(absl::Time now) {
    if (!chief_told_end) late_chief_since = now;
  }
  // The chief says that one of its replicas is done.
  void ChiefToldEnd() { chief_told_end = true; }
  // Steps are done once more, and then the last checkpoint.
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
  // The worker is gone, which may have been asked.
  void ReleaseWorker(const NodeName& worker) {
    if (best_asked.worker == worker) best_asked = {};
  }
};

// Evaluations (evaluators.cc): checkpoints that evaluators evaluate.
struct JobEvaluations {
  std::map<int64_t, int> failures;  // by step: how often one could not be
};

// Epochs, OpenEpochs (job_facts.h): what callbacks decided. Stored but for the last two.
struct JobDecisions {
  google::protobuf::RepeatedPtrField<v1::StoredCallback> callbacks;
  std::vector<float> learning_rates;
  bool stopped_early = false;
  absl::Time checkpoint_wanted_since = absl::InfiniteFuture();  // that the next decision waits for
  int files_of_epoch = -1;                                      // whose model files were asked for last

  // Epochs are done once more, and their checkpoints written again.
  void WaitAnew() { checkpoint_wanted_since = absl::InfiniteFuture(); }
};

// ModelFiles: the files of model_checkpoint.
struct JobFiles {
  std::vector<v1::SaveModel> saves;  // stored, as are the next two
  int32_t missing = 0;               // that it asked for and that were given up
  std::string first_missing;         // and why
  Asked asked;
  int failures = 0;                                  // of the first of `saves`
  std::string error;                                 // the last of these
  absl::Time waited_since = absl::InfiniteFuture();  // by the next epoch (SavesHoldUp)
  absl::Time until = absl::InfiniteFuture();         // all steps are done: its files are waited for

  // Steps are to be done again: the end is not waited for any more.
  void WaitAnew() { until = absl::InfiniteFuture(); }
  void NoteMissing(std::string why) {
    if (missing++ == 0) first_missing = std::move(why);
  }
};

// ModelFiles: TensorBoard and csv_logger.
struct JobSummaries {
  int32_t written = 0;  // epochs; stored
  Asked asked;
  std::string error;                                      // the last one of a worker that could not write them
  int64_t validations_sent = 0, validations_written = 0;  // up to these steps
  std::vector<v1::StepValidation> step_figures;           // not written yet
  size_t step_figures_sent = 0;                           // the first so many of them, to whom was asked
  int64_t step_figures_until = 0;
  absl::Time step_figures_at = absl::InfinitePast();
};

// JobRuns: FINALIZING.
struct JobEnd {
  std::vector<uint64_t> versions;        // stored
  NodeName worker;                       // that was asked for the digest; empty: none
  absl::Time at = absl::InfinitePast();  // with a worker: its deadline; without: not before
  int attempts = 0;

  // An answer of the worker that was asked counts for nothing; one is asked now. Nothing where none was asked.
  void AskAnew(absl::Time now) {
    if (worker.empty()) return;
    worker.clear();
    at = now;
  }
  // Steps are to be done again.
  void BeginAnew(absl::Time now) {
    versions.clear();
    worker.clear();
    attempts = 0;
    at = now;
  }
  void Forget() { worker.clear(); }
};

}  // namespace cairn
