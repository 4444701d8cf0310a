// CoordinatorNode: the coordinator as a whole: state on disk or in etcd, core, services, server. What main, `cairn up`
// and tests start.
//
// Thread-safe. Invariants: 1. Once Start returned, the port answers. 2. After Stop (or the destructor) nothing listens
// and no call runs. 3. With etcd it leads or stands by, and changes from one to the other without ending; the health
// service says which under the name kLeaderService.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/storage/kv_store.h"
#include "coordinator/core/options.h"
#include "coordinator/store/etcd_client.h"

namespace cairn {

struct CoordinatorNodeOptions {
  CoordinatorOptions core;
  std::string listen = "127.0.0.1:7070";  // host:port; port 0: chosen by the system
  std::string advertise;                  // host or host:port under which nodes and users reach it; empty: as in listen
  std::string http;            // host:port of the pages (dashboard.h); port 0: chosen by the system; empty: none
  std::string http_advertise;  // host:port under which browsers reach those; empty: as in http, or at advertise's host
  std::string tls_dir;         // of the pages, as UseTls has it for gRPC; empty: plain
  // Called once, on a thread of the node, when the state cannot be stored any more: the process should end and be
  // started again. Not with etcd.
  std::function<void(const absl::Status&)> on_fatal;
};

struct EtcdOptions {
  EtcdAddress address;
  std::string name;                         // of this coordinator, for people; empty: its address
  absl::Duration lease = absl::Seconds(3);  // see ElectionOptions
};

class CoordinatorNode {
 public:
  static constexpr char kLeaderService[] = "leader";

  // The one coordinator of its cluster.
  // Errors: INVALID_ARGUMENT names the option; UNAVAILABLE, the address is in use; DATA_LOSS, the stored state is
  // corrupt.
  static absl::StatusOr<std::unique_ptr<CoordinatorNode>> Start(const CoordinatorNodeOptions& options,
                                                                std::unique_ptr<KvStore> store);
  // One of several. Does not wait for etcd: without it, it stands by. Errors as above.
  static absl::StatusOr<std::unique_ptr<CoordinatorNode>> StartWithEtcd(const CoordinatorNodeOptions& options,
                                                                        const EtcdOptions& etcd);
  ~CoordinatorNode();

  int port() const;
  std::string address() const;  // "host:port", as others reach it
  std::string http() const;     // "http://host:port" of the pages, as others reach them; empty: none
  // Gives the lead, where it has it, to another coordinator.
  void Stop();

 private:
  class Impl;
  explicit CoordinatorNode(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
