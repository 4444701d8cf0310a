// LayerWeights: what a Program asks for values when a work computes layer by layer: ranges of the space become wishes
// for partitions, which the core grants one by one.
//
// Prefetch, Acquire and Release on the computing thread; Here and Stop on any thread. Invariants:
//   1. Acquire returns when every partition of its range is here, or with CANCELLED after Stop.
//   2. A partition is wished for once for each range that holds it, granted as often, and let go of as often. A range
//      waits for a grant of its own: one that is late must not be taken for that of the next range, when the values may
//      have gone in between.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cairn/v1/cluster.pb.h"
#include "worker/backend/backend.h"
#include "worker/core/replica_core.h"

namespace cairn {

class LayerWeights : public WeightSource {
 public:
  // ranges: of the partitions, in order, without gaps; they outlive this. post: to the core.
  LayerWeights(uint64_t work, const std::vector<v1::PartitionRange>& ranges, std::function<void(replica::Event)> post);

  void Prefetch(int64_t begin, int64_t end) override;
  absl::Status Acquire(int64_t begin, int64_t end) override;
  void Release(int64_t begin, int64_t end) override;

  void Here(uint32_t partition);
  void Stop();

 private:
  struct Range {
    uint32_t begin = 0, end = 0;
    bool operator==(const Range&) const = default;
  };
  Range PartitionsOf(int64_t begin, int64_t end) const;
  void Want(Range range);

  const uint64_t work_;
  const std::vector<v1::PartitionRange>& ranges_;
  const std::function<void(replica::Event)> post_;
  Range prefetched_;  // of the computing thread; empty: none
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint32_t> wanted_ ABSL_GUARDED_BY(mutex_);  // by partition: how often
  std::vector<uint32_t> granted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
