// DigestTaker: reports the digests of a job's variables after some of its steps, beside training.
//
// Any thread; the numbers are read in a task of the job beside its checkpoints (file_queues.h). Invariants:
//   1. At most one digest is under way, so that it holds at most one buffer of values longer than training does. One
//      that is due meanwhile is left out: it is then not recorded.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "cairn/v1/cluster.pb.h"
#include "common/base/ids.h"
#include "common/model/graph.h"
#include "worker/core/replica_driver.h"
#include "worker/train/file_queues.h"

namespace cairn {

class DigestTaker : public std::enable_shared_from_this<DigestTaker> {
 public:
  // files: outlives this. send: to the coordinator; thread-safe.
  DigestTaker(JobId job, FileQueues* files, std::function<void(v1::NodeMessage)> send)
      : job_(job), files_(files), send_(std::move(send)) {}

  void Take(replica::TakeDigest take, const ReplicaEnvironment::Assignment& assignment);

 private:
  void Run(const replica::TakeDigest& take, const v1::AssignReplicas& assignment);

  const JobId job_;
  FileQueues* const files_;
  const std::function<void(v1::NodeMessage)> send_;
  std::atomic<bool> busy_{false};
  std::shared_ptr<const Graph> graph_;  // of the job; used in tasks alone, null before the first digest
};

}  // namespace cairn
