// EtcdClient: blocking calls to an etcd cluster, with deadlines, failover between its members, and backoff.
//
// Thread-safe: the election's thread and the store's share one client. Invariants:
//   1. No call outlives its deadline by more than the transport's own few milliseconds.
//   2. A call is retried on the next member after UNAVAILABLE or an attempt's timeout; so every caller must be able to
//      tell a second execution from the first (see election.h and etcd_store.h).
//   3. Answers are untrusted data from a peer: callers check the fields that they use.
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
#include "coordinator/store/etcd_kv.h"

namespace grpc {
class ClientContext;
class Status;
}  // namespace grpc

namespace cairn {

// "etcd://host:port,host:port/prefix".
struct EtcdAddress {
  static constexpr char kPrefixDefault[] = "cairn";

  std::vector<std::string> endpoints;   // "host:port" each, at least one
  std::string prefix = kPrefixDefault;  // of all keys; no leading or trailing slash

  // INVALID_ARGUMENT says what is expected.
  static absl::StatusOr<EtcdAddress> Parse(const std::string& text);
};

class EtcdClient : public EtcdKv {
 public:
  // attempt_timeout: for one attempt on one member. Longer: fewer calls are sent twice; shorter: a member that hangs
  // costs less time.
  explicit EtcdClient(std::vector<std::string> endpoints, absl::Duration attempt_timeout = absl::Seconds(1));
  ~EtcdClient() override;

  // Errors of all calls: DEADLINE_EXCEEDED or UNAVAILABLE, no member answered (the text names the members and the last
  // reason); errors of etcd itself.
  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request,
                                                    absl::Duration timeout) override;
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request,
                                                absl::Duration timeout) override;

  struct Grant {
    int64_t id = 0;
    absl::Duration ttl;
  };
  absl::StatusOr<Grant> GrantLease(absl::Duration ttl, absl::Duration timeout);
  // Returns the new time to live. Errors: NOT_FOUND, the lease is gone.
  absl::StatusOr<absl::Duration> KeepAlive(int64_t lease, absl::Duration timeout);
  absl::Status RevokeLease(int64_t lease, absl::Duration timeout);

 private:
  struct Member;
  // One attempt of a call on a member.
  using Attempt = std::function<grpc::Status(Member& member, grpc::ClientContext* context)>;
  absl::Status Call(const char* what, absl::Duration timeout, const Attempt& attempt);
  std::shared_ptr<Member> Current();
  void Failed(const std::shared_ptr<Member>& member);

  const std::vector<std::string> endpoints_;
  const absl::Duration attempt_timeout_;
  RealClock clock_;  // steady: a jump of the wall clock extends no deadline
  absl::Mutex mutex_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;                 // index into endpoints_
  std::shared_ptr<Member> member_ ABSL_GUARDED_BY(mutex_);  // the one that calls go to; null: not connected
  Backoff backoff_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
