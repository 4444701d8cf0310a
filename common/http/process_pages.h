// The pages of a daemon that tells of itself alone (--http of ps and workers; what the cluster is doing is on the
// coordinator's):
//
//   /metrics   CPU, memory and files of the process, as Prometheus' libraries name them; cairn_healthy
//   /healthz   200, or 503 and why: for liveness probes
//   /readyz    likewise, of daemons that know it: for readiness probes
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/http/server.h"

namespace cairn {

// health: any thread; why the process should be restarted, else OK. ready: likewise why it may not be counted on;
// null: it has no such page. tls_dir: as HttpServerOptions. Null where `listen` is empty.
// Errors: as HttpServer::Start, with "--http: " before them.
absl::StatusOr<std::unique_ptr<HttpServer>> StartProcessPages(const std::string& listen, const std::string& tls_dir,
                                                              std::function<absl::Status()> health,
                                                              std::function<absl::Status()> ready = nullptr);

}  // namespace cairn
