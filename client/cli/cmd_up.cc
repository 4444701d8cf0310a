// cairn up: runs a whole cluster on this machine until Ctrl-C.
#include <algorithm>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/nodes_table.h"
#include "client/cli/stop_signals.h"

namespace cairn {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(30);
// Existing jobs may need longer to have all their copies; the table of nodes shows that.
constexpr absl::Duration kReadyPatience = absl::Seconds(3);
constexpr absl::Duration kPollEvery = absl::Milliseconds(10);
constexpr absl::Duration kLookAfterEvery = absl::Milliseconds(100);

void Say(const std::string& line) {
  absl::FPrintF(stderr, "%s\n", line);
  std::fflush(stderr);
}

enum class Start { kHealthy, kInterrupted };

// Waits until all nodes are alive, and a little longer for every ps to be ready.
absl::StatusOr<Start> WaitUntilHealthy(LocalCluster& cluster, StopSignals& signals,
                                       std::vector<v1::NodeStatus>* nodes) {
  JobClientOptions options;
  options.address = cluster.address();
  options.timeout = absl::Seconds(1);
  JobClient client(options);
  const absl::Time end = cluster.clock().Now() + kStartTimeout;
  absl::Time all_alive = absl::InfiniteFuture();  // the time from which all were alive
  while (cluster.clock().Now() < end) {
    if (signals.Wait(kPollEvery)) return Start::kInterrupted;
    CAIRN_RETURN_IF_ERROR(cluster.AllRunning());
    const auto answer = client.ListNodes();
    if (!answer.ok()) continue;
    int alive = 0, ready = 0;
    for (const v1::NodeStatus& node : *answer) {
      alive += node.alive();
      ready += node.alive() && node.not_ready().empty();
    }
    *nodes = *answer;
    if (alive < cluster.nodes()) continue;
    all_alive = std::min(all_alive, cluster.clock().Now());
    if (ready >= cluster.nodes() || cluster.clock().Now() - all_alive > kReadyPatience) return Start::kHealthy;
  }
  if (all_alive != absl::InfiniteFuture()) return Start::kHealthy;
  return absl::DeadlineExceededError(
      absl::StrFormat("the daemons are not all up after %s; see the logs", absl::FormatDuration(kStartTimeout)));
}

}  // namespace

int RunUp(const Globals& globals, const LocalClusterOptions& options) {
  StopSignals signals;
  const absl::Time begin = absl::Now();
  auto started = LocalCluster::Start(options, Say);
  if (!started.ok()) return Fail(started.status());
  LocalCluster& cluster = **started;
  const auto stop = [&] { cluster.Stop([&] { return signals.Wait(absl::ZeroDuration()); }); };

  std::vector<v1::NodeStatus> nodes;
  const auto start = WaitUntilHealthy(cluster, signals, &nodes);
  if (!start.ok() || *start == Start::kInterrupted) {
    stop();
    return start.ok() ? kExitOk : Fail(start.status());
  }
  absl::PrintF("%s", NodesTable(nodes, absl::Now()));
  if (!cluster.http().empty())
    absl::PrintF("dashboard: %s://%s\n", globals.tls_dir.empty() ? "http" : "https", cluster.http());
  absl::PrintF("cluster ready in %.1f s: coordinator %s, data and logs in %s; Ctrl-C stops it\n",
               absl::ToDoubleSeconds(absl::Now() - begin), cluster.address(), cluster.dir());
  std::fflush(stdout);
  while (!signals.Wait(kLookAfterEvery)) cluster.Tick(cluster.clock().Now());
  Say("stopping; Ctrl-C again kills");
  stop();
  Say("stopped");
  return kExitOk;
}

}  // namespace cairn
