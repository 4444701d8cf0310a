// Listener: listens on a TCP port and hands each connection on, as many as ConnectionTable admits; it ends those that
// make too many calls (CallWatch). gRPC's own listener has no limit, and stops for ever once it finds no descriptor
// for a connection (CVE-2023-4785).
//
// Thread-safe. Invariants: 1. From Bind on, the port is this process' alone. 2. After Stop, or the destructor, nothing
// listens and `take` is not called. 3. Out of descriptors, it waits and goes on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/rpc/call_watch.h"
#include "common/rpc/connection_table.h"
#include "common/rpc/limits.h"

namespace cairn {

class Listener {
 public:
  // Gets a connected socket, not blocking, and owns it. On the thread that accepts: gRPC may read and answer calls in
  // it, as long as the connection has some.
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
  explicit Listener(const ConnectionLimits& limits)
      : limits_(limits), table_(limits), watched_(limits.message_bytes_max + kReadAheadBytesMax) {}

  void Loop();
  void Accept(int listening);
  void WatchLoop();
  // Whether the process' memory grows.
  bool Watch();
  void WatchCalls(CallWatch::Time now);
  void WatchBytes();
  void Refused(ConnectionTable::Outcome why, const std::string& machine);

  int port_ = 0;
  std::vector<int> listening_;
  int wake_ = -1;
  Take take_;
  std::thread thread_, watch_;
  const ConnectionLimits limits_;
  absl::Mutex mutex_;
  ConnectionTable table_ ABSL_GUARDED_BY(mutex_);
  struct Watched {
    explicit Watched(uint64_t bytes_max) : bytes(bytes_max) {}
    GrpcCounters counters;
    CallWatch calls{counters};
    CallWatch::Time at;
    double cpu_seconds = 0;  // of the process, when it last looked at the calls
    ByteWatch bytes;
    uint64_t seen = 0;      // the process' memory, the last time
    uint64_t resident = 0;  // when it last looked at what was sent, or less since
  };
  Watched watched_;  // on watch_ alone
  // On thread_ alone:
  size_t refused_ = 0;  // since the last warning
  absl::Time warned_ = absl::InfinitePast();
};

}  // namespace cairn
