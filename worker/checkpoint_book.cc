#include "worker/checkpoint_book.h"

#include <algorithm>

namespace cairn {
namespace {

constexpr size_t kDeletedKept = 64;
// Checkpoints at the end of an epoch that wait for the epoch's figures, with save_best.
constexpr size_t kComparedLater = 2;

}  // namespace

void CheckpointBook::Know(const google::protobuf::RepeatedPtrField<v1::CheckpointInfo>& checkpoints) {
  for (const v1::CheckpointInfo& info : checkpoints) {
    const auto same = [&](const v1::CheckpointInfo& k) { return k.path() == info.path(); };
    if (std::none_of(known_.begin(), known_.end(), same) &&
        std::find(deleted_.begin(), deleted_.end(), info.path()) == deleted_.end()) {
      known_.push_back(info);
    }
  }
  std::stable_sort(known_.begin(), known_.end(),
                   [](const auto& a, const auto& b) { return a.written_unix_ms() < b.written_unix_ms(); });
}

void CheckpointBook::Written(const v1::CheckpointInfo& info) {
  std::erase_if(known_, [&](const v1::CheckpointInfo& k) { return k.path() == info.path(); });
  std::erase(deleted_, info.path());
  known_.push_back(info);
}

void CheckpointBook::Best(const v1::CheckpointInfo& info) {
  std::erase_if(known_, [](const v1::CheckpointInfo& k) { return k.best(); });
  known_.push_back(info);
}

std::vector<std::string> CheckpointBook::Prune(const v1::Checkpoints& rule, int64_t steps_per_epoch) {
  std::vector<std::string> removed;
  size_t newer = 0, compared_later = 0;
  for (size_t i = known_.size(); i-- > 0;) {
    if (known_[i].best()) continue;
    bool stays = newer++ < static_cast<size_t>(std::max(rule.keep_max(), 1));
    if (!rule.save_best().empty() && known_[i].step() % std::max<int64_t>(steps_per_epoch, 1) == 0) {
      stays |= compared_later++ < kComparedLater;
    }
    if (stays) continue;
    removed.push_back(known_[i].path());
    deleted_.push_back(known_[i].path());
    known_.erase(known_.begin() + static_cast<int64_t>(i));
  }
  while (deleted_.size() > kDeletedKept) deleted_.pop_front();
  return removed;
}

std::optional<v1::CheckpointInfo> CheckpointBook::Find(int64_t step) const {
  std::optional<v1::CheckpointInfo> found;
  for (const v1::CheckpointInfo& known : known_) {
    if (!known.best() && known.step() == step) found = known;
  }
  return found;
}

}  // namespace cairn
