// StateStore: what the coordinator must not forget, in a KvStore: keys and values as ClusterCore's Store effects give
// them.
//
// Not thread-safe. Invariants: 1. What Write confirmed is there after a restart, a crash or a power failure. 2. After
// an error of Write it is not known how much was written: the state is to be loaded again.
#pragma once

#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/storage/kv_store.h"
#include "coordinator/core/events.h"

namespace cairn {

class StateStore {
 public:
  static constexpr size_t kChangesPerWrite = 50;  // what a store in etcd takes at once

  explicit StateStore(std::unique_ptr<KvStore> store) : store_(std::move(store)) {}

  // Errors: DATA_LOSS names the key whose value cannot be read.
  absl::StatusOr<StoredState> Load();
  // In order, kChangesPerWrite at a time, each time atomically: what a crash leaves is a beginning of them.
  absl::Status Write(const std::vector<Store>& changes);

 private:
  std::unique_ptr<KvStore> store_;
};

}  // namespace cairn
