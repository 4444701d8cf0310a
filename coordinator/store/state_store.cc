#include "coordinator/store/state_store.h"

#include <algorithm>
#include <map>

#include "coordinator/core/stored_check.h"
#include "coordinator/core/stored_state.h"

namespace cairn {

absl::StatusOr<StoredState> StateStore::Load() {
  std::map<std::string, std::string> entries;
  CAIRN_ASSIGN_OR_RETURN(const std::optional<std::string> cluster, store_->Get(kClusterKey));
  if (cluster) entries[kClusterKey] = *cluster;
  for (const char* prefix : {kJobKeyPrefix, kEpochKeyPrefix, kTokenKeyPrefix}) {
    CAIRN_RETURN_IF_ERROR(store_->Scan(prefix, [&](std::string_view key, std::string_view value) {
      entries.emplace(key, value);
      return true;
    }));
  }
  CAIRN_ASSIGN_OR_RETURN(StoredState state, ReadStored(entries));
  CAIRN_RETURN_IF_ERROR(CheckStored(state));
  return state;
}

absl::Status StateStore::Write(const std::vector<Store>& changes) {
  for (size_t begin = 0; begin < changes.size(); begin += kChangesPerWrite) {
    KvBatch batch;
    for (size_t i = begin; i < std::min(changes.size(), begin + kChangesPerWrite); ++i) {
      if (changes[i].value) {
        batch.Put(changes[i].key, *changes[i].value);
      } else {
        batch.Delete(changes[i].key);
      }
    }
    CAIRN_RETURN_IF_ERROR(store_->Write(batch, /*sync=*/true));
  }
  return absl::OkStatus();
}

}  // namespace cairn
