// WaitingRequests: the requests of clients that have no answer yet, of each kind what it waits for, and the answers.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. Each request of a client that stays gets one answer (a snapshot's has several frames). One that waits is
//      answered by Release as soon as it is ready.
//   2. What an answer shows is kept (Replication::Settled), and its payload is shared: nobody writes to it.
//   3. Their number is bounded, and a request that changes nothing waits for a bounded time.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "server/core/open_step.h"
#include "server/core/replication.h"
#include "server/core/updates.h"

namespace cairn {

struct WaitingPull {
  std::optional<ReplicaId> replica;  // whose sequence the answer shows
  uint64_t clock_min = 0;            // bounded staleness: until the slowest replica is there
  std::optional<uint64_t> want_version;
  v1::DataType reply_dtype = v1::FLOAT32;
  Buffer asked;  // ValuesQuery::asked
};
struct WaitingPush {
  ReplicaId replica;
  uint64_t sequence = 0;  // until it is applied
  uint64_t clock_min = 0;
  std::optional<v1::DataType> reply_dtype;  // nullopt: of a client that keeps no values; it gets the version alone
};
struct WaitingClip {
  uint64_t sequence = 0;
  std::optional<v1::DataType> reply_dtype;
};
struct WaitingSnapshot {
  std::optional<uint64_t> want_version;
};

struct WaitingRequest {
  uint64_t client = 0;
  uint64_t request_id = 0;
  std::variant<WaitingPull, WaitingPush, WaitingClip, WaitingSnapshot> what;
  absl::Time since = absl::InfinitePast();  // set when it begins to wait
};

class WaitingRequests {
 public:
  WaitingRequests(CopyContext& copy, const Updates& updates, Replication& replication, const OpenStep& step)
      : copy_(copy), updates_(updates), replication_(replication), step_(step) {}

  // Errors: it cannot wait.
  absl::Status AnswerOrWait(WaitingRequest request);
  // Those that are ready.
  void Release();
  void FailAll(const absl::Status& why);
  // Fails pushes, snapshots, and pulls that wait for updates that are not made any more.
  void EndTraining();
  void OnTick();
  void OnClientGone(uint64_t client);
  // FailAll, outside of a Step.
  std::vector<PartitionReply> End(const absl::Status& why);

  size_t size() const { return waiting_.size(); }
  int64_t snapshots() const;
  size_t max() const { return kWaitersPerReplicaMax * copy_.config.replicas + kWaitersExtraMax; }
  uint64_t ClockMinFor(uint64_t sequence) const;

 private:
  struct Shown {  // in VALUES
    std::optional<ReplicaId> replica;
    std::optional<uint64_t> want_version;
    bool norms = false;
    std::optional<v1::DataType> dtype;
    Buffer asked = {};
  };

  bool Ready(const WaitingRequest& request);
  bool ClockReached(uint64_t clock_min) const;
  // A push or snapshot; or a pull for updates beyond those that are under way.
  bool WaitsForTraining(const WaitingRequest& request) const;
  // A push, when all that is under way is kept: it is applied at the end of this Step (SNAPSHOT).
  bool AnsweredAtOnce(const WaitingRequest& request) const;
  void Answer(const WaitingRequest& request);
  Frame MakeValues(uint64_t request_id, const Shown& shown);

  CopyContext& copy_;
  const Updates& updates_;
  Replication& replication_;
  const OpenStep& step_;
  std::vector<WaitingRequest> waiting_;
};

}  // namespace cairn
