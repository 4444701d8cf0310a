// HTTP pages of a daemon about its own process (--http of ps and workers; the coordinator's pages show the
// cluster):
//
//   /metrics   CPU, memory and files of the process, under the names of Prometheus' libraries; cairn_healthy; when its
//              certificate expires
//   /healthz   200, or 503 and the reason: for liveness probes
//   /readyz    likewise, where the daemon knows it: for readiness probes
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/http/server.h"

namespace cairn {

// health: called on any thread; why the process should be restarted, else OK. ready: likewise why it is not ready;
// null: no such page. tls_dir, names: as in HttpServerOptions. Returns null if `listen` is empty.
// Errors: those of HttpServer::Start, prefixed with "--http: ".
absl::StatusOr<std::unique_ptr<HttpServer>> StartProcessPages(const std::string& listen, const std::string& tls_dir,
                                                              std::vector<std::string> names,
                                                              std::function<absl::Status()> health,
                                                              std::function<absl::Status()> ready = nullptr);

}  // namespace cairn
