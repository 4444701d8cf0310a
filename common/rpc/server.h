// RpcServer: a gRPC server with what every daemon needs: TCP (with TLS if the process uses it, credentials.h),
// an optional Unix socket, health checking, reflection, keepalive.
//
// Thread-safe. Invariants: 1. After Start the port is bound by this process alone (no SO_REUSEPORT). 2. After Stop no
// call runs. 3. Other machines reach it through TLS, or because the process allows it (CheckListen). 4. Bounded:
// connections, of one machine and of all (connection_table.h), the calls of a connection, and the memory of all. 5. A
// call to a service of gRPC's own is answered only if AdmitCall admits it, and else ends at once with the reason; the
// given services ask themselves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/rpc/limits.h"

namespace grpc {
class Server;
class Service;
namespace experimental {
class ExternalConnectionAcceptor;
}
}  // namespace grpc

namespace cairn {

class Listener;

struct RpcServerOptions {
  std::string listen = "127.0.0.1:0";  // host:port; port 0: chosen by the system
  std::string unix_socket;             // path, or empty; at most kUnixSocketPathBytesMax
  int receive_bytes_max = 4 << 20;     // per message
  // A connection that is older takes no new calls: who calls connects anew, with the certificate of that moment. Open
  // calls go on. Default: kConnectionAge with TLS, else no limit.
  absl::Duration connection_age = absl::ZeroDuration();
  size_t rpc_bytes_max = kRpcBytesMax;
};

// The service name under which a node's health service reports its readiness: a ps' copies are in sync.
inline constexpr char kReadyService[] = "ready";

class RpcServer {
 public:
  // The services must outlive the server. Errors: INVALID_ARGUMENT, UNAVAILABLE (the address is in use or not this
  // host's).
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcServerOptions& options,
                                                          const std::vector<grpc::Service*>& services);
  ~RpcServer();  // Stop with no grace

  int port() const { return port_; }
  // "host:port[,unix:/path]". advertise: the host (or host:port) that others dial; empty: the listen address.
  std::string Address(const std::string& advertise) const;
  // What the health service answers for "" (the whole server); SERVING after Start.
  void SetServing(bool serving);
  // The same for a service name, which need not be a gRPC service; until the first call clients get "unknown".
  void SetServing(const std::string& service, bool serving);
  // Accepts no new calls, lets open ones finish for `grace`, then cancels them. Idempotent.
  void Stop(absl::Duration grace);

 private:
  RpcServer() = default;

  RpcServerOptions options_;
  std::string host_;
  int port_ = 0;
  // In this order: connections go from the listener to the acceptor, and to the server.
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<Listener> listener_;
  bool stopped_ = false;
};

}  // namespace cairn
