// DecodeWindow: decides which batches are decoded ahead of the replicas that will ask for them, and which is next.
//
// A batch is a piece of a replica's step, numbered across all steps. Not thread-safe: BatchSource guards it and the
// slots that it hands out. Invariants:
//   1. A replica's slots are for pieces in (last, last + ahead], where `last` is the piece that it asked for last.
//   2. No two slots are for the same piece and replica: a batch is decoded ahead once.
//   3. There are at most slots_max slots in total.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/tensor/batch.h"

namespace cairn {

class DecodeWindow {
 public:
  // Filled by the thread that took it as a task, even if the window has dropped it meanwhile.
  struct Slot {
    bool ready = false;  // once true, `batch` is final
    absl::StatusOr<Batch> batch = Batch{};
  };
  struct Task {
    int64_t piece;
    ReplicaId replica;
    std::shared_ptr<Slot> slot;
  };

  // ahead: how many pieces are decoded ahead for each replica; 0: none. end: the number of pieces of a replica.
  DecodeWindow(int64_t ahead, int64_t slots_max, int64_t end) : ahead_(ahead), slots_max_(slots_max), end_(end) {}

  struct Asked {
    std::shared_ptr<Slot> slot;  // of the piece; null: nobody decodes it
    bool hungry = false;         // at most half of the pieces to be decoded ahead are there
  };
  // The replica asks for `piece`, and its window moves there.
  Asked Ask(ReplicaId replica, int64_t piece);
  // Null: nobody decodes it.
  std::shared_ptr<const Slot> Find(ReplicaId replica, int64_t piece) const;
  // The piece that its replica needs soonest; nullopt: nothing is to be decoded now.
  std::optional<Task> Next();
  void Forget(ReplicaId replica);

 private:
  struct Replica {
    int64_t last = -1;
    bool hungry = false;  // set by Ask, until the window is full
    std::map<int64_t, std::shared_ptr<Slot>> slots;
  };

  const int64_t ahead_, slots_max_, end_;
  int64_t slots_ = 0;
  std::map<int32_t, Replica> replicas_;
};

}  // namespace cairn
