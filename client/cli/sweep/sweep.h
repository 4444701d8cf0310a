// Sweep: what a sweep does next. The driver (client/cli/cmd_sweep.cc) tells it what became of jobs and carries out what
// it decides.
//
//   while not done:  On...(what the cluster says);  effects = Decide();  store;  submit and cancel
//
// One thread; no I/O, no clock. Invariants:
//   1. At most max_parallel trials are active (Trial::is_active).
//   2. A trial is kSubmitting before its job is submitted, and its key (KeyOf) is a function of what is stored: a
//      process that stops at any moment and goes on from what was stored submits no trial twice.
//   3. Which trials go on at a rung is a function of their figures alone (halving.h).
//   4. A trial that was stopped, failed or was cancelled stays so. One that succeeded may still be stopped: it lost at
//      a rung, and was only faster than those that it was compared with.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job_status.pb.h"
#include "client/cli/sweep/halving.h"
#include "client/cli/sweep/trial.h"

namespace cairn {

struct SweepOptions {
  std::string key;  // of the sweep, random: trials' request keys begin with it
  std::string by;   // the figure, "val_accuracy"
  bool more_is_better = false;
  int max_parallel = 4;
  HalvingOptions halving;
  std::vector<int> rungs;  // epochs; empty without halving
};

struct SweepEffects {
  std::vector<int> submit;         // trials, by index
  std::vector<int> cancel;         // likewise; repeated until their jobs have ended
  std::vector<std::string> notes;  // for the user
  std::vector<int> changed;        // trials to be stored before anything is submitted or cancelled
};

class Sweep {
 public:
  // trials: new ones, or what was stored.
  Sweep(SweepOptions options, std::vector<Trial> trials);

  const SweepOptions& options() const { return options_; }
  const std::vector<Trial>& trials() const { return trials_; }
  bool done() const;
  // The key of the trial's present job.
  std::string KeyOf(int trial) const;
  // Whether the trial's next job resumes from its checkpoints.
  bool Resumes(int trial) const { return trials_[trial].checkpoint_step > 0; }

  void OnSubmitted(int trial, const v1::JobStatus& job);
  void OnRefused(int trial, const std::string& why);
  void OnJob(int trial, const v1::JobStatus& job);
  void OnJobGone(int trial, const std::string& why);
  // The user ends the sweep and wants its jobs to be cancelled: Decide then cancels and submits nothing.
  void Interrupt();

  SweepEffects Decide();

  // Best first: trials that passed more rungs, then by figure, then those without one.
  std::vector<const Trial*> Ranking() const;

 private:
  void SetState(Trial& trial, TrialState state, const std::string& note);
  void TakeFigures(Trial& trial, const v1::JobStatus& job);
  void ChooseCheckpoint(Trial& trial, const v1::JobStatus& job);
  void OnEnd(Trial& trial, const v1::JobStatus& job);
  bool HasArrived(const Trial& trial) const;  // at the rung that it trains to
  bool DecideRung();
  void PauseForOthers();
  void SubmitMore(SweepEffects* effects);
  bool WantsPlace(const Trial& trial) const;
  int Active() const;
  std::string ScoreText(std::optional<double> score) const;
  void MarkChanged(const Trial& trial);

  const SweepOptions options_;
  std::vector<Trial> trials_;
  std::vector<std::string> notes_;  // since the last Decide
  std::vector<int> changed_;        // likewise
  bool interrupted_ = false;
};

}  // namespace cairn
