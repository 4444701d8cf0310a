// ReplicaSeats: which slot computed each own replica of a job last, and so what a slot gets next if nothing moves.
//
// Of one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "worker/train/compute_pool.h"

namespace cairn {

class ReplicaSeats {
 public:
  struct Turn {
    ReplicaId replica;
    int64_t step = 0;
  };

  void Take(ReplicaId replica, int slot, int64_t step) { seats_[replica.value] = {slot, step}; }
  // The worker has no others any more.
  void Keep(absl::Span<const int32_t> replicas) {
    std::erase_if(seats_, [&](const auto& seat) {
      return std::find(replicas.begin(), replicas.end(), seat.first) == replicas.end();
    });
  }
  int HomeOf(ReplicaId replica) const {
    const auto seat = seats_.find(replica.value);
    return seat == seats_.end() ? ComputePool::kNoSlot : seat->second.slot;
  }
  // After the replica's present step: replicas of one slot take turns in their order, each at the step after its last.
  std::optional<Turn> NextOn(int slot, ReplicaId replica) const {
    auto next = seats_.upper_bound(replica.value);
    for (size_t i = 0; i < seats_.size(); ++i, ++next) {
      if (next == seats_.end()) next = seats_.begin();
      if (next->second.slot == slot) return Turn{ReplicaId(next->first), next->second.step + 1};
    }
    return std::nullopt;
  }

 private:
  struct Seat {
    int slot = ComputePool::kNoSlot;
    int64_t step = 0;
  };
  std::map<int32_t, Seat> seats_;  // by replica
};

}  // namespace cairn
