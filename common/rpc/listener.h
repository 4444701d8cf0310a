// Listener: listens on a TCP port and hands each connection on, as many as ConnectionTable admits. gRPC's own listener
// has no limit, and stops for ever once it finds no descriptor for a connection (CVE-2023-4785).
//
// Thread-safe. Invariants: 1. From Bind on, the port is this process' alone. 2. After Stop, or the destructor, nothing
// listens and `take` is not called. 3. Out of descriptors, it waits and goes on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/rpc/connection_table.h"

namespace cairn {

class Listener {
 public:
  // Gets a connected socket, not blocking, and owns it. On the listener's thread; must not block.
  using Take = std::function<void(int fd)>;

  // address: "host:port"; port 0: chosen by the system. All addresses of the host are listened on.
  // Errors: INVALID_ARGUMENT; UNAVAILABLE: in use, not this host's.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const std::string& address, const ConnectionLimits& limits);
  ~Listener() { Stop(); }

  int port() const { return port_; }
  // Once. Connections wait for it.
  void Run(Take take);
  // Idempotent.
  void Stop();

 private:
  explicit Listener(const ConnectionLimits& limits) : table_(limits) {}

  void Loop();
  void Accept(int listening);
  void Refused(ConnectionTable::Outcome why, const std::string& machine);

  int port_ = 0;
  std::vector<int> listening_;
  int wake_ = -1;
  Take take_;
  std::thread thread_;
  // On thread_ alone:
  ConnectionTable table_;
  size_t refused_ = 0;  // since the last warning
  absl::Time warned_ = absl::InfinitePast();
};

}  // namespace cairn
