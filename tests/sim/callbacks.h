// Callbacks of a simulated job, and their expected outcome. The job's figures are a function of the epoch, so that its
// end is known in advance.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "cairn/v1/cluster.pb.h"
#include "common/model/step_plan.h"
#include "tests/sim/checkpoints.h"
#include "tests/sim/world.h"

namespace cairn::sim {

struct JobFacts;

// Gives some jobs early_stopping (with restore_best_weights where that is exact), model_checkpoint and tensorboard. A
// function of spec.seed.
void RandomCallbacks(v1::JobSpec& spec);
// The loss of each example, in training and validation alike; a multiple of 1/8, so that sums are exact.
double LossOfEpoch(const v1::JobSpec& spec, int64_t epoch);

// The end by Keras' rules, written independently of coordinator/core/callbacks.cc.
struct ExpectedEnd {
  int64_t epochs = 0;  // number of trained epochs
  int64_t steps = 0;
  int64_t weights = 0;                   // the step whose weights the job ends with
  std::map<std::string, int64_t> files;  // model files, with the last step of their epochs
};
// first_epoch: where a job resumes from a checkpoint; its callbacks start there.
ExpectedEnd EndOf(const v1::JobSpec& spec, const StepPlan& plan, int64_t first_epoch);

// Callbacks are decided once, by the figures; the files that they request are written, or the failure is reported.
class CallbackChecker {
 public:
  CallbackChecker(World& world, const JobFacts& facts) : world_(world), facts_(facts) {}
  void Saved(const std::string& path, const CheckpointContents& contents);
  void Wrote(const v1::WriteSummaries& write);
  void Failed() { ++failures_; }  // the disk refused a file or a checkpoint, or lost one
  // Another job resumes after this many epochs.
  void Restart(int64_t first_epoch);
  // The job ends with its last weights, although it should end with those of its best epoch.
  void EndsWithoutBest(const v1::JobStatus& status);
  void AtEnd(const v1::JobStatus& status);
  int failures() const { return failures_; }

 private:
  World& world_;
  const JobFacts& facts_;
  std::set<std::string> saved_;
  std::set<int32_t> epochs_;  // in TensorBoard
  int failures_ = 0;
};

}  // namespace cairn::sim
