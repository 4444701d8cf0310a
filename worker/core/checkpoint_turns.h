// CheckpointTurns: when the chief takes the checkpoints of the job, one at a time, and when it tries again.
//
// Part of Context. Invariants:
//   1. At most one checkpoint is in progress.
//   2. A cut that fails is tried again after a pause. The one after the last step: until it succeeds, or has failed for
//      ReplicaCoreOptions.last_cut_max; another one: as the cut of whichever step the job has reached by then.
//   3. StepOutput::wake() is not later than the next try.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "worker/core/assigned_job.h"
#include "worker/core/checkpoint_rule.h"
#include "worker/core/replica_core.h"
#include "worker/core/requests.h"
#include "worker/core/step_output.h"

namespace cairn::replica {

class CheckpointTurns {
 public:
  // All but the options outlive it.
  CheckpointTurns(const ReplicaCoreOptions& options, const JobSchedule& schedule, const Assignment& assignment,
                  Numbers& numbers, Backoff& backoff, StepOutput& output)
      : last_cut_max_(options.last_cut_max),
        schedule_(schedule),
        assignment_(assignment),
        numbers_(numbers),
        backoff_(backoff),
        output_(output) {}

  // The first assignment. restored: the step that the job began with.
  void BeginJob(const v1::JobSpec& spec, int64_t restored);
  // A checkpoint of this step exists.
  void AddTaken(int64_t step, absl::Time at) { rule_->Taken(step, at); }
  // The job ends earlier than planned.
  void EndAt(int64_t total_steps) { rule_->EndAt(total_steps); }

  // Called by the chief before it sends anything of a later step: emits TakeCheckpoint if a checkpoint after `step`
  // updates is due and none is in progress. want_version: of each partition; unset: its current one.
  void TakeIfDue(int64_t step, std::optional<uint64_t> want_version);
  // Whether the event belongs to the checkpoint in progress.
  bool End(const CheckpointDone& event);
  // The job must not end yet: a checkpoint is in progress, or the last one is still to be taken. The last one is taken
  // when all own replicas have done all steps. In an asynchronous job a replica may move away before that; then only
  // the replicas that finished here earlier delay the end of the job.
  bool Owed() const;

 private:
  // The checkpoint in progress.
  struct Turn {
    int64_t step = 0;
    bool last_try = false;
  };

  const absl::Duration last_cut_max_;
  const JobSchedule& schedule_;
  const Assignment& assignment_;
  Numbers& numbers_;
  Backoff& backoff_;
  StepOutput& output_;
  std::optional<CheckpointRule> rule_;  // from the first assignment on
  std::optional<Turn> turn_;
  int cuts_failed_ = 0;                                       // in a row
  absl::Time last_cut_fails_since_ = absl::InfiniteFuture();  // when the cut after the last step first failed
  absl::Time next_cut_ = absl::InfinitePast();                // earliest time of the retry after a failed cut
};

}  // namespace cairn::replica
