#include "tests/unit/coordinator/etcd_model.h"

#include "common/base/check.h"

namespace cairn {
namespace {

// etcd's defaults.
constexpr size_t kRequestBytesMax = size_t{3} << 19;
constexpr int kTxnOpsMax = 128;

}  // namespace

int64_t EtcdModel::GrantLease() {
  leases_.insert(++last_lease_);
  return last_lease_;
}

bool EtcdModel::RevokeLease(int64_t lease) {
  if (leases_.erase(lease) == 0) return false;
  ++revision_;
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.lease == lease; });
  return true;
}

void EtcdModel::EndLeases() {
  leases_.clear();
  ++revision_;
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.lease != 0; });
}

std::optional<std::string> EtcdModel::Get(const std::string& key) const {
  const auto it = entries_.find(key);
  return it == entries_.end() ? std::nullopt : std::optional(it->second.value);
}

void EtcdModel::Put(const std::string& key, const std::string& value) {
  ++revision_;
  PutAtRevision(key, value, 0);
}

void EtcdModel::Delete(const std::string& key) {
  ++revision_;
  entries_.erase(key);
}

std::vector<std::string> EtcdModel::Keys(const std::string& prefix) const {
  std::vector<std::string> keys;
  for (const auto& [key, entry] : entries_) {
    if (key.starts_with(prefix)) keys.push_back(key);
  }
  return keys;
}

int64_t EtcdModel::CreateRevision(const std::string& key) const {
  const auto it = entries_.find(key);
  return it == entries_.end() ? 0 : it->second.create_revision;
}

void EtcdModel::PutAtRevision(const std::string& key, const std::string& value, int64_t lease) {
  Entry& entry = entries_[key];
  if (entry.version == 0) entry.create_revision = revision_;
  entry.mod_revision = revision_;
  ++entry.version;
  entry.value = value;
  entry.lease = lease;
}

void EtcdModel::Read(const etcdserverpb::RangeRequest& request, etcdserverpb::RangeResponse* response) const {
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

bool EtcdModel::Holds(const etcdserverpb::Compare& compare) const {
  CAIRN_CHECK(compare.result() == 0, "the model knows EQUAL only");
  CAIRN_CHECK(compare.target() == 1 || compare.target() == 2, "the model does not know this target");
  const auto it = entries_.find(compare.key());
  const Entry entry = it == entries_.end() ? Entry() : it->second;
  return compare.target() == 1 ? entry.create_revision == compare.create_revision()
                               : entry.mod_revision == compare.mod_revision();
}

absl::Status EtcdModel::Check(const etcdserverpb::TxnRequest& request) const {
  if (request.ByteSizeLong() > kRequestBytesMax) return absl::InvalidArgumentError("etcdserver: request is too large");
  if (request.success_size() > kTxnOpsMax || request.failure_size() > kTxnOpsMax ||
      request.compare_size() > kTxnOpsMax) {
    return absl::InvalidArgumentError("etcdserver: too many operations in txn request");
  }
  std::set<std::string> put;
  for (const auto& op : request.success()) {
    if (!op.has_request_put()) continue;
    if (!put.insert(op.request_put().key()).second)
      return absl::InvalidArgumentError("etcdserver: duplicate key given in txn request");
    if (op.request_put().lease() != 0 && !leases_.contains(op.request_put().lease()))
      return absl::NotFoundError("etcdserver: requested lease not found");
  }
  return absl::OkStatus();
}

absl::StatusOr<etcdserverpb::RangeResponse> EtcdModel::Range(const etcdserverpb::RangeRequest& request,
                                                             absl::Duration) {
  etcdserverpb::RangeResponse response;
  Read(request, &response);
  return response;
}

absl::StatusOr<etcdserverpb::TxnResponse> EtcdModel::Txn(const etcdserverpb::TxnRequest& request, absl::Duration) {
  CAIRN_RETURN_IF_ERROR(Check(request));
  etcdserverpb::TxnResponse response;
  bool holds = true;
  for (const auto& compare : request.compare()) holds = Holds(compare) && holds;
  response.set_succeeded(holds);
  if (holds) ++revision_;
  for (const auto& op : holds ? request.success() : request.failure()) {
    etcdserverpb::ResponseOp& done = *response.add_responses();
    if (op.has_request_put()) {
      PutAtRevision(op.request_put().key(), op.request_put().value(), op.request_put().lease());
      done.mutable_response_put();
    } else if (op.has_request_delete_range()) {
      const auto& range = op.request_delete_range();
      const auto last =
          range.range_end().empty() ? entries_.upper_bound(range.key()) : entries_.lower_bound(range.range_end());
      entries_.erase(entries_.lower_bound(range.key()), last);
      done.mutable_response_delete_range();
    } else {
      Read(op.request_range(), done.mutable_response_range());
    }
  }
  response.mutable_header()->set_revision(revision_);
  return response;
}

}  // namespace cairn
