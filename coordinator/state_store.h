// StateStore: what the coordinator must not forget, in a KvStore: keys and values as ClusterCore's Store effects give
// them.
//
// Not thread-safe. Invariant: what Write confirmed is there after a restart, a crash or a power failure.
#pragma once

#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/storage/kv_store.h"
#include "coordinator/events.h"

namespace cairn {

class StateStore {
 public:
  explicit StateStore(std::unique_ptr<KvStore> store) : store_(std::move(store)) {}

  // Errors: DATA_LOSS names the key whose value cannot be read.
  absl::StatusOr<StoredState> Load();
  // All of them or none, in one atomic write.
  absl::Status Write(const std::vector<Store>& changes);

 private:
  std::unique_ptr<KvStore> store_;
};

}  // namespace cairn
