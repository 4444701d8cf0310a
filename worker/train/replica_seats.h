// ReplicaSeats: which slot last computed each own replica of a job, and so which replica a slot gets next if none
// moves.
//
// Not thread-safe: one caller at a time.
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
  // Forgets all other replicas.
  void Keep(absl::Span<const int32_t> replicas) {
    std::erase_if(seats_, [&](const auto& seat) {
      return std::find(replicas.begin(), replicas.end(), seat.first) == replicas.end();
    });
  }
  int HomeOf(ReplicaId replica) const {
    const auto seat = seats_.find(replica.value);
    return seat == seats_.end() ? ComputePool::kNoSlot : seat->second.slot;
  }
  // The turn of the slot after the replica's current step: the replicas of one slot take turns in ascending order, each
  // with the step after its last one.
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
