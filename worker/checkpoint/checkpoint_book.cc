#include "worker/checkpoint/checkpoint_book.h"

#include <algorithm>

#include "worker/limits.h"

namespace cairn {
namespace {

constexpr size_t kDeletedKept = 64;

bool IsSame(const v1::CheckpointInfo& a, const v1::CheckpointInfo& b) {
  return a.best() == b.best() && (a.best() || a.step() == b.step());
}

}  // namespace

bool CheckpointBook::Know(const google::protobuf::RepeatedPtrField<v1::CheckpointInfo>& checkpoints) {
  bool compared = false;
  for (const v1::CheckpointInfo& info : checkpoints) {
    const auto same = std::find_if(known_.begin(), known_.end(), [&](const auto& k) { return IsSame(k, info); });
    const bool deleted = !info.best() && std::find(deleted_.begin(), deleted_.end(), info.step()) != deleted_.end();
    if (same == known_.end()) {
      if (!deleted) known_.push_back(info);
    } else if (info.compared() && !same->compared() && info.written_unix_ms() == same->written_unix_ms()) {
      same->set_compared(true);
      compared = true;
    }
  }
  SortKnown();
  return compared;
}

void CheckpointBook::SortKnown() {
  std::stable_sort(known_.begin(), known_.end(),
                   [](const auto& a, const auto& b) { return a.written_unix_ms() < b.written_unix_ms(); });
}

void CheckpointBook::Written(const v1::CheckpointInfo& info) {
  std::erase_if(known_, [&](const v1::CheckpointInfo& k) { return IsSame(k, info); });
  std::erase(deleted_, info.step());
  known_.push_back(info);
}

void CheckpointBook::Best(const v1::CheckpointInfo& info) {
  std::erase_if(known_, [](const v1::CheckpointInfo& k) { return k.best(); });
  known_.push_back(info);
}

CheckpointBook::Pruned CheckpointBook::Prune(const v1::Checkpoints& rule, int64_t steps_per_epoch) {
  Pruned removed;
  size_t newer = 0, waiting = 0;
  for (size_t i = known_.size(); i-- > 0;) {
    const v1::CheckpointInfo& info = known_[i];
    if (info.best()) continue;
    const bool waits =
        !rule.save_best().empty() && !info.compared() && info.step() % std::max<int64_t>(steps_per_epoch, 1) == 0;
    const bool is_new = newer++ < static_cast<size_t>(std::max(rule.keep_max(), 1));
    const bool waits_on = waits && waiting++ < kComparedLaterMax;
    if (is_new || waits_on || held_ == info.step()) continue;
    removed.steps.push_back(info.step());
    if (waits) removed.not_compared.push_back(info.step());
  }
  for (const int64_t step : removed.steps) Forget(step);
  return removed;
}

void CheckpointBook::Forget(int64_t step) {
  std::erase_if(known_, [&](const v1::CheckpointInfo& k) { return !k.best() && k.step() == step; });
  deleted_.push_back(step);
  if (deleted_.size() > kDeletedKept) deleted_.pop_front();
}

void CheckpointBook::NotRemoved(const v1::CheckpointInfo& info) {
  std::erase(deleted_, info.step());
  known_.push_back(info);
  SortKnown();
}

std::optional<v1::CheckpointInfo> CheckpointBook::Find(int64_t step) const {
  std::optional<v1::CheckpointInfo> found;
  for (const v1::CheckpointInfo& known : known_) {
    if (!known.best() && known.step() == step) found = known;
  }
  return found;
}

}  // namespace cairn
