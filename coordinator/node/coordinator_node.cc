#include "coordinator/node/coordinator_node.h"

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/http/server.h"
#include "common/rpc/channel.h"
#include "common/rpc/daemon.h"
#include "common/rpc/server.h"
#include "coordinator/core/limits.h"
#include "coordinator/dashboard/dashboard.h"
#include "coordinator/dashboard/limits.h"
#include "coordinator/node/cluster_driver.h"
#include "coordinator/node/job_service.h"
#include "coordinator/node/session_service.h"
#include "coordinator/node/token_service.h"
#include "coordinator/store/election.h"
#include "coordinator/store/etcd_store.h"
#include "coordinator/store/state_store.h"

namespace cairn {
namespace {

// All calls have been answered by then: the driver ends them before the server stops.
constexpr absl::Duration kStopGrace = absl::Seconds(2);
// The pause after a term that ended in an error, so that another coordinator can be elected and repeated errors do not
// load etcd.
constexpr absl::Duration kPauseAfterError = absl::Seconds(2);

bool IsLoopback(const std::string& host) {
  return absl::StartsWith(host, "127.") || host == "localhost" || host == "[::1]";
}
bool IsAnyHost(const std::string& host) { return host == "0.0.0.0" || host == "[::]"; }

// leader: the leader's address, or "".
absl::Status StandsBy(const std::string& leader, const std::string& text) {
  absl::Status status = absl::UnavailableError(text);
  status.SetPayload(kLeaderPayload, absl::Cord(leader));
  return status;
}

absl::Status LedBy(const SeenLeader& leader) {
  absl::Status status =
      StandsBy(leader.record.address(), absl::StrFormat("this coordinator stands by; the leader is \"%s\" at %s",
                                                        leader.record.name(), leader.record.address()));
  if (!leader.http.empty()) status.SetPayload(kLeaderHttpPayload, absl::Cord(leader.http));
  return status;
}

absl::Status LedByNobody() {
  return StandsBy("", "this coordinator stands by, and no leader is known yet; try again in some seconds");
}

}  // namespace

class CoordinatorNode::Impl {
 public:
  explicit Impl(const CoordinatorNodeOptions& options)
      : options_(options),
        driver_(options.core, {.clock = &clock_,
                               .executor = std::make_unique<SerialExecutor>("cluster"),
                               .on_leading = [this](bool leading) { ShowLeading(leading); },
                               .on_tokens = TokensTo(options.tokens)}),
        sessions_({&driver_, options.audit.get()}),
        jobs_(&driver_, &clock_, {options.tokens.get(), options.audit.get()}, options.quotas.get()),
        tokens_(&driver_, {options.tokens.get(), options.audit.get()}) {}

  absl::StatusOr<Caller> CallerOfPages(const std::string& authorization) {
    std::string known_id;
    absl::StatusOr<Caller> caller = options_.tokens->Find(authorization, absl::Now(), &known_id);
    if (!caller.ok() && !absl::IsUnavailable(caller.status()) && options_.audit != nullptr)
      options_.audit->WriteRefusal("pages (--http)", Caller{.token_id = std::move(known_id)}, caller.status());
    return caller;
  }

  absl::Status Listen() {
    RpcServerOptions options;
    options.listen = options_.listen;
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<RpcServer> server,
                           RpcServer::Start(options, {&sessions_, &jobs_, &tokens_}));
    absl::MutexLock lock(&mutex_);
    server_ = std::move(server);
    server_->SetServing(kLeaderService, leading_);
    return absl::OkStatus();
  }

  // Call after Listen.
  absl::Status ListenHttp() {
    if (options_.http.empty()) return absl::OkStatus();
    if (const std::string& advertise = options_.http_advertise; !advertise.empty()) {
      if (const absl::Status status = ParseAddress(advertise).status(); !status.ok())
        return Annotate(status, "--http-advertise");
    }
    dashboard_ =
        std::make_unique<Dashboard>(&driver_, &clock_, address(), options_.http_read_only ? nullptr : &jobs_.calls());
    HttpServerOptions options;
    options.listen = options_.http;
    options.tls_dir = options_.tls_dir;
    options.open_paths = {"/healthz", "/readyz"};
    options.threads = kPageThreads;
    options.body_bytes_max = kPageBodyBytesMax;
    options.before_post = [this](const HttpRequest& request) { return dashboard_->BeforePost(request); };
    options.names = options_.http_names;
    options.names.insert(options.names.end(), {options_.http_advertise, address()});
    if (options_.tokens != nullptr) {
      options.identify = [this](const std::string& authorization) { return CallerOfPages(authorization); };
    }
    absl::StatusOr<std::unique_ptr<HttpServer>> http =
        HttpServer::Start(options, [this](const HttpRequest& request) { return dashboard_->Answer(request); });
    if (!http.ok()) return Annotate(http.status(), "--http");
    http_ = *std::move(http);
    return absl::OkStatus();
  }

