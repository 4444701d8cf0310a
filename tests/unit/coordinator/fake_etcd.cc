#include "tests/unit/coordinator/fake_etcd.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace

class FakeEtcd::KvService : public etcdserverpb::KV::Service {
 public:
  explicit KvService(FakeEtcd* etcd) : etcd_(etcd) {}
  grpc::Status Range(grpc::ServerContext* context, const etcdserverpb::RangeRequest* request,
                     etcdserverpb::RangeResponse* response) override {
    if (auto fault = etcd_->Fault(context)) return *fault;
    absl::MutexLock lock(&etcd_->mutex_);
    *response = *etcd_->model_.Range(*request);
    if (etcd_->tamper_) etcd_->tamper_(*request, response);
    return grpc::Status::OK;
  }
  grpc::Status Txn(grpc::ServerContext* context, const etcdserverpb::TxnRequest* request,
                   etcdserverpb::TxnResponse* response) override {
    if (auto fault = etcd_->Fault(context)) return *fault;
    absl::MutexLock lock(&etcd_->mutex_);
    if (etcd_->refuse_writes_ > 0) {
      --etcd_->refuse_writes_;
      return etcd_->refusal_;
    }
    if (etcd_->accept_writes_-- <= 0) return grpc::Status(grpc::StatusCode::INTERNAL, "no more");
    etcd_->transactions_.push_back(*request);
    const auto done = etcd_->model_.Txn(*request);
    if (done.ok()) *response = *done;
    if (etcd_->lose_answers_ > 0) {
      --etcd_->lose_answers_;
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "etcdserver: request timed out");
    }
    return ToGrpc(done.status());
  }

 private:
  FakeEtcd* const etcd_;
};

class FakeEtcd::LeaseService : public etcdserverpb::Lease::Service {
 public:
  explicit LeaseService(FakeEtcd* etcd) : etcd_(etcd) {}
  grpc::Status LeaseGrant(grpc::ServerContext* context, const etcdserverpb::LeaseGrantRequest* request,
                          etcdserverpb::LeaseGrantResponse* response) override {
    if (auto fault = etcd_->Fault(context)) return *fault;
    absl::MutexLock lock(&etcd_->mutex_);
    response->set_id(etcd_->model_.GrantLease());
    response->set_ttl(request->ttl());
    return grpc::Status::OK;
  }
  grpc::Status LeaseRevoke(grpc::ServerContext* context, const etcdserverpb::LeaseRevokeRequest* request,
                           etcdserverpb::LeaseRevokeResponse*) override {
    if (auto fault = etcd_->Fault(context)) return *fault;
    absl::MutexLock lock(&etcd_->mutex_);
    if (etcd_->model_.RevokeLease(request->id())) return grpc::Status::OK;
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "etcdserver: requested lease not found");
  }
  grpc::Status LeaseKeepAlive(grpc::ServerContext* context,
                              grpc::ServerReaderWriter<etcdserverpb::LeaseKeepAliveResponse,
                                                       etcdserverpb::LeaseKeepAliveRequest>* stream) override {
    if (auto fault = etcd_->Fault(context)) return *fault;
    etcdserverpb::LeaseKeepAliveRequest request;
    while (stream->Read(&request)) {
      etcdserverpb::LeaseKeepAliveResponse response;
      response.set_id(request.id());
      {
        absl::MutexLock lock(&etcd_->mutex_);
        response.set_ttl(etcd_->model_.HasLease(request.id()) ? 2 : 0);
      }
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

 private:
  FakeEtcd* const etcd_;
};

FakeEtcd::FakeEtcd() : kv_(std::make_unique<KvService>(this)), lease_(std::make_unique<LeaseService>(this)) {
  AddMember();
}

FakeEtcd::~FakeEtcd() {
  Hang(false);
  for (size_t i = 0; i < members_.size(); ++i) StopMember(i);
}

std::string FakeEtcd::AddMember() {
  members_.push_back({"127.0.0.1:0", nullptr});
  StartMember(members_.size() - 1);
  return members_.back().address;
}

void FakeEtcd::StartMember(size_t i) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(members_[i].address, grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(kv_.get());
  builder.RegisterService(lease_.get());
  members_[i].server = builder.BuildAndStart();
  ASSERT_NE(members_[i].server, nullptr) << members_[i].address;
  members_[i].address = "127.0.0.1:" + std::to_string(port);
}

void FakeEtcd::StopMember(size_t i) {
  if (members_[i].server == nullptr) return;
  members_[i].server->Shutdown(std::chrono::system_clock::now());
  members_[i].server->Wait();
  members_[i].server = nullptr;
}

// ---- the store ----

std::optional<std::string> FakeEtcd::Get(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  return model_.Get(key);
}

void FakeEtcd::Put(const std::string& key, const std::string& value) {
  absl::MutexLock lock(&mutex_);
  model_.Put(key, value);
}

void FakeEtcd::Delete(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  model_.Delete(key);
}

std::vector<std::string> FakeEtcd::Keys(const std::string& prefix) {
  absl::MutexLock lock(&mutex_);
  return model_.Keys(prefix);
}

int64_t FakeEtcd::CreateRevision(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  return model_.CreateRevision(key);
}

void FakeEtcd::EndLeases() {
  absl::MutexLock lock(&mutex_);
  model_.EndLeases();
}

int FakeEtcd::leases() {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(model_.leases());
}

// ---- faults ----

void FakeEtcd::LoseAnswers(int count) {
  absl::MutexLock lock(&mutex_);
  lose_answers_ = count;
}

void FakeEtcd::Refuse(int count, grpc::Status status) {
  absl::MutexLock lock(&mutex_);
  refuse_ = count;
  refusal_ = std::move(status);
}

void FakeEtcd::RefuseWrites(int count, grpc::Status status) {
  absl::MutexLock lock(&mutex_);
  refuse_writes_ = count;
  refusal_ = std::move(status);
}

void FakeEtcd::AcceptWrites(int count) {
  absl::MutexLock lock(&mutex_);
  accept_writes_ = count;
}

void FakeEtcd::Hang(bool on) {
  absl::MutexLock lock(&mutex_);
  hang_ = on;
}

void FakeEtcd::TamperWithReads(
    std::function<void(const etcdserverpb::RangeRequest&, etcdserverpb::RangeResponse*)> tamper) {
  absl::MutexLock lock(&mutex_);
  tamper_ = std::move(tamper);
}

bool FakeEtcd::Replay(const etcdserverpb::TxnRequest& request) {
  absl::MutexLock lock(&mutex_);
  const auto done = model_.Txn(request);
  EXPECT_TRUE(done.ok()) << done.status();
  return done.ok() && done->succeeded();
}

std::vector<etcdserverpb::TxnRequest> FakeEtcd::transactions() {
  absl::MutexLock lock(&mutex_);
  return transactions_;
}

std::optional<grpc::Status> FakeEtcd::Fault(grpc::ServerContext* context) {
  absl::MutexLock lock(&mutex_);
  const auto go_on = [&] {
    mutex_.AssertHeld();
    return !hang_ || context->IsCancelled();
  };
  while (!go_on()) mutex_.AwaitWithTimeout(absl::Condition(&go_on), absl::Milliseconds(10));
  if (refuse_ > 0) {
    --refuse_;
    return refusal_;
  }
  return std::nullopt;
}

}  // namespace cairn
