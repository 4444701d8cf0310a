// LeaderElection: which of several coordinators leads (docs/architecture.md#coordinators): the one whose lease owns the
// key <prefix>/leader. <prefix>/leader-http, bound to the same lease, holds the URL of the leader's pages.
//
// Thread-safe. Callbacks run on the election's own thread, one at a time; they must not block for long: the lease is
// renewed on that thread. Invariants:
//   1. Between on_elected(term) and on_lost(term) this process believes that it leads. In etcd's order of writes the
//      terms of two processes never overlap: a write that compares the leader key's create revision with its term's own
//      is refused as soon as another process can be elected.
//   2. term.Valid() turns false by this process' own clock before etcd lets the lease expire: time counts from before
//      each renewal was sent, less kMargin. So a process that was suspended stops acting, even before it is told that
//      it lost the lease.
//   3. Every on_elected is followed by on_lost, also when Stop ends the term; a term never becomes valid again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cairn/v1/etcd.pb.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "coordinator/store/etcd_client.h"
#include "coordinator/store/leader_term.h"
#include "coordinator/store/seen_leader.h"

namespace cairn {

struct ElectionOptions {
  std::string prefix;                       // of the keys in etcd
  v1::LeaderRecord self;                    // the leader key's value when this process leads
  std::string http;                         // that of leader-http: "http://host:port" of its pages; empty: none
  absl::Duration lease = absl::Seconds(3);  // whole seconds, 2 .. 60. Longer: later takeover; shorter: a brief outage
                                            // of etcd costs the leadership
  absl::Duration poll_interval = absl::Milliseconds(250);  // how often a standby polls the leader key

  absl::Status Validate() const;
};

struct ElectionCallbacks {
  // This process stands by. leader: nullopt: none leads, or not known. etcd: the error if etcd does not answer.
  // Called with every change.
  std::function<void(const std::optional<SeenLeader>& leader, const absl::Status& etcd)> on_standby;
  std::function<void(std::shared_ptr<LeaderTerm>)> on_elected;
  std::function<void(const LeaderTerm&, const absl::Status& why)> on_lost;
};

class LeaderElection {
 public:
  // options: valid. etcd and clock outlive it. The clock must be thread-safe and steady.
  LeaderElection(const ElectionOptions& options, EtcdClient* etcd, Clock* clock, ElectionCallbacks callbacks);
  ~LeaderElection();  // Stop

  // Gives up the leadership of this term, and campaigns again after `pause`. Ignored if the term is over.
  void Resign(const LeaderTerm& term, const absl::Status& why, absl::Duration pause);
  // Gives up the leadership, so that another coordinator can take it at once, and ends. Idempotent.
  void Stop();

 private:
  void Loop();
  std::shared_ptr<LeaderTerm> Campaign();
  std::shared_ptr<LeaderTerm> TryToLead();
  absl::Status Reign(LeaderTerm& term);
  absl::Status CheckKey(const LeaderTerm& term);
  void Standby(const std::optional<SeenLeader>& leader, const absl::Status& etcd);
  // False: Stop was called.
  bool Wait(absl::Duration time);
  // As Wait; Resign ends it too.
  bool WaitInTerm(absl::Duration time);

  const ElectionOptions options_;
  const std::string leader_key_, http_key_;
  EtcdClient* const etcd_;
  Clock* const clock_;
  const ElectionCallbacks callbacks_;
  // Used by the thread only: the last state that on_standby was told.
  std::optional<std::string> told_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t term_ ABSL_GUARDED_BY(mutex_) = 0;  // create revision of the term that runs; 0: none
  std::optional<absl::Status> resigned_ ABSL_GUARDED_BY(mutex_);
  absl::Duration pause_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace cairn
