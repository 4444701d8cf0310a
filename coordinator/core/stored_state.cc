#include "coordinator/core/stored_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/digest.h"
#include "common/base/log.h"

namespace cairn {
namespace {

std::string EpochKey(uint64_t job_id, int epoch) {
  return absl::StrFormat("%s%d/%08d", kEpochKeyPrefix, job_id, epoch);
}

absl::Status Corrupt(const std::string& key) {
  return absl::DataLossError(absl::StrCat("the coordinator's state: key \"", key, "\" is corrupt"));
}

uint64_t SumOf(const std::string& bytes) { return Checksum(bytes.data(), bytes.size()); }

// Inserts the epochs of a job that are stored under separate keys. `taken`: the keys that belong to jobs. A missing
// epoch has no figures: nothing else depends on them, and the job continues.
absl::Status PutEpochs(const std::map<std::string, std::string>& entries, v1::StoredJob& job,
                       std::map<std::string, bool>& taken) {
  job.mutable_status()->clear_epochs();
  if (job.epochs_apart() > job.status().spec().epochs())
    return Corrupt(absl::StrCat(kJobKeyPrefix, job.status().job_id()));
  for (int epoch = 0; epoch < job.epochs_apart(); ++epoch) {
    const std::string key = EpochKey(job.status().job_id(), epoch);
    const auto entry = entries.find(key);
    v1::EpochResult& result = *job.mutable_status()->add_epochs();
    if (entry == entries.end()) {
      LogWarning("the coordinator's state: key \"%s\" is missing; job %d continues without the figures of its epoch %d",
                 key, job.status().job_id(), epoch + 1);
      result.set_epoch(epoch);
      continue;
    }
    if (!result.ParseFromString(entry->second)) return Corrupt(key);
    taken[key] = true;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StoredState> ReadStored(const std::map<std::string, std::string>& entries) {
  StoredState state;
  std::map<std::string, bool> taken;
  for (const auto& [key, value] : entries) {
    if (key == kClusterKey) {
      if (!state.cluster.ParseFromString(value)) return Corrupt(key);
    } else if (absl::StartsWith(key, kJobKeyPrefix)) {
      v1::StoredJob& job = state.jobs.emplace_back();
      if (!job.ParseFromString(value) || key != absl::StrCat(kJobKeyPrefix, job.status().job_id())) return Corrupt(key);
      if (job.epochs_apart() > 0) CAIRN_RETURN_IF_ERROR(PutEpochs(entries, job, taken));
    } else if (absl::StartsWith(key, kTokenKeyPrefix)) {
      v1::StoredToken& token = state.tokens.emplace_back();
      if (!token.ParseFromString(value) || key != absl::StrCat(kTokenKeyPrefix, token.token().id()))
        return Corrupt(key);
    }
  }
  for (const auto& [key, value] : entries) {
    if (absl::StartsWith(key, kEpochKeyPrefix) && !taken.contains(key)) state.orphans.push_back(key);
  }
  return state;
}

StoredEpochs::StoredEpochs(const StoredState& stored) {
  for (const v1::StoredJob& job : stored.jobs) {
    for (int epoch = 0; epoch < std::min(job.epochs_apart(), job.status().epochs_size()); ++epoch) {
      written_[job.status().job_id()].push_back(SumOf(job.status().epochs(epoch).SerializeAsString()));
    }
  }
}

std::vector<Store> StoredEpochs::TakeOut(v1::StoredJob& job) {
  std::vector<Store> stores;
  std::vector<uint64_t>& written = written_[job.status().job_id()];
  for (int epoch = 0; epoch < job.status().epochs_size(); ++epoch) {
    std::string bytes = job.status().epochs(epoch).SerializeAsString();
    const uint64_t sum = SumOf(bytes);
    const size_t i = static_cast<size_t>(epoch);
    if (i < written.size() && written[i] == sum) continue;
    written.resize(std::max(written.size(), i + 1));
    written[i] = sum;
    stores.push_back({EpochKey(job.status().job_id(), epoch), std::move(bytes)});
  }
  job.set_epochs_apart(job.status().epochs_size());
  job.mutable_status()->clear_epochs();
  return stores;
}

std::vector<Store> StoredEpochs::Forget(uint64_t job_id) {
  std::vector<Store> stores;
  const auto job = written_.find(job_id);
  if (job == written_.end()) return stores;
  for (size_t epoch = 0; epoch < job->second.size(); ++epoch)
    stores.push_back({EpochKey(job_id, static_cast<int>(epoch)), std::nullopt});
  written_.erase(job);
  return stores;
}

}  // namespace cairn
