#include "worker/layer_weights.h"

#include <algorithm>

namespace cairn {

LayerWeights::LayerWeights(uint64_t work, const std::vector<v1::PartitionRange>& ranges,
                           std::function<void(replica::Event)> post)
    : work_(work), ranges_(ranges), post_(std::move(post)), held_(ranges.size()), here_(ranges.size()) {}

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
    for (uint32_t p = range.begin; p < range.end; ++p) ++held_[p];
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
    return std::all_of(here_.begin() + range.begin, here_.begin() + range.end, [](char here) { return here != 0; });
  };
  mutex_.Await(absl::Condition(&ready));
  return stopped_ ? absl::CancelledError("the step is not wanted any more") : absl::OkStatus();
}

void LayerWeights::Release(int64_t begin, int64_t end) {
  const Range range = PartitionsOf(begin, end);
  {
    absl::MutexLock lock(&mutex_);
    for (uint32_t p = range.begin; p < range.end; ++p) {
      if (--held_[p] == 0) here_[p] = 0;
    }
  }
  post_(replica::WeightsDone{work_, range.begin, range.end});
}

void LayerWeights::Here(uint32_t partition) {
  absl::MutexLock lock(&mutex_);
  if (partition < here_.size() && held_[partition] > 0) here_[partition] = 1;
}

void LayerWeights::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
}

}  // namespace cairn
