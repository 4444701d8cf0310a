#include "coordinator/state_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/stored_check.h"

namespace cairn {

absl::StatusOr<StoredState> StateStore::Load() {
  StoredState state;
  CAIRN_ASSIGN_OR_RETURN(const std::optional<std::string> cluster, store_->Get(kClusterKey));
  if (cluster && !state.cluster.ParseFromString(*cluster)) {
    return absl::DataLossError(absl::StrCat("the coordinator's state: key \"", kClusterKey, "\" is corrupt"));
  }
  std::string corrupt;
  CAIRN_RETURN_IF_ERROR(store_->Scan(kJobKeyPrefix, [&](std::string_view key, std::string_view value) {
    v1::StoredJob& job = state.jobs.emplace_back();
    const bool ok = job.ParseFromArray(value.data(), static_cast<int>(value.size())) &&
                    key == absl::StrCat(kJobKeyPrefix, job.status().job_id());
    if (!ok) corrupt = std::string(key);
    return ok;
  }));
  if (!corrupt.empty()) {
    return absl::DataLossError(absl::StrCat("the coordinator's state: key \"", corrupt, "\" is corrupt"));
  }
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
