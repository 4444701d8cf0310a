// What the driver of a simulated coordinator runs on: virtual time, an executor without a thread, a store that outlives
// it.
//
// Not thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/storage/kv_store.h"
#include "tests/bench/scale_meter.h"
#include "tests/sim/world.h"

namespace cairn::bench {

class VirtualClock : public Clock {
 public:
  explicit VirtualClock(const sim::World& world) : world_(world) {}
  absl::Time Now() override { return world_.now(); }

 private:
  const sim::World& world_;
};

// Runs a closure where it is posted, or after the one that runs. Its timers are the driver's ticks.
class VirtualExecutor : public Executor {
 public:
  VirtualExecutor(sim::World& world, ScaleMeter& meter) : world_(world), meter_(meter) {}
  void Post(std::function<void()> fn) override {
    waiting_.push_back(std::move(fn));
    if (std::exchange(running_, true)) return;
    for (; !waiting_.empty(); waiting_.pop_front()) waiting_.front()();
    running_ = false;
  }
  void PostAfter(absl::Duration delay, std::function<void()> fn) override {
    world_.After(delay, [this, alive = std::weak_ptr(alive_), fn = std::move(fn)] {
      if (!alive.expired()) meter_.In(Work::kTick, [&] { Post(fn); });
    });
  }
  void RunAndWait(std::function<void()> fn) override { Post(std::move(fn)); }
  void Stop() override { alive_.reset(); }

 private:
  sim::World& world_;
  ScaleMeter& meter_;
  std::deque<std::function<void()>> waiting_;
  bool running_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// The driver owns its store; what was stored outlives it.
class KeptStore : public KvStore {
 public:
  explicit KeptStore(KvStore& kept) : kept_(kept) {}
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override { return kept_.Get(key); }
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return kept_.Scan(prefix, fn);
  }
  absl::Status Write(const KvBatch& batch, bool sync) override { return kept_.Write(batch, sync); }

 private:
  KvStore& kept_;
};

}  // namespace cairn::bench
