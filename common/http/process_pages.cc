#include "common/http/process_pages.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/report/metric_families.h"

namespace cairn {
namespace {

HttpAnswer Answer(const HttpRequest& request, const absl::Status& health) {
  if (request.path == "/healthz") return {health.ok() ? 200 : 503, "text/plain; charset=utf-8", health.ok() ? "ok\n" : absl::StrCat(health.message(), "\n"), {}};
  if (request.path != "/metrics") return {404, "text/plain; charset=utf-8", "there is no such page; there are /metrics and /healthz\n", {}};
  MetricFamilies out;
  out.Add("cairn_healthy", "0 where the process should be started anew", {}, health.ok());
  AddProcessMetrics(out);
  return {200, kMetricsContentType, out.Text(), {}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> StartProcessPages(const std::string& listen, const std::string& tls_dir, std::function<absl::Status()> health) {
  if (listen.empty()) return nullptr;
  HttpServerOptions options;
  options.listen = listen;
  options.tls_dir = tls_dir;
  options.open_paths = {"/healthz"};
  options.threads = 4;
  auto server = HttpServer::Start(options, [health = std::move(health)](const HttpRequest& request) { return Answer(request, health()); });
  if (!server.ok()) return Annotate(server.status(), "--http");
  LogInfo("metrics and health on %s://%s", tls_dir.empty() ? "http" : "https", (*server)->address());
  return server;
}

}  // namespace cairn
