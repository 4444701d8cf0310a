#include "worker/checkpoint_book.h"

#include <algorithm>

namespace cairn {
namespace {

constexpr size_t kDeletedKept = 64;
// Checkpoints at the end of an epoch that wait for the epoch's figures, with save_best.
constexpr size_t kComparedLater = 2;

bool IsSame(const v1::CheckpointInfo& a, const v1::CheckpointInfo& b) {
  return a.best() == b.best() && (a.best() || a.step() == b.step());
}

}  // namespace

void CheckpointBook::Know(const google::protobuf::RepeatedPtrField<v1::CheckpointInfo>& checkpoints) {
  for (const v1::CheckpointInfo& info : checkpoints) {
    const auto same = [&](const v1::CheckpointInfo& k) { return IsSame(k, info); };
    const bool deleted = !info.best() && std::find(deleted_.begin(), deleted_.end(), info.step()) != deleted_.end();
    if (!deleted && std::none_of(known_.begin(), known_.end(), same)) known_.push_back(info);
  }
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

std::vector<int64_t> CheckpointBook::Prune(const v1::Checkpoints& rule, int64_t steps_per_epoch) {
  std::vector<int64_t> removed;
  size_t newer = 0, compared_later = 0;
  for (size_t i = known_.size(); i-- > 0;) {
    if (known_[i].best()) continue;
    bool stays = newer++ < static_cast<size_t>(std::max(rule.keep_max(), 1));
    if (!rule.save_best().empty() && known_[i].step() % std::max<int64_t>(steps_per_epoch, 1) == 0) {
      stays |= compared_later++ < kComparedLater;
    }
    if (!stays) removed.push_back(known_[i].step());
  }
  for (const int64_t step : removed) Forget(step);
  return removed;
}

void CheckpointBook::Forget(int64_t step) {
  std::erase_if(known_, [&](const v1::CheckpointInfo& k) { return !k.best() && k.step() == step; });
  deleted_.push_back(step);
  if (deleted_.size() > kDeletedKept) deleted_.pop_front();
}

std::optional<v1::CheckpointInfo> CheckpointBook::Find(int64_t step) const {
  std::optional<v1::CheckpointInfo> found;
  for (const v1::CheckpointInfo& known : known_) {
    if (!known.best() && known.step() == step) found = known;
  }
  return found;
}

}  // namespace cairn
