// LayerWeights: the WeightSource of a work that computes layer by layer. It turns ranges of the parameter space into
// requests for partitions, which the core grants one by one.
//
// Prefetch, Acquire and Release: on the computing thread. Here and Stop: on any thread. Invariants:
//   1. Acquire returns when every partition of its range is here, or with CANCELLED after Stop.
//   2. A partition is requested once for each range that holds it, granted as often, and released as often. A range
//      waits for its own grant: a late one must not be taken for that of the next range, since the values may have been
//      dropped in between.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cairn/v1/commands.pb.h"
#include "worker/backend/backend.h"
#include "worker/core/replica_core.h"

namespace cairn {

class LayerWeights : public WeightSource {
 public:
  // ranges: those of the partitions, in order, without gaps; they outlive this. post: gives the core an event.
  LayerWeights(uint64_t work, const std::vector<v1::PartitionRange>& ranges, std::function<void(replica::Event)> post);

  void Prefetch(int64_t begin, int64_t end) override;
  absl::Status Acquire(int64_t begin, int64_t end) override;
  void Release(int64_t begin, int64_t end) override;

  // The core has granted a request for the partition.
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
  Range prefetched_;  // used on the computing thread alone; empty: none
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint32_t> wanted_ ABSL_GUARDED_BY(mutex_);  // by partition: how often it was requested
  std::vector<uint32_t> granted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
