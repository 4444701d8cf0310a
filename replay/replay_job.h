// What `cairn replay` computes of a job, and from where: the job as one worker with all replicas would get it, and the
// newest state before the step that can be had.
//
// Free functions; they read checkpoints, so they block. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cairn/v1/commands.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "worker/checkpoint/checkpoint_restore.h"

namespace cairn {

struct ReplaySource {
  std::string checkpoint;  // a checkpoint, or a folder of several, instead of the job's own; empty: those
  std::string data;        // instead of data.path; empty: that
};

// OK: the bits of each step follow from the job. Errors: FAILED_PRECONDITION names the field and what to do;
// INVALID_ARGUMENT: the job has not done this step (from 0), or source.checkpoint is none.
absl::Status CheckReplayable(const v1::JobStatus& job, const ReplaySource& source, int64_t step);

// Of the steps that the job has done, how many are of epochs on whose learning rate it has decided.
int64_t StepsWithRates(const v1::JobStatus& job);
// OK: the learning rates of these steps are known. FAILED_PRECONDITION names the epoch whose rate is not.
absl::Status CheckRates(const v1::JobStatus& job, int64_t first, int64_t last);

// All replicas and partitions in one place: without checkpoints, validation and backups, with a digest of each step.
v1::AssignReplicas MakeReplayAssignment(const v1::JobStatus& job, const ReplaySource& source);

struct ReplayStart {
  int64_t step = 0;                    // the first that is computed
  std::optional<RestoredState> state;  // nullopt: the initial values that follow from the seed
  std::string from;                    // "/run/step-50", "the initial values"
  std::vector<std::string> skipped;    // what is newer and cannot be used, each with the reason
};

// The newest state with at most `step` updates. finite: only one whose weights are all finite. Errors:
// FAILED_PRECONDITION: there is none, with what was tried.
absl::StatusOr<ReplayStart> FindReplayStart(const v1::JobStatus& job, const v1::AssignReplicas& assignment,
                                            const ReplaySource& source, int64_t step, bool finite);

// The numbers of updates with which the values may be compared, ascending: digests that the job recorded, checkpoints.
std::vector<int64_t> RecordedUpdates(const v1::JobStatus& job, const ReplaySource& source);

struct RecordedDigest {
  std::string digest;
  std::string where;  // "recorded by the job", "of /run/step-60"
};

// The digest after `updates` updates: recorded by the job, or that of a checkpoint. nullopt: there is neither.
std::optional<RecordedDigest> FindRecordedDigest(const v1::JobStatus& job, const v1::AssignReplicas& assignment,
                                                 const Graph& graph, const ReplaySource& source, int64_t updates);

}  // namespace cairn
