#include "common/http/process_pages.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/http/certificate_metrics.h"
#include "common/report/metric_families.h"

namespace cairn {
namespace {

using Probe = std::function<absl::Status()>;

HttpAnswer ProbeAnswer(const absl::Status& status) {
  return {status.ok() ? 200 : 503,
          "text/plain; charset=utf-8",
          absl::StrCat(status.ok() ? "ok" : status.message(), "\n"),
          {}};
}

HttpAnswer Answer(const HttpRequest& request, const Probe& health, const Probe& ready) {
  if (request.path == "/healthz") return ProbeAnswer(health());
  if (request.path == "/readyz" && ready != nullptr) return ProbeAnswer(ready());
  if (request.path != "/metrics") {
    const char* const pages = ready == nullptr ? "/metrics and /healthz" : "/metrics, /healthz and /readyz";
    return {404, "text/plain; charset=utf-8", absl::StrCat("there is no such page; there are ", pages, "\n"), {}};
  }
  MetricFamilies out;
  out.Add("cairn_healthy", "0 if the process should be restarted", {}, health().ok());
  if (ready != nullptr)
    out.Add("cairn_ready", "0 if the process cannot be relied on: a ps' copies are not in sync", {}, ready().ok());
  AddCertificateMetrics(out);
  AddProcessMetrics(out);
  return {200, kMetricsContentType, out.Text(), {}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> StartProcessPages(const std::string& listen, const std::string& tls_dir,
                                                              std::vector<std::string> names,
                                                              std::function<absl::Status()> health,
                                                              std::function<absl::Status()> ready) {
  if (listen.empty()) return nullptr;
  HttpServerOptions options;
  options.listen = listen;
  options.tls_dir = tls_dir;
  options.names = std::move(names);
  options.open_paths = {"/healthz", "/readyz"};
  options.threads = 4;
  auto server = HttpServer::Start(options, [health = std::move(health), ready = std::move(ready)](
                                               const HttpRequest& request) { return Answer(request, health, ready); });
  if (!server.ok()) return Annotate(server.status(), "--http");
  LogInfo("metrics and health on %s://%s", tls_dir.empty() ? "http" : "https", (*server)->address());
  return server;
}

}  // namespace cairn
