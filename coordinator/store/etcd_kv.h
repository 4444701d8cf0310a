// EtcdKv: reads and writes of etcd, as EtcdStore needs them. Who implements it says which threads may call it.
#pragma once

#include "absl/time/time.h"
#include "common/base/status.h"
#include "etcd/rpc.pb.h"

namespace cairn {

class EtcdKv {
 public:
  virtual ~EtcdKv() = default;
  // Blocks for at most `timeout`. Errors: DEADLINE_EXCEEDED or UNAVAILABLE: no answer, and a write may have been
  // carried out; errors of etcd itself.
  virtual absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request,
                                                            absl::Duration timeout) = 0;
  virtual absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request,
                                                        absl::Duration timeout) = 0;
};

}  // namespace cairn
