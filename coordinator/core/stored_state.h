// The coordinator's keys: how what is stored is read again, and the results of epochs, which have keys of their own.
//
//   cluster              StoredCluster
//   job/<id>             StoredJob
//   epoch/<id>/<epoch>   EpochResult, the epoch in eight digits
//
// A job is stored often, and its epochs only grow: in one value each of them would be written again with every later
// one. Invariants:
//   1. An epoch is stored before the job that counts it (StoredJob.epochs_apart), and again only where it has changed.
//   2. A key of an epoch that no job counts means nothing: JobTable deletes it.
//   3. A job whose epochs are in StoredJob.status, where older coordinators stored them, is read as well.
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

// entries: all keys with their values. Errors: DATA_LOSS names the key that cannot be read. An epoch that is missing is
// empty, with a warning.
absl::StatusOr<StoredState> ReadStored(const std::map<std::string, std::string>& entries);

class StoredEpochs {
 public:
  // As they were read.
  explicit StoredEpochs(const StoredState& stored);

  // Moves the epochs out of `job`; returns what is to be stored before it.
  std::vector<Store> TakeOut(v1::StoredJob& job);
  // The job is forgotten: its keys, to be deleted after the job's.
  std::vector<Store> Forget(uint64_t job_id);

 private:
  std::map<uint64_t, std::vector<uint64_t>> written_;  // by job and epoch: a checksum of what its key holds
};

}  // namespace cairn
