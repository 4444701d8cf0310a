// BenchServer: v1.Bench, and the coordinator of one ps, which it gives the jobs that Prepare asks for.
//
// The ps is started by the caller, with --coordinator and this server's address. Thread-safe. Invariants:
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
