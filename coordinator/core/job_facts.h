// Facts derived from a Job alone: its learning rates, epochs and best checkpoint. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "coordinator/core/job.h"

namespace cairn {

// The learning rate of a step, from the schedule and callbacks.
float RateAt(const Job& job, int64_t step);
// The job begins, or continues from a checkpoint: the first `done` epochs need no decision.
void OpenEpochs(Job& job, int done);
// Whether callbacks have an epoch to decide about.
bool Undecided(const Job& job);
// Changes with every decision about an epoch, so that assignments from before and after it differ.
int64_t EpochsCode(const Job& job);

// Why the job ended before its last epoch; empty: it did not.
std::string StopText(const Job& job);
// Says that the job has made no step, since all of them were in the checkpoint that it began from; empty: not so.
std::string NothingToDoText(const Job& job);
// Says where the loss is not finite; empty: it is finite.
std::string NotFiniteText(const Job& job);

// The checkpoint at the end of an epoch; null: there is none. Asynchronous replicas end an epoch at different times:
// for them it is the last checkpoint taken within the epoch.
const v1::CheckpointInfo* CheckpointOf(const Job& job, int epoch);
// The checkpoint of the best epoch, preferring the kept copy; null: there is none.
const v1::CheckpointInfo* BestCheckpoint(const Job& job);
// Paths to read it from, in order: the kept copy, then the epoch's own checkpoint.
std::vector<std::string> BestPaths(const Job& job);
// Checkpoints from which a job that has run can resume, in the order to try: newest first, the one it began from last.
std::vector<std::string> CheckpointsToGoOnFrom(const Job& job);
// Takes settings that the user left open from the checkpoint, so that the job resumes as if it had never stopped.
void TakeFacts(const v1::CheckpointFacts& facts, v1::JobSpec& spec);

inline constexpr int kStepValidationsKept = 1000;
// Inserts in order of step; beyond kStepValidationsKept the oldest is dropped.
void AddStepValidation(v1::StepValidation validation, v1::JobStatus& status);

}  // namespace cairn
