#include "worker/dataset_cache.h"

#include <algorithm>
#include <utility>

namespace cairn {

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetCache::Open(const v1::Data& data, const Shape& input_shape,
                                                                  bool fresh) {
  const std::string key = data.SerializeAsString() + ToString(input_shape);
  absl::MutexLock opening(&opening_);
  if (!fresh) {
    absl::MutexLock lock(&mutex_);
    for (const Entry& entry : entries_) {
      if (entry.key != key) continue;
      if (std::shared_ptr<const Dataset> dataset = entry.dataset.lock()) return dataset;
    }
  }
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset, OpenDataset(data, input_shape));
  absl::MutexLock lock(&mutex_);
  std::erase_if(entries_, [&](const Entry& e) { return e.key == key; });
  entries_.push_back({key, dataset, dataset, clock_.Now() + kDatasetKeep});
  return dataset;
}

void DatasetCache::DropIdle() {
  std::vector<std::shared_ptr<const Dataset>> dropped;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  for (Entry& entry : entries_) {
    if (entry.kept != nullptr && clock_.Now() >= entry.keep_until) dropped.push_back(std::move(entry.kept));
  }
  std::erase_if(entries_, [](const Entry& e) { return e.kept == nullptr && e.dataset.expired(); });
}

}  // namespace cairn
