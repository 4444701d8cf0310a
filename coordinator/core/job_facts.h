// What follows from what is known of a job alone: its rates, epochs and best checkpoint. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "coordinator/core/job.h"

namespace cairn {

// The learning rate of a step, by schedule and callbacks.
float RateAt(const Job& job, int64_t step);
// The job begins, or continues from a checkpoint: nothing is left to decide about the epochs before.
void OpenEpochs(Job& job, int done);
// Whether callbacks have an epoch to decide about.
bool Undecided(const Job& job);
// What tells a worker's assignment from one before or after a decision.
int64_t EpochsCode(const Job& job);

// Why the job ended before its last epoch; empty: it did not.
std::string StopText(const Job& job);
// Where the loss is not finite; empty: it is finite.
std::string NotFiniteText(const Job& job);

// The checkpoint of the end of an epoch; null: there is none. Asynchronous replicas are not there at the same moment:
// the last one that was taken within it.
const v1::CheckpointInfo* CheckpointOf(const Job& job, int epoch);
// The checkpoint of the best epoch, the copy that is kept where there is one; null: none is there.
const v1::CheckpointInfo* BestCheckpoint(const Job& job);
// Where it can be read: the copy that is kept, then the epoch's own.
std::vector<std::string> BestPaths(const Job& job);
// What a job that has run can be filled from, in turn: its newest checkpoint first, the one that it began with last.
std::vector<std::string> CheckpointsToGoOnFrom(const Job& job);
// What the user left open is as it was in the checkpoint: then the job goes on as if nothing had been.
void TakeFacts(const v1::CheckpointFacts& facts, v1::JobSpec& spec);

inline constexpr int kStepValidationsKept = 1000;
// In order of step; the oldest beyond kStepValidationsKept goes.
void AddStepValidation(v1::StepValidation validation, v1::JobStatus& status);

}  // namespace cairn
