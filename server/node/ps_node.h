// PsNode: one ps process: data directory, Exchange server, membership.
//
// Thread rule: Start and Stop from one thread. Invariants:
//   1. One process uses the data directory at a time (RocksDB's lock); the node's name is stored there.
//   2. The coordinator decides whether it is ready. Without a session it never is, since no backup would replace it.
//   3. The session with the coordinator begins when the server listens and the data on disk is recovered.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/executor.h"
#include "common/base/status.h"
#include "common/base/trace.h"
#include "common/rpc/server.h"
#include "common/storage/kv_store.h"

namespace cairn {

class ExchangeService;
class PartitionHost;
class SessionClient;

struct PsNodeOptions {
  std::string listen = "127.0.0.1:0";  // host:port; port 0: chosen by the system
  std::string advertise;               // host or host:port under which workers reach it; default: as in `listen`
  std::string coordinator;             // REQUIRED: host:port
  std::string data_dir;                // REQUIRED; created if missing
  std::string name;        // unique in the cluster; kept in data_dir (node_name.h); default: the kept one, or a new one
  std::string host_label;  // default: the host's name
  // For workers on this host. Default (empty): a file in the data directory, or none if its path is too long. "none":
  // none.
  std::string unix_socket;
  // Workers and ps on this host that come through the socket may exchange frames through shared memory.
  bool shared_memory = true;
  int threads = 0;  // over which partitions are spread, 1..256; 0: one per core, at most 4
  // The store failed: the ps has told the coordinator and serves no more; the process should end. Once, from a thread
  // of its own.
  std::function<void(const absl::Status&)> on_fatal;

  absl::Status Validate() const;
};

class PsNode {
 public:
  static absl::StatusOr<std::unique_ptr<PsNode>> Start(const PsNodeOptions& options);
  ~PsNode();

  const std::string& address() const { return address_; }  // "host:port[,unix:/path]"
  const std::string& name() const { return options_.name; }
  // OK if the ps is ready (Readiness), else why it is not. Any thread.
  absl::Status Ready() const;
  // Leaves the cluster, answers received requests, sends queued frames; takes at most about `grace`. Idempotent.
  void Stop(absl::Duration grace);

 private:
  PsNode() = default;
  absl::Status StartServer();
  void OfferSharedMemory(const std::string& unix_socket);
  void StartSession();
  void Command(const v1::CoordinatorMessage& message);
  void JoinCluster(uint64_t id);
  std::string Fault() const;
  std::string FaultText(const absl::Status& status) const;
  void SetReady(std::string why_not);
  void StoreFailed(const absl::Status& status);

  PsNodeOptions options_;
  std::string address_;
  uint64_t incarnation_ = 0;
  mutable absl::Mutex ready_mutex_;
  std::string not_ready_ ABSL_GUARDED_BY(ready_mutex_) = "it starts";
  std::atomic<uint64_t> cluster_id_ = 0;  // Persistence::ClusterId
  std::atomic<bool> store_failed_ = false;
  bool stopped_ = false;
  Timing timing_;
  std::unique_ptr<KvStore> store_;
  std::unique_ptr<PartitionHost> host_;
  std::unique_ptr<ExchangeService> exchange_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<SerialExecutor> control_;  // runs the coordinator's commands one after another
  std::unique_ptr<SessionClient> session_;   // made, used and ended on control_
};

}  // namespace cairn
