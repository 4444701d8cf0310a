// CoordinatorNode: the coordinator as a whole: state on disk, core, services, server. What main, `cairn up` and tests
// start.
//
// Thread-safe. Invariants: 1. Once Start returned, the port answers. 2. After Stop (or the destructor) nothing listens
// and no call runs.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/storage/kv_store.h"
#include "coordinator/options.h"

namespace cairn {

struct CoordinatorNodeOptions {
  CoordinatorOptions core;
  std::string listen = "127.0.0.1:7070";  // host:port; port 0: chosen by the system
  // Called once, on a thread of the node, when the state cannot be stored any more: the process should end and be
  // started again.
  std::function<void(const absl::Status&)> on_fatal;
};

class CoordinatorNode {
 public:
  // Errors: INVALID_ARGUMENT names the option; UNAVAILABLE, the address is in use; DATA_LOSS, the stored state is
  // corrupt.
  static absl::StatusOr<std::unique_ptr<CoordinatorNode>> Start(const CoordinatorNodeOptions& options,
                                                                std::unique_ptr<KvStore> store);
  ~CoordinatorNode();

  int port() const;
  std::string address() const;  // "host:port"
  void Stop();

 private:
  class Impl;
  explicit CoordinatorNode(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
