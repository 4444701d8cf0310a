// The fail-stop of the stores that daemons have (common/storage/rocksdb_kv_store.cc): after the first write that fails,
// no write succeeds until the process has ended, even if the disk has room again.
#pragma once

#include <functional>
#include <utility>

#include "common/storage/kv_store.h"

namespace cairn::sim {

class FailStopStore : public KvStore {
 public:
  // on_failed: called once a process, at its first failure.
  FailStopStore(KvStore& disk, std::function<void()> on_failed) : disk_(disk), on_failed_(std::move(on_failed)) {}

  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override { return disk_.Get(key); }
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return disk_.Scan(prefix, fn);
  }
  absl::Status Write(const KvBatch& batch, bool sync) override {
    if (!failed_.ok()) return failed_;
    failed_ = disk_.Write(batch, sync);
    if (!failed_.ok()) on_failed_();
    return failed_;
  }
  const absl::Status& failed() const { return failed_; }
  void ProcessEnded() { failed_ = absl::OkStatus(); }

 private:
  KvStore& disk_;
  const std::function<void()> on_failed_;
  absl::Status failed_;
};

}  // namespace cairn::sim
