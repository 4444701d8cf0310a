// DigestTaker: reports the digests of a job's variables after some of its steps, beside training.
//
// Any thread; the numbers are read on the thread that writes files, which is idle but for checkpoints. Invariants:
//   1. At most one digest is under way, so that it holds at most one buffer of values longer than training does. One
//      that is due meanwhile is left out: it is then not recorded.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "cairn/v1/cluster.pb.h"
#include "common/base/executor.h"
#include "common/base/ids.h"
#include "common/model/graph.h"
#include "worker/core/replica_driver.h"

namespace cairn {

class DigestTaker : public std::enable_shared_from_this<DigestTaker> {
 public:
  // files: outlives the tasks that are posted to it. send: to the coordinator; thread-safe.
  DigestTaker(JobId job, Executor* files, std::function<void(v1::NodeMessage)> send)
      : job_(job), files_(files), send_(std::move(send)) {}

  void Take(replica::TakeDigest take, const ReplicaEnvironment::Assignment& assignment);

 private:
  void Run(const replica::TakeDigest& take, const v1::AssignReplicas& assignment);

  const JobId job_;
  Executor* const files_;
  const std::function<void(v1::NodeMessage)> send_;
  std::atomic<bool> busy_{false};
  std::shared_ptr<const Graph> graph_;  // of the job; used on files_ alone, null before the first digest
};

}  // namespace cairn
