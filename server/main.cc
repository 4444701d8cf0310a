// cairn-ps: holds the variables of jobs.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>

#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/http/process_pages.h"
#include "common/rpc/daemon.h"
#include "server/node/ps_node.h"

namespace {

constexpr absl::Duration kStopGrace = absl::Seconds(3);  // the whole shutdown takes less than 5 s

void AddFlags(CLI::App* app, cairn::PsNodeOptions* o, std::string* http) {
  app->add_option("--listen", o->listen, "host:port; port 0: chosen by the system")->capture_default_str();
  app->add_option("--advertise", o->advertise, "host or host:port under which workers reach this ps [as in --listen]");
  cairn::AddCoordinatorFlag(app, &o->coordinator);
  app->add_option("--data-dir", o->data_dir, "directory for the variables")->required();
  app->add_option(
      "--name", o->name,
      "unique in the cluster; the data directory keeps it and starts under no other [the kept one, or a new one]");
  app->add_option("--host-label", o->host_label, "name of this machine, for placement [the host's name]");
  app->add_option("--unix-socket", o->unix_socket,
                  "socket for workers on this host, or \"none\" [in the data directory]");
  app->add_flag("!--no-shared-memory", o->shared_memory,
                "processes on this host exchange frames with this ps through its socket only");
  app->add_option("--http", *http,
                  "host:port of /metrics, /healthz and /readyz of this process; a port alone: on 127.0.0.1 [none]");
  app->add_option("--threads", o->threads, "threads that share the partitions [one per core, at most 4]");
}

}  // namespace

int main(int argc, char** argv) {
  cairn::TuneAllocator();
  cairn::BlockStopSignals();
  CLI::App app{"cairn-ps: holds the variables of jobs"};
  cairn::PsNodeOptions options;
  cairn::DaemonOptions common;
  std::string http;
  AddFlags(&app, &options, &http);
  cairn::AddDaemonFlags(&app, &common);
  if (const auto code = cairn::ParseFlags(app, argc, argv)) return *code;

  if (!cairn::InitDaemon(common, options.name.empty() ? "ps" : options.name, cairn::CallerRole::kPs)) return 2;
  std::atomic<int> code{0};
  options.on_fatal = [&code](const absl::Status&) {
    code = cairn::kExitStoreFailed;
    kill(getpid(), SIGTERM);  // wakes WaitForStopSignal
  };
  absl::StatusOr<std::unique_ptr<cairn::PsNode>> node = cairn::PsNode::Start(options);
  if (!node.ok()) {
    cairn::LogError("%s", node.status().message());
    return absl::IsInvalidArgument(node.status()) ? 2 : 1;
  }
  std::vector<std::string> names = common.http_names;
  names.push_back(options.advertise);
  const auto pages = cairn::StartProcessPages(
      http, common.tls_dir, std::move(names), [] { return absl::OkStatus(); }, [&node] { return (*node)->Ready(); });
  if (!pages.ok()) {
    cairn::LogError("%s", pages.status().message());
    return absl::IsInvalidArgument(pages.status()) ? 2 : 1;
  }
  cairn::LogInfo("listening on %s", (*node)->address());
  const int signal = cairn::WaitForStopSignal();
  cairn::LogInfo("signal %d: stopping", signal);
  (*node)->Stop(kStopGrace);
  if (*pages != nullptr) (*pages)->Stop();  // they query the node
  cairn::LogInfo("stopped");
  node->reset();
  cairn::EndProcess(code);
}
