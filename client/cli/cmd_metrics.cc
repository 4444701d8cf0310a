// cairn metrics: prints the cluster's metrics for Prometheus once, or writes them repeatedly to a file for a
// node_exporter.
#include <cerrno>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/stop_signals.h"
#include "common/base/files.h"
#include "common/report/metrics_text.h"

namespace cairn {
namespace {

absl::StatusOr<std::string> Read(JobClient& client) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::NodeStatus> nodes, client.ListNodes());
  CAIRN_ASSIGN_OR_RETURN(const v1::ListJobsResponse list, client.List());
  return MetricsText(nodes, {list.jobs().begin(), list.jobs().end()});
}

// Replaces the file atomically, so that readers never see a part of it.
absl::Status Replace(const std::string& path, const std::string& text) {
  const std::string beside = path + ".new";  // another ending: collectors read whatever ends as `path` does
  {
    std::ofstream out(beside, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (!out) return absl::ErrnoToStatus(errno, absl::StrCat("--output: ", beside, " cannot be written"));
  }
  return Annotate(PutInPlace(beside, path), "--output");
}

}  // namespace

int RunMetrics(const Globals& globals, const MetricsOptions& options) {
  StopSignals signals;
  JobClient client(globals.client);
  if (options.output.empty()) {
    const absl::StatusOr<std::string> text = Read(client);
    if (!text.ok()) return Fail(text.status());
    std::fputs(text->c_str(), stdout);
    return kExitOk;
  }
  std::string told;  // the last printed error; each is printed once
  do {
    absl::StatusOr<std::string> text = Read(client);
    const std::string trouble(text.ok() ? "" : text.status().message());
    if (trouble != told && !trouble.empty()) absl::FPrintF(stderr, "cairn: %s\n", trouble);
    told = trouble;
    const absl::Status written = Replace(options.output, text.ok() ? *text : MetricsTextWithoutCluster());
    if (!written.ok()) return Fail(written);
  } while (!signals.Wait(absl::Seconds(options.every_s)));
  return kExitOk;
}

}  // namespace cairn
