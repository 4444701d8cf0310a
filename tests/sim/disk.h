// A simulated disk: a KvStore that survives its process, and loses unsynced batches when the power fails.
//
// Invariants: 1. When the process ends, no batch is lost for which Write had returned. 2. Power loss leaves a prefix of
// the batches written since the last synced one (none, all, or any number between): RocksDB's log is one file. 3.
// While full or failing, Write changes nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/storage/kv_store.h"
#include "tests/sim/rng.h"

namespace cairn::sim {

class SimDisk : public KvStore {
 public:
  // keep_history: required for PowerLoss; without it a write costs half.
  explicit SimDisk(bool keep_history) : keep_history_(keep_history), present_(NewMemoryKvStore()) {
    if (keep_history_) synced_ = NewMemoryKvStore();
  }

  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override { return present_->Get(key); }
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return present_->Scan(prefix, fn);
  }
  absl::Status Write(const KvBatch& batch, bool sync) override {
    if (failing_) return absl::ResourceExhaustedError("No space left on device");
    if (absl::Status s = present_->Write(batch, sync); !s.ok() || !keep_history_) return s;
    unsynced_.push_back(Copy(batch));
    return sync ? Flush(unsynced_.size()) : absl::OkStatus();
  }

  // Returns the number of lost batches.
  size_t PowerLoss(Rng& rng) {
    const size_t written = unsynced_.size();
    const size_t kept = static_cast<size_t>(rng.Between(0, static_cast<int64_t>(written)));
    if (!Flush(kept).ok()) return 0;
    unsynced_.clear();
    present_ = NewMemoryKvStore();
    KvBatch all;
    (void)synced_->Scan("", [&](std::string_view key, std::string_view value) {
      all.Put(std::string(key), std::string(value));
      return true;
    });
    (void)present_->Write(all, true);
    return written - kept;
  }
  void SetFailing(bool failing) { failing_ = failing; }
  bool failing() const { return failing_; }
  // A deep copy: the caller may reuse its buffers once the batch is on the disk.
  static KvBatch Copy(const KvBatch& batch) {
    KvBatch copy;
    for (const KvBatch::Op& op : batch.ops()) {
      if (const auto* put = std::get_if<KvBatch::PutOp>(&op)) {
        copy.Put(put->key, put->head,
                 put->body.empty() ? Buffer() : Buffer::CopyOf(put->body.data(), put->body.size()));
      } else if (const auto* one = std::get_if<KvBatch::DeleteOp>(&op)) {
        copy.Delete(one->key);
      } else if (const auto* range = std::get_if<KvBatch::DeleteRangeOp>(&op)) {
        copy.DeleteRange(range->begin, range->end);
      }
    }
    return copy;
  }
  // Replaces the disk by an empty one.
  void Replace() {
    failing_ = false;
    present_ = NewMemoryKvStore();
    if (keep_history_) synced_ = NewMemoryKvStore();
    unsynced_.clear();
  }

 private:
  absl::Status Flush(size_t batches) {
    for (size_t i = 0; i < batches; ++i) {
      if (absl::Status s = synced_->Write(unsynced_[i], true); !s.ok()) return s;
    }
    unsynced_.erase(unsynced_.begin(), unsynced_.begin() + static_cast<std::ptrdiff_t>(batches));
    return absl::OkStatus();
  }

  const bool keep_history_;
  bool failing_ = false;
  std::unique_ptr<KvStore> present_, synced_;
  std::vector<KvBatch> unsynced_;
};

}  // namespace cairn::sim
