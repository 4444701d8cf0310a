// What a sweep is, from its flags, and the jobs of its trials.
//
// Any thread; reads no file but those that a job's model names, and looks whether its data are there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "client/cli/sweep/space.h"
#include "client/cli/sweep/sweep.h"
#include "common/base/status.h"

namespace cairn {

// The flags of `cairn sweep` that say which trials there are and how they are compared.
struct SweepFlags {
  std::vector<std::string> grid, ranges;
  int random = 0;
  uint64_t seed = 0;
  std::string by;
  std::string mode;  // "max", "min"; empty: max for accuracies and their like, else min
  HalvingOptions halving;
};

struct SweepDefinition {
  v1::JobSpec job;  // with all settings, and absolute paths
  SweepFlags flags;
  std::string key;     // random
  std::string folder;  // absolute: where checkpoints of halving are written
};

struct SweepPlan {
  SweepOptions options;
  std::vector<Trial> trials;  // new ones
};

// Closes the open dimensions of a job's model by its data (client/cli/close_shape.h).
using ShapeCloser = std::function<absl::Status(v1::JobSpec*)>;

// Checks every trial, as a cluster would. Errors: INVALID_ARGUMENT names the flag or the trial with the field.
absl::StatusOr<SweepPlan> MakePlan(const SweepDefinition& definition, const ShapeCloser& close_shape);

// The job of a trial out of `trials`, as it is submitted. Errors: as of MakePlan.
absl::StatusOr<v1::JobSpec> JobOfTrial(const SweepDefinition& definition, const Trial& trial, size_t trials,
                                       const ShapeCloser& close_shape);

// The name of a trial's jobs.
std::string TrialJobName(const SweepDefinition& definition, const Trial& trial, size_t trials);

// The job of a trial that goes on from one of its checkpoints.
v1::JobSpec Resumed(v1::JobSpec job, const std::string& checkpoint);

// Gives the trial files of its own: `trial` is a folder below that of each path which the job writes.
void SeparateOutputs(const std::string& trial, v1::JobSpec* job);

}  // namespace cairn
