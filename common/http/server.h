// HttpServer: serves pages for people, probes and Prometheus next to a daemon's gRPC server: HTTP/1.1, GET and HEAD,
// and POST where its owner takes it, one request per connection. Boost.Beast parses and writes; the sockets and their
// limits are handled here.
//
// Thread-safe. Invariants:
//   1. After Start the port is bound by this process alone. After Stop nothing listens and no handler runs.
//   2. At most `threads` connections are served and kHttpQueueMax wait; a request's head, its body and an answer are
//      each limited in bytes or time. When no thread is free, connections that have kept one waiting longest are
//      closed first, so that a client that sends slowly or not at all cannot keep others out.
//   3. With TLS, a client without a certificate signed by ca.crt is served only `open_paths`: Kubernetes' probes have
//      no certificate. `identify` may let others in by their Authorization header.
//   4. A request by a name that is not this server's gets nothing but `open_paths` (host_check.h).
//   5. Of a POST the handler learns only what passed post_check.h: no page of another origin made it. Its body is read
//      after that, and after before_post.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/http/messages.h"
#include "common/rpc/access.h"

namespace cairn {

struct HttpServerOptions {
  std::string listen;                   // host:port, or a port on 127.0.0.1; port 0: chosen by the system
  std::string tls_dir;                  // empty: plain
  std::vector<std::string> open_paths;  // see invariants 3 and 4
  // This server's, beside the host in `listen`, this machine's name and those of the certificate.
  std::vector<std::string> names;
  // With TLS: who calls with this Authorization header, whatever the certificate says. Called on several threads.
  // Errors: UNAVAILABLE: it cannot be said now; others: nobody. Null: the header is ignored.
  std::function<absl::StatusOr<Caller>(const std::string& authorization)> identify;
  // Of a POST, before its body is read, and on several threads at once: what is answered instead; nullopt: it is read,
  // and the handler answers. Null: POST is refused.
  std::function<std::optional<HttpAnswer>(const HttpRequest&)> before_post;
  size_t body_bytes_max = 0;  // of a POST
  int threads = 16;           // 1 .. 256
  absl::Duration head_timeout = absl::Seconds(5);
  absl::Duration body_timeout = absl::Seconds(10);
  absl::Duration answer_timeout = absl::Seconds(20);
  absl::Duration tls_refresh = absl::Seconds(30);
  Clock* clock = nullptr;  // thread-safe, outlives the server; null: the steady clock
};

class HttpServer {
 public:
  // Called on several threads at once; should answer within seconds. Errors of a POST that are plain text become JSON.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  // Errors: INVALID_ARGUMENT, UNAVAILABLE: the address is in use or not this host's.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options, Handler handler);
  ~HttpServer();

  int port() const;
  // "host:port", with the host of `listen`.
  std::string address() const;
  // Closes all connections, but waits for answers in progress. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
