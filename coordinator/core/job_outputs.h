// JobOutputs: what a job writes beside its weights, and what is asked of workers for that: checkpoints and their
// evaluations, model files, summaries. Each struct is written by its owner, as job_parts.h says.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/ids.h"

namespace cairn {

// A request to a worker.
struct Asked {
  NodeName worker;  // empty: none
  absl::Time until = absl::InfinitePast();
  absl::Time not_before = absl::InfinitePast();  // no new request before this time
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
  // When a chief whose steps were all done got its role, or lost replicas; infinite: no such chief, or, in an
  // asynchronous job, it has reported.
  absl::Time late_chief_since = absl::InfiniteFuture();
  int64_t chief_reported = -1;      // the newest step whose checkpoint the chief, in that role, has written or given up
  std::set<std::string> set_aside;  // of other jobs, as chiefs reported; at most kSetAsideToldMax
  bool chief_told_end = false;      // the chief, in that role, reported a replica done: no checkpoint of it is pending

  // An epoch was decided, or is repeated: earlier reports of the chief do not count for the next one.
  void ForgetWord() { heard = absl::InfinitePast(); }
  // The job has another chief. all_done: its replicas have done all steps.
  void NameChief(bool all_done, absl::Time now) {
    late_chief_since = all_done ? now : absl::InfiniteFuture();
    chief_told_end = false;
    chief_reported = -1;
  }
  // A checkpoint is written or given up. A chief repeats its newest one when it connects again; that may be from before
  // its last steps. In an asynchronous job the last one too may have fewer steps than the job, and a chief that has its
  // role again repeats it, so any report will do.
  void ChiefReported(int64_t step, bool synchronous) {
    chief_reported = std::max(chief_reported, step);
    if (!synchronous) late_chief_since = absl::InfiniteFuture();
  }
  // The chief keeps only replicas that are done, perhaps computed by others: a checkpoint that it owes does not show.
  void LeaveChiefDone(absl::Time now) {
    if (!chief_told_end) late_chief_since = now;
  }
  // The chief reports that one of its replicas is done.
  void ChiefToldEnd() { chief_told_end = true; }
  // Steps are repeated. A chief writes no checkpoint of a step again.
  void RollBack() {
    chief_told_end = false;
    unwritten.clear();
  }
  // The job is filled from a checkpoint; its workers start over.
  void StartOver() {
    RollBack();
    late_chief_since = absl::InfiniteFuture();
    chief_reported = -1;
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

// StepDigests: what it stores, and how often.
struct JobDigests {
  absl::Time saved = absl::InfinitePast();  // when the job was last stored for them
};

struct JobOutputs {
  JobCheckpoints checkpoints;
  JobDigests digests;
  JobEvaluations evaluations;
  JobFiles files;
  JobSummaries summaries;

  // Steps are done again, and what belongs to them is written again.
  void RollBack() {
    checkpoints.RollBack();
    files.WaitAnew();
  }
  void StartOver() {
    checkpoints.StartOver();
    files.WaitAnew();
  }
};

}  // namespace cairn
