// The coordinator's keys: how the stored state is read, and the results of epochs, which have keys of their own.
//
//   cluster              StoredCluster
//   job/<id>             StoredJob
//   epoch/<id>/<epoch>   EpochResult, the epoch in eight digits
//   token/<id>           StoredToken (tokens.h)
//
// A job is stored often, and its list of epochs only grows: in one value, every epoch would be written again with each
// later one. Invariants:
//   1. An epoch is stored before the job that counts it (StoredJob.epochs_apart), and again only when it has changed.
//   2. The key of an epoch that no job counts is an orphan: JobTable deletes it.
//   3. A job whose epochs are in StoredJob.status, where older coordinators stored them, can be read too.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "coordinator/core/events.h"

namespace cairn {

inline constexpr char kEpochKeyPrefix[] = "epoch/";

// entries: all keys with their values. Errors: DATA_LOSS names the key that cannot be read. A missing epoch is read as
// empty, with a warning.
absl::StatusOr<StoredState> ReadStored(const std::map<std::string, std::string>& entries);

class StoredEpochs {
 public:
  // stored: as it was read.
  explicit StoredEpochs(const StoredState& stored);

  // Moves the epochs out of `job`; returns what to store before it.
  std::vector<Store> TakeOut(v1::StoredJob& job);
  // The job is forgotten. Returns the deletions of its epochs, to be made after the job's own.
  std::vector<Store> Forget(uint64_t job_id);

 private:
  std::map<uint64_t, std::vector<uint64_t>> written_;  // by job and epoch: a checksum of what its key holds
};

}  // namespace cairn
