// FakeEtcd: as much of etcd as the coordinator uses, in this process: one store and any number of members (ports). It
// keeps etcd's rules (limits of a transaction, no key twice, keys vanish with their lease) and can be told to fail.
//
// Thread-safe. Leases end only when told, so that tests do not depend on time.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "etcd/rpc.grpc.pb.h"

namespace cairn {

class FakeEtcd {
 public:
  FakeEtcd();
  ~FakeEtcd();

  std::string AddMember();     // "host:port"
  void StopMember(size_t i);   // connections are refused
  void StartMember(size_t i);  // on its port again
  std::string Endpoint(size_t i) const { return members_[i].address; }

  // ---- the store, past the service ----
  std::optional<std::string> Get(const std::string& key);
  void Put(const std::string& key, const std::string& value);
  void Delete(const std::string& key);
  std::vector<std::string> Keys(const std::string& prefix);
  int64_t CreateRevision(const std::string& key);
  void EndLeases();  // all of them, with their keys

  // ---- faults ----
  // Of the next `count` transactions the answer is lost: UNAVAILABLE, though they are carried out.
  void LoseAnswers(int count);
  // The next `count` calls of any kind get this status, and nothing is carried out.
  void Refuse(int count, grpc::Status status);
  // The same for writes alone.
  void RefuseWrites(int count, grpc::Status status);
  // Writes after the next `count` get INTERNAL.
  void AcceptWrites(int count);
  // Calls wait until their deadline.
  void Hang(bool on);
  // Applied to every answer to a read. Null: answers are not changed.
  void TamperWithReads(std::function<void(const etcdserverpb::RangeRequest&, etcdserverpb::RangeResponse*)> tamper);
  // Carries out a transaction again, as a slow member would that had also received it.
  bool Replay(const etcdserverpb::TxnRequest& request);
  std::vector<etcdserverpb::TxnRequest> transactions();  // that were sent, in order
  int leases();                                          // that live

 private:
  struct Entry {
    std::string value;
    int64_t create_revision = 0, mod_revision = 0, version = 0, lease = 0;
  };
  class KvService;
  class LeaseService;
  struct Member {
    std::string address;
    std::unique_ptr<grpc::Server> server;
  };

  std::optional<grpc::Status> Fault(grpc::ServerContext* context);
  void ReadLocked(const etcdserverpb::RangeRequest& request, etcdserverpb::RangeResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  grpc::Status TxnLocked(const etcdserverpb::TxnRequest& request, etcdserverpb::TxnResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HoldsLocked(const etcdserverpb::Compare& compare) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PutLocked(const std::string& key, const std::string& value, int64_t lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::set<int64_t> leases_ ABSL_GUARDED_BY(mutex_);
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t last_lease_ ABSL_GUARDED_BY(mutex_) = 1000;
  int lose_answers_ ABSL_GUARDED_BY(mutex_) = 0;
  int refuse_ ABSL_GUARDED_BY(mutex_) = 0;
  int accept_writes_ ABSL_GUARDED_BY(mutex_) = 1'000'000;
  int refuse_writes_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::Status refusal_ ABSL_GUARDED_BY(mutex_);
  bool hang_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void(const etcdserverpb::RangeRequest&, etcdserverpb::RangeResponse*)> tamper_ ABSL_GUARDED_BY(mutex_);
  std::vector<etcdserverpb::TxnRequest> transactions_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<KvService> kv_;
  std::unique_ptr<LeaseService> lease_;
  std::vector<Member> members_;
};

}  // namespace cairn
