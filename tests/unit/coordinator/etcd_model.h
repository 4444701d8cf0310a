// EtcdModel: etcd's rules for one store of keys, without a service: limits of a transaction, no key twice, keys vanish
// with their lease. FakeEtcd serves one; others call it.
//
// Not thread-safe. Leases end only when told, so that tests do not depend on time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "coordinator/store/etcd_kv.h"

namespace cairn {

class EtcdModel : public EtcdKv {
 public:
  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request,
                                                    absl::Duration timeout = absl::ZeroDuration()) override;
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request,
                                                absl::Duration timeout = absl::ZeroDuration()) override;
  int64_t GrantLease();
  bool RevokeLease(int64_t lease);  // false: there is none
  bool HasLease(int64_t lease) const { return leases_.contains(lease); }
  size_t leases() const { return leases_.size(); }
  void EndLeases();  // all of them, with their keys

  std::optional<std::string> Get(const std::string& key) const;
  void Put(const std::string& key, const std::string& value);
  void Delete(const std::string& key);
  std::vector<std::string> Keys(const std::string& prefix) const;
  int64_t CreateRevision(const std::string& key) const;  // 0: there is no such key

 private:
  struct Entry {
    std::string value;
    int64_t create_revision = 0, mod_revision = 0, version = 0, lease = 0;
  };

  void PutAtRevision(const std::string& key, const std::string& value, int64_t lease);
  void Read(const etcdserverpb::RangeRequest& request, etcdserverpb::RangeResponse* response) const;
  bool Holds(const etcdserverpb::Compare& compare) const;
  absl::Status Check(const etcdserverpb::TxnRequest& request) const;

  std::map<std::string, Entry> entries_;
  std::set<int64_t> leases_;
  int64_t revision_ = 1, last_lease_ = 1000;
};

}  // namespace cairn
