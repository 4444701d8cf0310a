// JobRuns: the life of a job from ready partitions to the digest: RUNNING -> FINALIZING -> SUCCEEDED or
// ENDED_WITH_ERRORS. How it starts: schedule.h; how it ends: endings.h.
//
// A job is complete when its final weights are on the disk of every primary and the digest is of exactly those:
//   1. A new generation, stored with the state FINALIZING, tells the ps that training has ended (HostPartitions.keep):
//      frames of earlier generations no longer change a partition, and partitions whose version is only in memory
//      write an image. This costs a SNAPSHOT job one write of all values and slots, one partition at a time on each ps;
//      other jobs have them in their log.
//   2. When every primary has reported its partitions ready, their versions are stored (StoredJob.final_versions).
//   3. A worker takes the digest of those versions.
// If a ps is lost before it has written, the job falls back to what its disk holds (rollback.h) and repeats the steps.
// A ps that is lost later comes back with everything, and the digest is taken then.
//
// Not thread-safe; one core owns it. Invariant: while its primaries are not all ready in the present generation, a
// job's replicas get no new commands; they retry by themselves.
#pragma once

#include <string>

#include "coordinator/core/assignments.h"
#include "coordinator/core/checkpoints.h"
#include "coordinator/core/component.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/endings.h"
#include "coordinator/core/epochs.h"
#include "coordinator/core/model_files.h"
#include "coordinator/core/restores.h"
#include "coordinator/core/rollback.h"

namespace cairn {

class JobRuns : Component {
 public:
  struct Parts {  // all outlive it
    Endings& endings;
    Restores& restores;
    Rollback& rollback;
    Copies& copies;
    Assignments& assignments;
    ModelFiles& files;
    Checkpoints& checkpoints;
    Epochs& epochs;
  };
  JobRuns(Ground& ground, const Parts& parts);

  // If every partition of the generation is ready: whatever was held up continues.
  void AllReady(Job& job);
  // Of a job that runs: epochs are closed and decided, and the job ends where all its steps are done.
  void Advance(Job& job);
  void TryFinalize(Job& job);
  void OnProgress(const ClusterNode& node, const google::protobuf::RepeatedPtrField<v1::JobProgress>& reported);
  void OnReplicaReport(const ClusterNode& node, const v1::ReplicaReport& report);
  void OnFinalized(const ClusterNode& node, const v1::FinalizeReply& reply);
  // Another worker takes the digest.
  void ReleaseWorker(const NodeName& worker);

 private:
  void BeginFinalizing(Job& job);
  void NoteFinalVersions(Job& job);
  void FinalizeFailed(Job& job, const std::string& why);

  Endings& endings_;
  Restores& restores_;
  Rollback& rollback_;
  Copies& copies_;
  Assignments& assignments_;
  ModelFiles& files_;
  Checkpoints& checkpoints_;
  Epochs& epochs_;
};

}  // namespace cairn
