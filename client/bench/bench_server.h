// BenchServer: serves v1.Bench, and acts as the coordinator of one ps, to which it assigns the jobs of Prepare.
//
// The caller starts the ps, with --coordinator set to this server's address. Thread-safe. Invariants:
//   1. The ps holds the job of the last Prepare and no other.
//   2. Prepare waits at most kPrepareTimeout.
#pragma once

#include <memory>
#include <string>

#include "common/rpc/server.h"

namespace cairn {

inline constexpr absl::Duration kPrepareTimeout = absl::Seconds(30);

class BenchServer {
 public:
  static absl::StatusOr<std::unique_ptr<BenchServer>> Start(const RpcServerOptions& options);
  ~BenchServer();

  std::string address() const;

 private:
  class Coordinator;
  class Bench;
  BenchServer();

  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Bench> bench_;
  std::unique_ptr<RpcServer> server_;
};

}  // namespace cairn
