#include "common/data/decode_window.h"

#include <algorithm>

namespace cairn {

DecodeWindow::Asked DecodeWindow::Ask(ReplicaId replica, int64_t piece) {
  Replica& r = replicas_[replica.value];
  const auto asked = r.slots.find(piece);
  Asked result;
  if (asked != r.slots.end()) result.slot = asked->second;
  r.last = piece;
  for (auto it = r.slots.begin(); it != r.slots.end();) {
    if (it->first > piece && it->first <= piece + ahead_) {
      ++it;
    } else {
      it = r.slots.erase(it);
      --slots_;
    }
  }
  const int64_t want = std::min(ahead_, end_ - 1 - piece);
  // Set even if it is set already: the limit on all slots may have stopped the decoding.
  result.hungry = want > 0 && static_cast<int64_t>(r.slots.size()) * 2 <= want;
  if (result.hungry) r.hungry = true;
  return result;
}

std::shared_ptr<const DecodeWindow::Slot> DecodeWindow::Find(ReplicaId replica, int64_t piece) const {
  const auto of_replica = replicas_.find(replica.value);
  if (of_replica == replicas_.end()) return nullptr;
  const auto slot = of_replica->second.slots.find(piece);
  return slot == of_replica->second.slots.end() ? nullptr : slot->second;
}

std::optional<DecodeWindow::Task> DecodeWindow::Next() {
  if (slots_ >= slots_max_) return std::nullopt;
  Replica* best = nullptr;
  int32_t best_id = 0;
  int64_t best_distance = ahead_ + 1;
  for (auto& [id, r] : replicas_) {
    if (!r.hungry) continue;
    int64_t distance = 1;
    while (distance <= ahead_ && r.slots.contains(r.last + distance)) ++distance;
    if (distance > ahead_ || r.last + distance >= end_) {
      r.hungry = false;
    } else if (distance < best_distance) {
      best = &r;
      best_id = id;
      best_distance = distance;
    }
  }
  if (best == nullptr) return std::nullopt;
  Task task{best->last + best_distance, ReplicaId(best_id), std::make_shared<Slot>()};
  best->slots.emplace(task.piece, task.slot);
  ++slots_;
  return task;
}

void DecodeWindow::Forget(ReplicaId replica) {
  const auto it = replicas_.find(replica.value);
  if (it == replicas_.end()) return;
  slots_ -= static_cast<int64_t>(it->second.slots.size());
  replicas_.erase(it);
}

}  // namespace cairn
