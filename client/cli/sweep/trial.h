// One trial of a sweep: its parameters, its jobs, and what is known of its figures.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/sweep/space.h"
#include "common/report/figures.h"

namespace cairn {

enum class TrialState {
  kWaiting,     // has no job, or its last one was cancelled by an interrupt
  kSubmitting,  // its job is being submitted, under the key of `runs`
  kRunning,     // the job is in the cluster, perhaps queued
  kPausing,     // waits at a rung while others train: the job is being cancelled; its checkpoint stays
  kPaused,
  kStopping,      // not among the best of a rung: the job is being cancelled
  kInterrupting,  // the user ended the sweep and wants no jobs left: likewise
  kStopped,       // final, as all below
  kSucceeded,
  kEndedWithErrors,
  kFailed,     // the job failed or was refused
  kCancelled,  // by somebody else
};

struct Trial {
  int number = 0;  // from 1
  Assignment parameters;
  TrialState state = TrialState::kWaiting;
  int runs = 0;  // jobs that were submitted or are being submitted; the number of the present one
  std::vector<uint64_t> jobs;
  int rung = 0;                  // rungs that it has passed
  std::map<int, double> scores;  // of the sweep's figure, by epoch from 1
  int epochs = 0;                // that have figures
  Figures figures;               // all of the last epoch, with val_ before those of a validation
  // Its next job resumes from this checkpoint: the newest one whose epochs all have figures, so that no epoch is left
  // without. Step 0: there is none.
  std::string checkpoint;
  int64_t checkpoint_step = 0;
  int64_t resumed_step = 0;  // where its present job began
  int64_t steps_per_epoch = 0;
  std::string reason;

  uint64_t job() const { return jobs.empty() ? 0 : jobs.back(); }
  bool is_final() const { return state >= TrialState::kStopped; }
  // Its job is in the cluster, or on its way there.
  bool is_active() const { return state >= TrialState::kSubmitting && !is_final() && state != TrialState::kPaused; }
  // It failed or was cancelled: it is no candidate any more.
  bool is_out() const { return state == TrialState::kFailed || state == TrialState::kCancelled; }
  // The figure of the newest epoch that is not beyond `epoch`.
  std::optional<double> ScoreAt(int epoch) const {
    auto next = scores.upper_bound(epoch);
    if (next == scores.begin()) return std::nullopt;
    return std::prev(next)->second;
  }
  std::optional<double> LastScore() const {
    return scores.empty() ? std::nullopt : std::optional<double>(scores.rbegin()->second);
  }
};

// "running", "stopped", ...: as in tables and files.
const char* TrialStateText(TrialState state);
// Errors: INVALID_ARGUMENT: no such state.
absl::StatusOr<TrialState> TrialStateOf(const std::string& text);

}  // namespace cairn
