// StepJoins: the backend's sums of a job (worker/backend/gradient_join.h), found by the replicas that add to them.
//
// Thread-safe. A sum is freed when all its replicas have left it, or nobody wants it any more.
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
  // A partition's sum is final; on the thread of one of the replicas.
  using Summed = std::function<void(replica::GradientSummed)>;

  StepJoins(Backend& backend, Summed summed) : backend_(backend), summed_(std::move(summed)) {}

  // Made by the first replica that comes. ranges: of the partitions, in order. Each replica that gets it leaves it.
  // Errors: the backend's.
  absl::StatusOr<std::shared_ptr<GradientJoin>> Enter(const std::shared_ptr<const replica::Joint>& joint,
                                                      const std::shared_ptr<const Graph>& graph,
                                                      const std::vector<v1::PartitionRange>& ranges);
  void Leave(uint64_t joint);
  void Clear();

 private:
  struct Join {
    std::weak_ptr<const replica::Joint> joint;  // gone: nobody wants it any more
    std::shared_ptr<GradientJoin> join;
    int64_t missing = 0;  // replicas that have not left it
  };

  Backend& backend_;
  const Summed summed_;
  absl::Mutex mutex_;
  std::map<uint64_t, Join> joins_ ABSL_GUARDED_BY(mutex_);  // by number
};

}  // namespace cairn
