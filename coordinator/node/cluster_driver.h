// ClusterDriver: runs ClusterCore on one executor, sends it ticks and carries out its effects in order: a Store is
// durable before the effects after it. It knows no gRPC and no threads: sessions, calls and watchers are passed in as
// sinks, the executor and the clock with the environment.
//
// It leads or stands by. When leading it has a core and a store. When standing by, as at its start, it has neither, and
// answers everything with the status that it was given, which names the leader if known.
//
// Thread rule: all methods from any thread. Sinks and reply functions are called on the executor, or, where too many
// wait, by the caller; they must not block.
// Invariants:
//   1. Every reply function runs exactly once, at the latest in StandBy or Stop (UNAVAILABLE).
//   2. At most kDriverCallsMax calls and kDriverWatchersMax watchers wait at a time, and at most
//      kDriverCallsOfMachineMax and kDriverWatchersOfMachineMax of one machine; more get RESOURCE_EXHAUSTED.
//   3. Calls of different machines begin in turn, and messages of nodes between them.
//   4. When the store fails, or Leadership.valid returns false, no more effects are carried out: the core is dropped,
//      sessions, calls and watchers end, and on_failed is called once. It leads again only after another Lead.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/core/cluster_core.h"
#include "coordinator/core/limits.h"
#include "coordinator/node/call_turns.h"
#include "coordinator/node/cluster_environment.h"
#include "coordinator/node/cluster_sinks.h"
#include "coordinator/node/job_watchers.h"
#include "coordinator/node/machine_places.h"
#include "coordinator/node/tick_pace.h"
#include "coordinator/store/state_store.h"

namespace cairn {

// What a coordinator needs in order to lead.
struct Leadership {
  StateStore store;
  StoredState stored;        // what the store holds
  uint64_t incarnation = 0;  // random, new for each term
  // May this process still act? Asked before every event and query, and after every write. Must not block. Null: yes.
  std::function<bool()> valid;
  std::function<void(const absl::Status&)> on_failed;  // must not block
};

// The payload of a status that says that this coordinator does not lead: the leader's "host:port", empty if it is not
// known.
inline constexpr char kLeaderPayload[] = "cairn-leader";
// A second payload, if the leader serves pages (--http): "http://host:port".
inline constexpr char kLeaderHttpPayload[] = "cairn-leader-http";

class ClusterDriver {
 public:
  using ReplyFn = std::function<void(const absl::Status&, const ReplyBody&)>;

  ClusterDriver(const CoordinatorOptions& options, ClusterEnvironment environment);
  ~ClusterDriver();

  // ---- who leads ----
  // begin runs on the executor and may block, to read the store. On an error the driver stands by, with that status.
  void Lead(std::function<absl::StatusOr<Leadership>()> begin);
  // why: UNAVAILABLE, with kLeaderPayload.
  void StandBy(const absl::Status& why);

  // ---- sessions ----
  // `then` runs after the event's effects were carried out: the session's next message may be read.
  void SessionOpened(std::shared_ptr<SessionSink> sink, v1::Hello hello, std::function<void(SessionToken)> then);
  void SessionSays(SessionToken session, v1::NodeMessage message, std::function<void()> then);
  void SessionEnded(SessionToken session);
  // A node was refused before its session was opened. Those above kRefusalsPostedMax that wait are dropped.
  void SessionRefused(NodeRefused refused);

  // ---- users ----
  // machine: whence the call came, as MachineOf has it (common/rpc/peer.h); kPages for a
  // page that asks (one that changes something: the browser's machine).
  static constexpr char kPages[] = "pages";
  void Call(const std::string& machine, std::function<Event(ReplyToken)> make_event, ReplyFn reply);
  // One of the two is called.
  void Query(const std::string& machine, std::function<void(const ClusterCore&, absl::Time now)> query,
             std::function<void(const absl::Status&)> otherwise);
  void Watch(const std::string& machine, const v1::GetJobRequest& job, const Requester& who,
             std::shared_ptr<WatchSink> sink, std::function<void(uint64_t watcher)> then);
  void WatcherWritten(uint64_t watcher);
  void WatcherGone(uint64_t watcher);
  // Counts as a call.
  void Predict(const std::string& machine, std::function<Event(ReplyToken)> make_event,
               std::shared_ptr<PredictionSink> sink, std::function<void(ReplyToken)> then);
  void PredictionTaken(ReplyToken token);
  void PredictionGone(ReplyToken token);

  // Ends sessions, calls and watchers with UNAVAILABLE; later ones end at once likewise. Idempotent.
  void Stop();

 private:
  // What it has while it leads.
  struct Reign {
    Reign(const CoordinatorOptions& options, Leadership leadership, absl::Time now)
        : store(std::move(leadership.store)),
          core(options, leadership.incarnation, leadership.stored, now),
          valid(std::move(leadership.valid)),
          on_failed(std::move(leadership.on_failed)) {}
    StateStore store;
    ClusterCore core;
    std::function<bool()> valid;
    std::function<void(const absl::Status&)> on_failed;
    uint64_t tokens_shown = 0;  // core.tokens().changes() then
  };

  // A call holds its request, up to 4 MiB. Its place is free before it is answered, so that its caller may make the
  // next one then.
  struct WaitingCall {
    ReplyFn reply;
    MachinePlaces::Place place;
  };
  struct WaitingPrediction {
    std::shared_ptr<PredictionSink> sink;
    MachinePlaces::Place place;
  };

  // Runs `begin` on the executor when it is the machine's turn.
  void Begin(const std::string& machine, CallTurns::Begin begin);
  void BeginNext();
  void Step(const Event& event);
  bool CarryOut(Effects effects);
  bool Flush(std::vector<Store>& stores);
  bool MayAct();
  void Fail(const absl::Status& status);
  void EndAll(const absl::Status& why);
  void ShowLeading();
  void ShowTokens();
  void Carry(Effect& effect, std::vector<Store>& stores, std::vector<JobId>& changed);
  void TickAgain();

  const CoordinatorOptions options_;
  Clock* const clock_;
  // Whom it tells what, as in the environment.
  struct Told {
    std::function<void(bool)> leading;
    std::function<void(const std::map<std::string, v1::StoredToken>*, const absl::Status&)> tokens;
    ClusterObserver* observer;
  };
  const Told told_;
  // On the executor:
  std::unique_ptr<Reign> reign_;  // null: standing by
  absl::Status standing_by_;      // the status that callers get meanwhile
  bool stopped_ = false;
  TickPace pace_;
  uint64_t last_token_ = 0;
  std::map<SessionToken, std::shared_ptr<SessionSink>> sessions_;
  std::map<ReplyToken, WaitingCall> calls_;
  std::map<ReplyToken, WaitingPrediction> predictions_;
  JobWatchers watchers_;
  // On any thread:
  struct Beginning {
    MachinePlaces places;
    CallTurns turns;
  };
  Beginning user_calls_{MachinePlaces({"calls wait", kDriverCallsMax, kDriverCallsOfMachineMax}), {}};
  std::atomic<size_t> refusals_posted_{0};    // that the core has not seen
  const std::unique_ptr<Executor> executor_;  // last: its thread uses all of the above
};

}  // namespace cairn
