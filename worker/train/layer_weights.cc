#include "worker/train/layer_weights.h"

#include <algorithm>

namespace cairn {

LayerWeights::LayerWeights(uint64_t work, const std::vector<v1::PartitionRange>& ranges,
                           std::function<void(replica::Event)> post)
    : work_(work), ranges_(ranges), post_(std::move(post)), wanted_(ranges.size()), granted_(ranges.size()) {}

LayerWeights::Range LayerWeights::PartitionsOf(int64_t begin, int64_t end) const {
  const auto from = static_cast<uint64_t>(begin), to = static_cast<uint64_t>(end);
  const auto first =
      std::partition_point(ranges_.begin(), ranges_.end(), [&](const auto& r) { return r.end() <= from; });
  const auto last = std::partition_point(first, ranges_.end(), [&](const auto& r) { return r.begin() < to; });
  return {static_cast<uint32_t>(first - ranges_.begin()), static_cast<uint32_t>(last - ranges_.begin())};
}

void LayerWeights::Want(Range range) {
  {
    absl::MutexLock lock(&mutex_);
    for (uint32_t p = range.begin; p < range.end; ++p) ++wanted_[p];
  }
  post_(replica::WeightsWanted{work_, range.begin, range.end});
}

void LayerWeights::Prefetch(int64_t begin, int64_t end) {
  prefetched_ = PartitionsOf(begin, end);
  Want(prefetched_);
}

absl::Status LayerWeights::Acquire(int64_t begin, int64_t end) {
  const Range range = PartitionsOf(begin, end);
  if (range != std::exchange(prefetched_, Range())) Want(range);
  absl::MutexLock lock(&mutex_);
  const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (stopped_) return true;
    return std::equal(wanted_.begin() + range.begin, wanted_.begin() + range.end, granted_.begin() + range.begin);
  };
  mutex_.Await(absl::Condition(&ready));
  return stopped_ ? absl::CancelledError("the step is not wanted any more") : absl::OkStatus();
}

void LayerWeights::Release(int64_t begin, int64_t end) {
  const Range range = PartitionsOf(begin, end);
  post_(replica::WeightsDone{work_, range.begin, range.end});
}

void LayerWeights::Here(uint32_t partition) {
  absl::MutexLock lock(&mutex_);
  if (partition < granted_.size()) ++granted_[partition];
}

void LayerWeights::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
}

}  // namespace cairn
