// EtcdClient: blocking calls to an etcd cluster: deadlines, fail-over between its members, back-off.
//
// Thread-safe: the election's thread and the store's use one client. Invariants:
//   1. No call outlives its deadline by more than the transport's own few milliseconds.
//   2. A call is sent again, to the next member, after UNAVAILABLE and after its attempt's time is up; so every caller
//      must be able to tell a second execution from the first (see election.h and etcd_store.h).
//   3. Answers are data from a peer: what callers take out of them is checked there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rpc/backoff.h"
#include "etcd/rpc.pb.h"

namespace grpc {
class ClientContext;
class Status;
}  // namespace grpc

namespace cairn {

// "etcd://host:port,host:port/prefix".
struct EtcdAddress {
  static constexpr char kPrefixDefault[] = "cairn";

  std::vector<std::string> endpoints;   // "host:port" each, at least one
  std::string prefix = kPrefixDefault;  // of all keys; without slashes at its ends

  // INVALID_ARGUMENT says what is expected.
  static absl::StatusOr<EtcdAddress> Parse(const std::string& text);
};

class EtcdClient {
 public:
  // attempt_timeout: one try of one member. Longer: fewer calls are sent twice; shorter: a member that hangs costs
  // less.
  explicit EtcdClient(std::vector<std::string> endpoints, absl::Duration attempt_timeout = absl::Seconds(1));
  ~EtcdClient();

  // Errors of all: DEADLINE_EXCEEDED or UNAVAILABLE, no member answered (the text names them and the last reason); what
  // etcd says.
  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request, absl::Duration timeout);
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request, absl::Duration timeout);

  struct Grant {
    int64_t id = 0;
    absl::Duration ttl;
  };
  absl::StatusOr<Grant> GrantLease(absl::Duration ttl, absl::Duration timeout);
  // The time to live from now on. Errors: NOT_FOUND the lease is gone.
  absl::StatusOr<absl::Duration> KeepAlive(int64_t lease, absl::Duration timeout);
  absl::Status RevokeLease(int64_t lease, absl::Duration timeout);

 private:
  struct Member;
  // One try of a call on a member.
  using Attempt = std::function<grpc::Status(Member& member, grpc::ClientContext* context)>;
  absl::Status Call(const char* what, absl::Duration timeout, const Attempt& attempt);
  std::shared_ptr<Member> Current();
  void Failed(const std::shared_ptr<Member>& member);

  const std::vector<std::string> endpoints_;
  const absl::Duration attempt_timeout_;
  RealClock clock_;  // steady: a jump of the wall clock prolongs nothing
  absl::Mutex mutex_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;                 // of endpoints_
  std::shared_ptr<Member> member_ ABSL_GUARDED_BY(mutex_);  // the one that calls go to; null: to be connected
  Backoff backoff_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