  void ShowLeading(bool leading) {
    absl::MutexLock lock(&mutex_);
    leading_ = leading;
    if (server_ != nullptr) server_->SetServing(kLeaderService, leading);
  }

  // ---- single coordinator ----

  void Lead(std::unique_ptr<StateStore> store, StoredState state) {
    driver_.Lead([this, store = std::shared_ptr<StateStore>(std::move(store)), state = std::move(state)] {
      const auto on_fatal = options_.on_fatal ? options_.on_fatal : [](const absl::Status&) {};
      return absl::StatusOr<Leadership>(Leadership{std::move(*store), state, RandomBits(), nullptr, on_fatal});
    });
  }

  // ---- several coordinators ----

  absl::Status Elect(const EtcdOptions& etcd) {
    ElectionOptions options;
    options.prefix = etcd.address.prefix;
    options.lease = etcd.lease;
    options.self.set_address(address());
    options.http = HttpForOthers();
    options.self.set_name(etcd.name.empty() ? address() : etcd.name);
    CAIRN_RETURN_IF_ERROR(options.Validate());
    etcd_name_ = absl::StrCat("etcd://", absl::StrJoin(etcd.address.endpoints, ","), "/", etcd.address.prefix);
    prefix_ = etcd.address.prefix;
    etcd_ = std::make_unique<EtcdClient>(etcd.address.endpoints);
    ElectionCallbacks callbacks;
    callbacks.on_standby = [this](const auto& leader, const auto& status) { OnStandby(leader, status); };
    callbacks.on_elected = [this](std::shared_ptr<LeaderTerm> term) { OnElected(std::move(term)); };
    callbacks.on_lost = [this](const LeaderTerm&, const absl::Status& why) { OnLost(why); };
    absl::MutexLock lock(&mutex_);  // a callback may run before the pointer is set
    election_ = std::make_unique<LeaderElection>(options, etcd_.get(), &clock_, std::move(callbacks));
    return absl::OkStatus();
  }

  void OnStandby(const std::optional<SeenLeader>& leader, const absl::Status& etcd) {
    if (!etcd.ok()) {
      LogWarning("standing by: %s", etcd.message());
      driver_.StandBy(StandsBy("", absl::StrCat("this coordinator stands by: ", etcd.message())));
    } else if (!leader) {
      LogWarning("standing by: key \"%s/leader\" does not name a coordinator", prefix_);
      driver_.StandBy(LedByNobody());
    } else {
      LogInfo("standing by: \"%s\" at %s leads", leader->record.name(), leader->record.address());
      driver_.StandBy(LedBy(*leader));
    }
  }

  void OnElected(std::shared_ptr<LeaderTerm> term) {
    LogInfo("elected; reading the state from %s", etcd_name_);
    driver_.Lead([this, term = std::move(term)] { return BeginToLead(term); });
  }

  // Runs on the driver's executor; the election's thread keeps renewing the lease.
  absl::StatusOr<Leadership> BeginToLead(const std::shared_ptr<LeaderTerm>& term) {
    auto kv = std::make_unique<EtcdStore>(etcd_.get(), prefix_, term);
    EtcdStore* etcd_store = kv.get();
    StateStore store(std::move(kv));
    absl::StatusOr<StoredState> state = store.Load();
    absl::Status status = state.status();
    if (status.ok()) status = etcd_store->DropOrphans();
    if (status.ok() && !term->Valid()) status = absl::AbortedError("the lease lapsed before the state was read");
    if (!status.ok()) {
      LogError("elected, but the state cannot be read from %s: %s", etcd_name_, status.message());
      Resign(*term, status);
      return status;
    }
    LogInfo("leading, with %d jobs and %d nodes known; state in %s", state->jobs.size(), state->cluster.nodes_size(),
            etcd_name_);
    return Leadership{std::move(store), *std::move(state), RandomBits(), [term] { return term->Valid(); },
                      [this, term](const absl::Status& why) { Resign(*term, why); }};
  }

