// WaitingRequests: client requests without an answer yet, the condition for which each kind waits, and the answers.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. Each request of a client that stays connected gets one answer (a snapshot's has several frames). A waiting
//      request is answered by Release as soon as it is ready.
//   2. An answer shows only kept updates (Replication::Settled); its payload is shared and never written to.
//   3. The number of requests is bounded, and a request that changes nothing waits for a bounded time.
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
  std::optional<ReplicaId> replica;  // the answer shows its sequence
  uint64_t clock_min = 0;            // bounded staleness: waits until the slowest replica has reached it
  std::optional<uint64_t> want_version;
  v1::DataType reply_dtype = v1::FLOAT32;
  Buffer asked;  // ValuesQuery::asked
};
struct WaitingPush {
  ReplicaId replica;
  uint64_t sequence = 0;  // waits until it is applied
  uint64_t clock_min = 0;
  std::optional<v1::DataType> reply_dtype;  // nullopt: the client keeps no values, and gets only the version
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

  // Errors: the request would have to wait, and cannot.
  absl::Status AnswerOrWait(WaitingRequest request);
  // Answers all requests that are ready.
  void Release();
  void FailAll(const absl::Status& why);
  // Fails pushes, snapshots, and pulls that wait for updates which will not be made.
  void EndTraining();
  void OnTick();
  void OnClientGone(uint64_t client);
  // As FailAll, outside of a Step.
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
  // Whether it is a push or snapshot, or a pull for updates beyond those in flight.
  bool WaitsForTraining(const WaitingRequest& request) const;
  // Whether it is a push or CLIP and all updates in flight are kept: it is applied at the end of this Step (SNAPSHOT).
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
