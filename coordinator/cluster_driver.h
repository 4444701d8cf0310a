// ClusterDriver: runs ClusterCore on one executor, keeps the clock ticking and carries effects out in order: a Store is
// durable before what follows it. Knows no gRPC: sessions, calls and watchers are handed in as sinks.
//
// Thread rule: all methods from any thread. Sinks and reply functions are called on the executor; they must not block.
// Invariants:
//   1. Every reply function runs exactly once, at the latest in Stop (UNAVAILABLE).
//   2. At most kCallsMax calls and kWatchersMax watchers wait at a time; beyond, RESOURCE_EXHAUSTED.
//   3. When the store fails, nothing more is carried out: on_fatal is called once, and the process should end and start
//   again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "coordinator/cluster_core.h"
#include "coordinator/state_store.h"

namespace cairn {

class SessionSink {
 public:
  virtual ~SessionSink() = default;
  virtual void Send(v1::CoordinatorMessage message) = 0;
  virtual void Close(const absl::Status& reason) = 0;
};

class WatchSink {
 public:
  virtual ~WatchSink() = default;
  virtual void Write(v1::JobStatus status) = 0;  // answered by ClusterDriver::WatcherWritten
  virtual void Finish(const absl::Status& status) = 0;
};

class ClusterDriver {
 public:
  static constexpr size_t kCallsMax = 4096;
  static constexpr size_t kWatchersMax = 1024;
  // Of one watched job.
  static constexpr absl::Duration kWatchInterval = absl::Milliseconds(200);

  using ReplyFn = std::function<void(const absl::Status&, const ReplyBody&)>;

  ClusterDriver(const CoordinatorOptions& options, uint64_t incarnation, StateStore store, const StoredState& stored,
                Clock* clock, std::function<void(const absl::Status&)> on_fatal);
  ~ClusterDriver();

  // ---- sessions ----
  // `then` runs after the event was carried out: the session's next message may be read.
  void SessionOpened(std::shared_ptr<SessionSink> sink, v1::Hello hello, std::function<void(SessionToken)> then);
  void SessionSays(SessionToken session, v1::NodeMessage message, std::function<void()> then);
  void SessionEnded(SessionToken session);

  // ---- users ----
  void Call(std::function<Event(ReplyToken)> make_event, ReplyFn reply);
  void Query(std::function<void(const ClusterCore&, absl::Time now)> query);
  void Watch(const v1::GetJobRequest& job, std::shared_ptr<WatchSink> sink, std::function<void(uint64_t watcher)> then);
  void WatcherWritten(uint64_t watcher);
  void WatcherGone(uint64_t watcher);

  // Ends sessions, calls and watchers with UNAVAILABLE; later ones end so at once. Idempotent.
  void Stop();

 private:
  struct Watcher {
    std::shared_ptr<WatchSink> sink;
    JobId job;
    bool dirty = true;
    bool writing = false;
    bool last = false;  // the final state was written
    bool timer = false;
    absl::Time written_at = absl::InfinitePast();
  };

  void Step(const Event& event);
  bool CarryOut(Effects effects);
  bool Flush(std::vector<Store>& stores);
  void Fail(const absl::Status& status);
  void TickAgain();
  void Notify(uint64_t watcher_id);
  void FinishWatcher(uint64_t watcher_id, const absl::Status& status);

  Clock* const clock_;
  const absl::Duration tick_;
  const std::function<void(const absl::Status&)> on_fatal_;
  // On the executor:
  StateStore store_;
  ClusterCore core_;
  bool stopped_ = false;
  uint64_t last_token_ = 0;
  std::map<SessionToken, std::shared_ptr<SessionSink>> sessions_;
  std::map<ReplyToken, ReplyFn> calls_;
  std::map<uint64_t, Watcher> watchers_;
  SerialExecutor executor_;  // last: its thread uses all of the above
};

}  // namespace cairn
