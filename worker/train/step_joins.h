// StepJoins: the sums of a job's gradients that the backend makes (worker/backend/gradient_join.h), shared by the
// replicas that add to them.
//
// Thread-safe. Invariant: a sum is freed when all its replicas have left it, or when nobody needs it any more.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "worker/backend/backend.h"
#include "worker/core/replica_core.h"

namespace cairn {

class StepJoins {
 public:
  // Called when the sum of a partition is final, on the thread of one of the replicas.
  using Summed = std::function<void(replica::GradientSummed)>;

  StepJoins(Backend& backend, Summed summed) : backend_(backend), summed_(std::move(summed)) {}

  // Returns the sum of the joint; the first replica to enter makes it. Each replica that got it must Leave it. ranges:
  // those of the partitions, in order. Errors: those of the backend.
  absl::StatusOr<std::shared_ptr<GradientJoin>> Enter(const std::shared_ptr<const replica::Joint>& joint,
                                                      const std::shared_ptr<const Graph>& graph,
                                                      const std::vector<v1::PartitionRange>& ranges);
  void Leave(uint64_t joint);
  void Clear();

 private:
  struct Join {
    std::weak_ptr<const replica::Joint> joint;  // expired: nobody needs the sum any more
    std::shared_ptr<GradientJoin> join;
    int64_t missing = 0;  // how many replicas have not left it
  };

  Backend& backend_;
  const Summed summed_;
  absl::Mutex mutex_;
  std::map<uint64_t, Join> joins_ ABSL_GUARDED_BY(mutex_);  // by number
};

}  // namespace cairn
