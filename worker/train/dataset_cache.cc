#include "worker/train/dataset_cache.h"

#include <algorithm>
#include <utility>

namespace cairn {
namespace {

// What decides which examples there are and what they hold: jobs that differ in the rest share a data set and what is
// decoded of it.
std::string KeyOf(v1::Data data, const Shape& input_shape) {
  data.clear_shuffle();
  data.clear_drop_remainder();
  data.clear_prefetch();
  data.clear_augmentation();
  return data.SerializeAsString() + ToString(input_shape);
}

}  // namespace

std::shared_ptr<const Dataset> DatasetCache::Find(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  for (const Entry& entry : entries_) {
    if (entry.key == key) return entry.dataset.lock();
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetCache::Open(const v1::Data& data, const Shape& input_shape,
                                                                  How how, absl::Duration fetch_max) {
  const std::string key = KeyOf(data, input_shape);
  if (std::shared_ptr<const Dataset> open; how == How::kShared && (open = Find(key)) != nullptr) return open;
  // Others open meanwhile.
  CAIRN_ASSIGN_OR_RETURN(FetchedData fetched, FetchData(data, remote_, fetch_max));
  absl::MutexLock opening(&opening_);
  if (std::shared_ptr<const Dataset> open; how == How::kShared && (open = Find(key)) != nullptr) return open;
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset, OpenFetchedDataset(std::move(fetched), input_shape));
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
