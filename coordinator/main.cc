// cairn-coordinator: membership, placement and jobs of a Cairn cluster.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/rpc/daemon.h"
#include "common/storage/kv_store.h"
#include "coordinator/core/limits.h"
#include "coordinator/node/coordinator_node.h"

namespace cairn {
namespace {

// Who may do how much, and where it is written.
struct TrustFlags {
  std::string audit_log, quotas;  // files; empty: none
  bool accept_tokens = false;
};

struct Flags {
  DaemonOptions common;
  std::string listen = "127.0.0.1:7070";
  std::string advertise;
  std::string data_dir = "cairn-coordinator-data";
  std::string state;  // empty: data_dir holds it
  std::string name;
  std::string http, http_advertise;
  bool http_read_only = false;
  int leader_lease_s = 3;
  int heartbeat_interval_ms = 500;
  int lease_ms = 3000;
  std::string keep_ended_jobs;
  TrustFlags trust;
  int64_t max_job_parameters = kJobParametersDefault;
};

absl::StatusOr<std::unique_ptr<CoordinatorNode>> StartNode(const Flags& flags, const CoordinatorNodeOptions& options) {
  if (!flags.state.empty()) {
    EtcdOptions etcd;
    const auto address = EtcdAddress::Parse(flags.state);
    if (!address.ok()) return Annotate(address.status(), "--state");
    etcd.address = *address;
    etcd.name = flags.name;
    etcd.lease = absl::Seconds(flags.leader_lease_s);
    return CoordinatorNode::StartWithEtcd(options, etcd);
  }
  absl::StatusOr<std::unique_ptr<KvStore>> store = OpenRocksDbKvStore(flags.data_dir);
  if (!store.ok()) return Annotate(store.status(), "--data-dir");
  return CoordinatorNode::Start(options, *std::move(store));
}

// Opens what the flags name. Errors: INVALID_ARGUMENT.
absl::Status OpenFiles(const Flags& flags, Clock* clock, CoordinatorNodeOptions* options) {
  if (!flags.trust.audit_log.empty()) {
    CAIRN_ASSIGN_OR_RETURN(options->audit, AuditLog::Open(flags.trust.audit_log));
    ObserveRefusals([audit = options->audit](const std::string& method, const Caller& who, const absl::Status& why) {
      audit->WriteRefusal(method, who, why);
    });
  }
  if (!flags.trust.quotas.empty()) {
    CAIRN_ASSIGN_OR_RETURN(options->quotas, QuotaFile::Open(flags.trust.quotas, clock));
  }
  return absl::OkStatus();
}

int Run(const Flags& flags) {
  RealClock clock;
  CoordinatorNodeOptions options;
  if (flags.trust.accept_tokens) {
    options.tokens = std::make_shared<TokenTable>();
    AcceptTokens(options.tokens);
  }
  if (!InitDaemon(flags.common, "coordinator", CallerRole::kCoordinator)) return 2;
  options.listen = flags.listen;
  options.advertise = flags.advertise;
  options.http = flags.http;
  options.http_advertise = flags.http_advertise;
  options.http_read_only = flags.http_read_only;
  options.http_names = flags.common.http_names;
  options.tls_dir = flags.common.tls_dir;
  options.core.heartbeat_interval = absl::Milliseconds(flags.heartbeat_interval_ms);
  options.core.lease = absl::Milliseconds(flags.lease_ms);
  options.core.reopen_grace = std::min(options.core.reopen_grace, options.core.lease);
  options.core.job_parameters_max = flags.max_job_parameters;
  const absl::StatusOr<Retention> retention = Retention::Parse(flags.keep_ended_jobs);
  if (!retention.ok()) {
    LogError("%s", retention.status().message());
    return 2;
  }
  options.core.retention = *retention;
  if (const absl::Status status = OpenFiles(flags, &clock, &options); !status.ok()) {
    LogError("%s", status.message());
    return 2;
  }
  std::atomic<bool> fatal{false};
  options.on_fatal = [&fatal](const absl::Status&) {
    fatal = true;
    kill(getpid(), SIGTERM);  // wakes WaitForStopSignal
  };
  // Checked before the directory is created: a wrong flag leaves nothing behind.
  if (absl::Status status = options.core.Validate(); !status.ok()) {
    LogError("%s", status.message());
    return 2;
  }
  absl::StatusOr<std::unique_ptr<CoordinatorNode>> node = StartNode(flags, options);
  if (!node.ok()) {
    LogError("%s", node.status().message());
    return absl::IsInvalidArgument(node.status()) ? 2 : 1;
  }
  LogInfo("listening on %s, state in %s", (*node)->address(), flags.state.empty() ? flags.data_dir : flags.state);
  LogInfo("%s (--keep-ended-jobs)", retention->Text());
  if (const std::string http = (*node)->http(); !http.empty()) LogInfo("pages, metrics and probes on %s", http);
  const int signal_number = WaitForStopSignal();
  LogInfo("stopping (signal %d)", signal_number);
  (*node)->Stop();
  return fatal ? kExitStoreFailed : 0;
}

void AddTrustFlags(CLI::App* app, TrustFlags* flags) {
  app->add_option("--audit-log", flags->audit_log,
                  "File of who asked for what, and its outcome: a JSON object a line; at 64 MiB audit.log becomes "
                  "audit.1.log, up to audit.7.log [none]");
  app->add_option(
      "--quotas", flags->quotas,
      absl::StrCat("File of how much users and groups may have at a time: lines as `default jobs=20`, `user "
                   "alice replicas=64`, `group vision parameters=4000000000`; read again when it has "
                   "changed [",
                   kJobsOfUserDefault, " jobs a user]"));
  app->add_flag(
      "--accept-tokens", flags->accept_tokens,
      "Users may show a token (`cairn token create`) instead of a certificate: with --tls-dir, clients without "
      "a certificate are let in, and may do what their token allows");
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::TuneAllocator();
  cairn::BlockStopSignals();
  cairn::Flags flags;
  CLI::App app{"Cairn's coordinator: membership, placement and jobs of a cluster."};
  cairn::AddDaemonFlags(&app, &flags.common);
  app.add_option("--listen", flags.listen, "host:port that nodes and clients reach; port 0: chosen by the system")
      ->capture_default_str();
  app.add_option("--advertise", flags.advertise,
                 "host or host:port under which nodes, users and other coordinators reach this one [as in --listen]");
  CLI::Option* http = app.add_option("--http", flags.http,
                                     "host:port of the dashboard, /metrics, /healthz, /readyz and /api/v1; a port "
                                     "alone: on 127.0.0.1; with --tls-dir over TLS [none]");
  app.add_option("--http-advertise", flags.http_advertise,
                 "host:port under which browsers reach --http: standbys send them there [as in --http, or --advertise]")
      ->needs(http);
  app.add_flag("--http-read-only", flags.http_read_only,
               "The pages of --http show and change nothing: no jobs are submitted, cancelled or deleted there, no "
               "nodes drained")
      ->needs(http);
  CLI::Option* data_dir =
      app.add_option("--data-dir", flags.data_dir, "Directory of the coordinator's state, created if missing")
          ->capture_default_str();
  CLI::Option* state = app.add_option("--state", flags.state,
                                      "etcd://HOST:PORT,HOST:PORT/PREFIX: the state is in etcd, and several "
                                      "coordinators with the same --state take turns to lead [in --data-dir]")
                           ->excludes(data_dir);
  app.add_option("--name", flags.name, "With --state: this coordinator's name, for people [its address]")->needs(state);
  app.add_option("--leader-lease-s", flags.leader_lease_s,
                 "With --state: seconds, at least 2; when the leader dies another one takes over after about this time")
      ->needs(state)
      ->capture_default_str();
  app.add_option("--heartbeat-interval-ms", flags.heartbeat_interval_ms, "Nodes send a heartbeat this often")
      ->capture_default_str();
  app.add_option("--lease-ms", flags.lease_ms, "A node is lost after this long without a heartbeat; at least 3 of them")
      ->capture_default_str();
  app.add_option("--keep-ended-jobs", flags.keep_ended_jobs,
                 "How long jobs that have ended are kept, with their weights: STATE=AGE,... with succeeded, "
                 "ended_with_errors, failed, cancelled and "
                 "an age as 12h, 30d or forever; without_weights=N: of those without weights the newest N "
                 "[failed=30d,cancelled=7d,without_weights=100; the others forever]");
  cairn::AddTrustFlags(&app, &flags.trust);
  app.add_option("--max-job-parameters", flags.max_job_parameters, "A job whose model has more is refused")
      ->capture_default_str();
  if (const auto code = cairn::ParseFlags(app, argc, argv)) return *code;
  cairn::EndProcess(cairn::Run(flags));
}
