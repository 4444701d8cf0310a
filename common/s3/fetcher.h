// FetchMissing: fetches the objects of a data set that the cache lacks, in parts, several at the same time.
//
// Blocks, and runs threads of its own until it returns. The first error ends it; what is complete then is in the cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/s3/object_cache.h"
#include "common/s3/object_store.h"

namespace cairn {

struct FetchOrder {
  ObjectStore* store = nullptr;
  std::string bucket;
  const std::vector<S3Object>* objects = nullptr;  // by the set's files
  ObjectCache::Set* set = nullptr;
  std::function<void(uint64_t bytes)> on_bytes;  // after each part; from several threads
};
absl::Status FetchMissing(const FetchOrder& order);

}  // namespace cairn
