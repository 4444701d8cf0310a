#include "tests/sim/checkpoints.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/checkpoint_name.h"

namespace cairn::sim {
namespace {

bool IsBest(const std::string& path) { return path == absl::StrCat(kCheckpointDir, "/best"); }

}  // namespace

absl::StatusOr<std::string> CheckpointDirectory::Write(CheckpointContents contents, int64_t now_unix_ms) {
  if (full_) {
    ++failed_writes_;
    return absl::ResourceExhaustedError(absl::StrCat(kCheckpointDir, ": No space left on device"));
  }
  const std::string path = absl::StrCat(kCheckpointDir, "/", CheckpointName(contents.manifest.step));
  stored_[path] = std::make_shared<const StoredCheckpoint>(
      StoredCheckpoint{std::move(contents), now_unix_ms, ++last_number_, false});
  return path;
}

absl::StatusOr<std::string> CheckpointDirectory::KeepAsBest(const std::string& path) {
  auto found = stored_.find(path);
  if (found == stored_.end()) return absl::NotFoundError(absl::StrCat(path, " is not there"));
  const std::string best = absl::StrCat(kCheckpointDir, "/best");
  stored_[best] = found->second;
  return best;
}

absl::StatusOr<CheckpointDirectory::Found> CheckpointDirectory::Open(const std::string& path,
                                                                     absl::Span<const std::string> fallbacks) const {
  Found found;
  const auto take = [&](const std::string& name) {
    auto at = stored_.find(name);
    if (at == stored_.end() || at->second->damaged) {
      found.skipped.push_back(absl::StrCat(name, at == stored_.end() ? ": is not there" : ": it was altered"));
      return false;
    }
    found.path = name;
    found.checkpoint = at->second;
    return true;
  };
  // The directory: the newest one in it.
  const auto open = [&](const std::string& name) {
    if (name != kCheckpointDir) return take(name);
    const auto newest = NewestWhole();
    return newest != stored_.end() && take(newest->first);
  };
  if (open(path) || std::any_of(fallbacks.begin(), fallbacks.end(), open)) return found;
  return absl::NotFoundError(absl::StrCat(path, ": holds no checkpoint, and none of the others is whole"));
}

CheckpointDirectory::Stored::const_iterator CheckpointDirectory::NewestWhole() const {
  const auto age = [](const auto& one) {
    return std::tuple(one.second->written_unix_ms, one.second->contents.manifest.step);
  };
  auto newest = stored_.end();
  for (auto at = stored_.begin(); at != stored_.end(); ++at) {
    if (at->second->damaged || IsBest(at->first)) continue;
    if (newest == stored_.end() || age(*newest) < age(*at)) newest = at;
  }
  return newest;
}

int64_t CheckpointDirectory::NewestWrittenUnixMs() const {
  int64_t newest = 0;
  for (const auto& [path, checkpoint] : stored_) newest = std::max(newest, checkpoint->written_unix_ms);
  return newest;
}

bool CheckpointDirectory::IsWhole(const std::string& path) const {
  auto found = stored_.find(path);
  return found != stored_.end() && !found->second->damaged;
}

bool CheckpointDirectory::IsNewest(const Found& found) const {
  return std::none_of(stored_.begin(), stored_.end(), [&](const auto& one) {
    return !one.second->damaged && !IsBest(one.first) && one.second->number > found.checkpoint->number;
  });
}

bool CheckpointDirectory::ResumesWithout(const std::string& path) const {
  return std::any_of(stored_.begin(), stored_.end(),
                     [&](const auto& one) { return one.first != path && !one.second->damaged && !IsBest(one.first); });
}

void CheckpointDirectory::Damage(const std::string& path) {
  auto found = stored_.find(path);
  if (found == stored_.end()) return;
  StoredCheckpoint damaged = *found->second;
  damaged.damaged = true;
  found->second = std::make_shared<const StoredCheckpoint>(std::move(damaged));
}

}  // namespace cairn::sim
