// The KvStore used by tests and the simulator: a sorted map under a mutex.
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/storage/kv_store.h"

namespace cairn {
namespace {

class MemoryKvStore : public KvStore {
 public:
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override {
    absl::MutexLock lock(&mutex_);
    const auto it = map_.find(key);
    if (it == map_.end()) return std::optional<std::string>();
    return std::optional<std::string>(it->second);
  }

  absl::Status Write(const KvBatch& batch, bool) override {
    absl::MutexLock lock(&mutex_);
    for (const KvBatch::Op& op : batch.ops()) {
      if (const auto* put = std::get_if<KvBatch::PutOp>(&op)) {
        std::string value;
        value.reserve(put->head.size() + put->body.size());
        value.append(put->head);
        value.append(reinterpret_cast<const char*>(put->body.data()), put->body.size());
        map_.insert_or_assign(put->key, std::move(value));
      } else if (const auto* del = std::get_if<KvBatch::DeleteOp>(&op)) {
        map_.erase(del->key);
      } else if (const auto* range = std::get_if<KvBatch::DeleteRangeOp>(&op)) {
        if (range->begin < range->end) map_.erase(map_.lower_bound(range->begin), map_.lower_bound(range->end));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    // Iterates over a copy, so that fn may use the store.
    std::vector<std::pair<std::string, std::string>> found;
    {
      absl::MutexLock lock(&mutex_);
      for (auto it = map_.lower_bound(prefix); it != map_.end() && it->first.starts_with(prefix); ++it) {
        found.push_back(*it);
      }
    }
    for (const auto& [key, value] : found) {
      if (!fn(key, value)) break;
    }
    return absl::OkStatus();
  }

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::string, std::less<>> map_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<KvStore> NewMemoryKvStore() { return std::make_unique<MemoryKvStore>(); }

}  // namespace cairn
