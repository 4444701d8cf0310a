// StateStore: the coordinator's durable state in a KvStore, with the keys and values of ClusterCore's Store
// effects.
//
// Not thread-safe. Invariants: 1. A confirmed Write survives a restart, a crash or a power failure. 2. After a Write
// fails it is unknown how much was written: the state must be loaded again.
#pragma once

#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/storage/kv_store.h"
#include "coordinator/core/events.h"

namespace cairn {

class StateStore {
 public:
  static constexpr size_t kChangesPerWrite = 50;  // the most that a store in etcd takes at once

  explicit StateStore(std::unique_ptr<KvStore> store) : store_(std::move(store)) {}

  // Errors: DATA_LOSS names the key whose value cannot be read.
  absl::StatusOr<StoredState> Load();
  // Writes in order, in atomic batches of kChangesPerWrite: a crash leaves a prefix of the changes.
  absl::Status Write(const std::vector<Store>& changes);

 private:
  std::unique_ptr<KvStore> store_;
};

}  // namespace cairn
