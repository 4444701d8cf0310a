// CoordinatorNode: the whole coordinator: state on disk or in etcd, core, services, server. Started by main, `cairn up`
// and tests.
//
// Thread-safe. Invariants: 1. Once Start has returned, the port answers. 2. After Stop (or the destructor) nothing
// listens and no call runs. 3. With etcd it leads or stands by, and changes between these without a restart; the health
// service reports which under the name kLeaderService.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rpc/token_table.h"
#include "common/storage/kv_store.h"
#include "coordinator/core/options.h"
#include "coordinator/node/audit_log.h"
#include "coordinator/node/quota_file.h"
#include "coordinator/store/etcd_client.h"

namespace cairn {

struct CoordinatorNodeOptions {
  CoordinatorOptions core;
  std::string listen = "127.0.0.1:7070";  // host:port; port 0: chosen by the system
  std::string advertise;                  // host or host:port under which nodes and users reach it; empty: as in listen
  std::string http;  // host:port of the pages (dashboard.h); port 0: chosen by the system; empty: none
  std::vector<std::string> http_names;  // by which the pages may be called, beside those
  bool http_read_only = false;          // nobody changes anything by the pages
  std::string http_advertise;  // host:port under which browsers reach those; empty: as in http, or at advertise's host
  std::shared_ptr<AuditLog> audit;     // null: none
  std::shared_ptr<QuotaFile> quotas;   // null: none
  std::shared_ptr<TokenTable> tokens;  // filled in by the node; null: calls with a token are refused
  std::string tls_dir;                 // of the pages, as UseTls has it for gRPC; empty: plain
  // Called once, on a thread of the node, when the state can no longer be stored: the process should exit and be
  // restarted. Not used with etcd.
  std::function<void(const absl::Status&)> on_fatal;
};

struct EtcdOptions {
  EtcdAddress address;
  std::string name;                         // of this coordinator, shown to users; empty: its address
  absl::Duration lease = absl::Seconds(3);  // see ElectionOptions
};

class CoordinatorNode {
 public:
  static constexpr char kLeaderService[] = "leader";

  // For the only coordinator of a cluster.
  // Errors: INVALID_ARGUMENT names the option; UNAVAILABLE, the address is in use; DATA_LOSS, the stored state is
  // corrupt.
  static absl::StatusOr<std::unique_ptr<CoordinatorNode>> Start(const CoordinatorNodeOptions& options,
                                                                std::unique_ptr<KvStore> store);
  // For one of several. Does not wait for etcd: without etcd it stands by. Errors as above.
  static absl::StatusOr<std::unique_ptr<CoordinatorNode>> StartWithEtcd(const CoordinatorNodeOptions& options,
                                                                        const EtcdOptions& etcd);
  ~CoordinatorNode();

  int port() const;
  std::string address() const;  // "host:port", as others reach it
  std::string http() const;     // "http://host:port" of the pages, as others reach them; empty: none
  // Hands the leadership, if this coordinator has it, to another coordinator.
  void Stop();

 private:
  class Impl;
  explicit CoordinatorNode(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