  void Resign(const LeaderTerm& term, const absl::Status& why) {
    absl::MutexLock lock(&mutex_);
    if (election_ != nullptr) election_->Resign(term, why, kPauseAfterError);
  }

  void OnLost(const absl::Status& why) {
    LogWarning("no longer leads: %s", why.message());
    driver_.StandBy(
        StandsBy("", absl::StrCat("this coordinator does not lead (", why.message(), "); try again in some seconds")));
  }

  void Stop() {
    driver_.Stop();  // ends what pages and calls wait for
    if (http_ != nullptr) http_->Stop();
    if (election_ != nullptr) election_->Stop();
    if (server_ != nullptr) server_->Stop(kStopGrace);
  }

  const RpcServer& server() const { return *server_; }
  std::string address() const { return server_->Address(options_.advertise); }
  std::string http() const {
    if (http_ == nullptr) return "";
    const std::string scheme = options_.tls_dir.empty() ? "http://" : "https://";
    if (!options_.http_advertise.empty()) return scheme + options_.http_advertise;
    std::string host = HostOf(http_->address());
    if (IsAnyHost(host)) host = HostOf(address());
    return absl::StrCat(scheme, host, ":", http_->port());
  }
  // Clients on other machines are not redirected to a loopback address, which would be their own.
  std::string HttpForOthers() const {
    const bool named = !options_.http_advertise.empty();  // a published port, or a proxy on this machine
    const bool reached =
        http_ != nullptr && (named || !IsLoopback(HostOf(http_->address())) || IsLoopback(HostOf(address())));
    return reached ? http() : "";
  }

 private:
  const CoordinatorNodeOptions options_;
  RealClock clock_;
  ClusterDriver driver_;
  SessionService sessions_;
  JobServiceImpl jobs_;
  TokenServiceImpl tokens_;
  absl::Mutex mutex_;
  bool leading_ ABSL_GUARDED_BY(mutex_) = false;
  // Both are written once, under the mutex, before Start returns.
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<LeaderElection> election_;
  // With etcd:
  std::string etcd_name_;  // for messages
  std::string prefix_;
  std::unique_ptr<EtcdClient> etcd_;
  // Set with --http. http_ is last: its threads use all of the above.
  std::unique_ptr<Dashboard> dashboard_;
  std::unique_ptr<HttpServer> http_;
};

absl::StatusOr<std::unique_ptr<CoordinatorNode>> CoordinatorNode::Start(const CoordinatorNodeOptions& options,
                                                                        std::unique_ptr<KvStore> store) {
  CAIRN_RETURN_IF_ERROR(options.core.Validate());
  auto state_store = std::make_unique<StateStore>(std::move(store));
  CAIRN_ASSIGN_OR_RETURN(StoredState state, state_store->Load());
  auto impl = std::make_unique<Impl>(options);
  impl->Lead(std::move(state_store), std::move(state));  // before serving, so that every call can be answered
  CAIRN_RETURN_IF_ERROR(impl->Listen());
  CAIRN_RETURN_IF_ERROR(impl->ListenHttp());
  return std::unique_ptr<CoordinatorNode>(new CoordinatorNode(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<CoordinatorNode>> CoordinatorNode::StartWithEtcd(const CoordinatorNodeOptions& options,
                                                                                const EtcdOptions& etcd) {
  CAIRN_RETURN_IF_ERROR(options.core.Validate());
  if (options.advertise.empty() && IsAnyHost(HostOf(options.listen))) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "advertise: missing; with --listen %s give --advertise the address under which nodes, users and the other "
        "coordinators reach this one",
        options.listen));
  }
  auto impl = std::make_unique<Impl>(options);
  CAIRN_RETURN_IF_ERROR(impl->Listen());
  CAIRN_RETURN_IF_ERROR(impl->ListenHttp());
  CAIRN_RETURN_IF_ERROR(impl->Elect(etcd));
  return std::unique_ptr<CoordinatorNode>(new CoordinatorNode(std::move(impl)));
}

CoordinatorNode::CoordinatorNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

CoordinatorNode::~CoordinatorNode() { Stop(); }

int CoordinatorNode::port() const { return impl_->server().port(); }

std::string CoordinatorNode::address() const { return impl_->address(); }

std::string CoordinatorNode::http() const { return impl_->http(); }

void CoordinatorNode::Stop() { impl_->Stop(); }

}  // namespace cairn
