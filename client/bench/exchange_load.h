// ExchangeLoad: pushes a gradient for every partition of a bench job and waits for all new values, round after round.
//
// One thread. All pushes share one gradient buffer; the answers are discarded.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "client/parameter_client.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

class ExchangeLoad {
 public:
  // ps_address: of the ps that holds the whole job, at version 0. shared_memory, arena: PsConnectionOptions.
  ExchangeLoad(const std::string& ps_address, v1::HostPartitions job, int streams, bool shared_memory,
               const SharedArena* arena);
  ~ExchangeLoad();

  // Runs one round and returns its time. Errors: that of a partition's answer, UNAVAILABLE, or DEADLINE_EXCEEDED.
  absl::StatusOr<absl::Duration> Round(absl::Duration timeout);

 private:
  struct Answers;  // of one round; its callbacks may outlive it

  const v1::HostPartitions job_;
  Buffer gradient_;
  uint64_t sequence_ = 0;
  PsConnection connection_;
};

}  // namespace cairn
