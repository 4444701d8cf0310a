#include "tests/unit/coordinator/fake_etcd.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

// etcd's defaults.
constexpr size_t kRequestBytesMax = size_t{3} << 19;
constexpr int kTxnOpsMax = 128;

}  // namespace

class FakeEtcd::KvService : public etcdserverpb::KV::Service {
 public:
  explicit KvService(FakeEtcd* etcd) : etcd_(etcd) {}
  grpc::Status Range(grpc::ServerContext* context, const etcdserverpb::RangeRequest* request,
                     etcdserverpb::RangeResponse* response) override {
    if (auto fault = etcd_->Fault(context)) return *fault;
    absl::MutexLock lock(&etcd_->mutex_);
    etcd_->ReadLocked(*request, response);
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
    const grpc::Status status = etcd_->TxnLocked(*request, response);
    if (etcd_->lose_answers_ > 0) {
      --etcd_->lose_answers_;
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "etcdserver: request timed out");
    }
    return status;
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
    response->set_id(++etcd_->last_lease_);
    response->set_ttl(request->ttl());
    etcd_->leases_.insert(response->id());
    return grpc::Status::OK;
  }
  grpc::Status LeaseRevoke(grpc::ServerContext* context, const etcdserverpb::LeaseRevokeRequest* request,
                           etcdserverpb::LeaseRevokeResponse*) override {
    if (auto fault = etcd_->Fault(context)) return *fault;
    absl::MutexLock lock(&etcd_->mutex_);
    if (etcd_->leases_.erase(request->id()) == 0) {
      return grpc::Status(grpc::StatusCode::NOT_FOUND, "etcdserver: requested lease not found");
    }
    ++etcd_->revision_;
    std::erase_if(etcd_->entries_, [&](const auto& entry) { return entry.second.lease == request->id(); });
    return grpc::Status::OK;
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
        response.set_ttl(etcd_->leases_.contains(request.id()) ? 2 : 0);
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
  auto it = entries_.find(key);
  return it == entries_.end() ? std::nullopt : std::optional(it->second.value);
}

void FakeEtcd::Put(const std::string& key, const std::string& value) {
  absl::MutexLock lock(&mutex_);
  ++revision_;
  PutLocked(key, value, 0);
}

void FakeEtcd::Delete(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  ++revision_;
  entries_.erase(key);
}

std::vector<std::string> FakeEtcd::Keys(const std::string& prefix) {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> keys;
  for (const auto& [key, entry] : entries_) {
    if (key.starts_with(prefix)) keys.push_back(key);
  }
  return keys;
}

int64_t FakeEtcd::CreateRevision(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  auto it = entries_.find(key);
  return it == entries_.end() ? 0 : it->second.create_revision;
}

void FakeEtcd::EndLeases() {
  absl::MutexLock lock(&mutex_);
  leases_.clear();
  ++revision_;
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.lease != 0; });
}

int FakeEtcd::leases() {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(leases_.size());
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
  etcdserverpb::TxnResponse response;
  EXPECT_TRUE(TxnLocked(request, &response).ok());
  return response.succeeded();
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

// ---- etcd's rules ----

void FakeEtcd::PutLocked(const std::string& key, const std::string& value, int64_t lease) {
  Entry& entry = entries_[key];
  if (entry.version == 0) entry.create_revision = revision_;
  entry.mod_revision = revision_;
  ++entry.version;
  entry.value = value;
  entry.lease = lease;
}

void FakeEtcd::ReadLocked(const etcdserverpb::RangeRequest& request, etcdserverpb::RangeResponse* response) {
  response->mutable_header()->set_revision(revision_);
  for (auto it = entries_.lower_bound(request.key()); it != entries_.end(); ++it) {
    if (request.range_end().empty() ? it->first != request.key() : it->first >= request.range_end()) break;
    response->set_count(response->count() + 1);
    if (request.limit() > 0 && response->kvs_size() == request.limit()) {
      response->set_more(true);
      continue;
    }
    etcdserverpb::KeyValue& kv = *response->add_kvs();
    kv.set_key(it->first);
    if (!request.keys_only()) kv.set_value(it->second.value);
    kv.set_create_revision(it->second.create_revision);
    kv.set_mod_revision(it->second.mod_revision);
    kv.set_version(it->second.version);
    kv.set_lease(it->second.lease);
  }
}

bool FakeEtcd::HoldsLocked(const etcdserverpb::Compare& compare) {
  EXPECT_EQ(compare.result(), 0) << "the fake knows EQUAL only";
  auto it = entries_.find(compare.key());
  switch (compare.target()) {
    case 1: return (it == entries_.end() ? 0 : it->second.create_revision) == compare.create_revision();
    case 2: return (it == entries_.end() ? 0 : it->second.mod_revision) == compare.mod_revision();
    default: ADD_FAILURE() << "the fake does not know target " << compare.target(); return false;
  }
}

grpc::Status FakeEtcd::TxnLocked(const etcdserverpb::TxnRequest& request, etcdserverpb::TxnResponse* response) {
  const auto invalid = [](const char* text) { return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, text); };
  if (request.ByteSizeLong() > kRequestBytesMax) return invalid("etcdserver: request is too large");
  if (request.success_size() > kTxnOpsMax || request.failure_size() > kTxnOpsMax ||
      request.compare_size() > kTxnOpsMax) {
    return invalid("etcdserver: too many operations in txn request");
  }
  std::set<std::string> put;
  for (const auto& op : request.success()) {
    if (!op.has_request_put()) continue;
    if (!put.insert(op.request_put().key()).second) return invalid("etcdserver: duplicate key given in txn request");
    if (op.request_put().lease() != 0 && !leases_.contains(op.request_put().lease())) {
      return grpc::Status(grpc::StatusCode::NOT_FOUND, "etcdserver: requested lease not found");
    }
  }
  bool holds = true;
  for (const auto& compare : request.compare()) holds = HoldsLocked(compare) && holds;
  response->set_succeeded(holds);
  if (holds) ++revision_;
  for (const auto& op : holds ? request.success() : request.failure()) {
    etcdserverpb::ResponseOp& done = *response->add_responses();
    if (op.has_request_put()) {
      PutLocked(op.request_put().key(), op.request_put().value(), op.request_put().lease());
      done.mutable_response_put();
    } else if (op.has_request_delete_range()) {
      const auto& range = op.request_delete_range();
      const auto first = entries_.lower_bound(range.key());
      auto last =
          range.range_end().empty() ? entries_.upper_bound(range.key()) : entries_.lower_bound(range.range_end());
      entries_.erase(first, last);
      done.mutable_response_delete_range();
    } else {
      ReadLocked(op.request_range(), done.mutable_response_range());
    }
  }
  response->mutable_header()->set_revision(revision_);
  return grpc::Status::OK;
}

}  // namespace cairn
