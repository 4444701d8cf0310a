// FakeEtcd: as much of etcd as the coordinator uses, in this process: one store (EtcdModel) and any number of members
// (ports). It can be told to fail.
//
// Thread-safe. Leases end only when told, so that tests do not depend on time.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "etcd/rpc.grpc.pb.h"
#include "tests/unit/coordinator/etcd_model.h"

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
  class KvService;
  class LeaseService;
  struct Member {
    std::string address;
    std::unique_ptr<grpc::Server> server;
  };

  std::optional<grpc::Status> Fault(grpc::ServerContext* context);

  absl::Mutex mutex_;
  EtcdModel model_ ABSL_GUARDED_BY(mutex_);
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
