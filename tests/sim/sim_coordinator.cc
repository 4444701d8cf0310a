#include "tests/sim/sim_coordinator.h"

#include <utility>

#include "tests/sim/sim_cluster.h"

namespace cairn::sim {
namespace {

// As coordinator/election.h.
constexpr absl::Duration kLease = absl::Seconds(3), kMargin = absl::Milliseconds(500), kRenew = absl::Seconds(1);
constexpr absl::Duration kPoll = absl::Milliseconds(250);

// The driver owns its store; the disk outlives it.
class OwnDisk : public KvStore {
 public:
  explicit OwnDisk(KvStore& disk) : disk_(disk) {}
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override { return disk_.Get(key); }
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return disk_.Scan(prefix, fn);
  }
  absl::Status Write(const KvBatch& batch, bool sync) override { return disk_.Write(batch, sync); }

 private:
  KvStore& disk_;
};

// etcd as EtcdStore shows it within one term.
class EtcdInTerm : public KvStore {
 public:
  EtcdInTerm(Etcd& etcd, const Network& network, const Host& host, uint64_t term)
      : etcd_(etcd), network_(network), host_(host), term_(term) {}
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override {
    CAIRN_RETURN_IF_ERROR(Reached());
    return etcd_.store->Get(key);
  }
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    CAIRN_RETURN_IF_ERROR(Reached());
    return etcd_.store->Scan(prefix, fn);
  }
  // A request that reached etcd may have been carried out although its answer is lost.
  absl::Status Write(const KvBatch& batch, bool sync) override {
    if (network_.Cuts(host_, etcd_.host)) return absl::UnavailableError("etcd is not reached");
    if (etcd_.term != term_) return absl::AbortedError("another coordinator leads");
    const absl::Status written = etcd_.store->Write(batch, sync);
    return network_.Cuts(etcd_.host, host_) ? absl::UnavailableError("etcd does not answer") : written;
  }

 private:
  absl::Status Reached() const {
    return network_.Reaches(host_, etcd_.host) ? absl::OkStatus() : absl::UnavailableError("etcd is not reached");
  }

  Etcd& etcd_;
  const Network& network_;
  const Host& host_;
  const uint64_t term_;
};

}  // namespace

// ---- sessions ----

// Invariant: the driver is told of the session's end once, when the stream is over, and only after it was told that the
// session is open.
class SimCoordinator::Session : public SessionSink, public std::enable_shared_from_this<Session> {
 public:
  Session(SimCoordinator& owner, std::shared_ptr<Stream> stream, ToNode to_node, std::string node)
      : owner_(owner), stream_(std::move(stream)), to_node_(std::move(to_node)), node_(std::move(node)) {}

  void Send(v1::CoordinatorMessage message) override {
    if (over_) return;
    if (owner_.world_.tracing()) owner_.world_.Trace("%s -> %s: %s", owner_.host_.name, node_, Describe(message));
    stream_->Send(Stream::kListener, [to_node = to_node_, message = std::move(message)] { to_node(message); });
  }
  void Close(const absl::Status& reason) override {
    if (over_) return;
    owner_.world_.Trace("%s closes a session: %s", owner_.host_.name, reason.ToString());
    stream_->Close(Stream::kListener);
    // As the service does when its call ends.
    owner_.world_.AfterOn(owner_.host_, absl::Microseconds(10), [self = shared_from_this()] { self->End(); });
  }
  void Opened(SessionToken token) {
    token_ = token;
    if (over_) owner_.driver_->SessionEnded(token);
  }
  void Say(v1::NodeMessage message) {
    if (!over_) owner_.driver_->SessionSays(token_, std::move(message), [] {});
  }
  void End() {
    if (std::exchange(over_, true)) return;
    if (token_.value != 0) owner_.driver_->SessionEnded(token_);
    owner_.sessions_.erase(stream_->id());
  }

 private:
  SimCoordinator& owner_;
  const std::shared_ptr<Stream> stream_;
  const ToNode to_node_;
  const std::string node_;
  SessionToken token_;
  bool over_ = false;
};

void SimCoordinator::OnHello(const std::shared_ptr<Stream>& stream, const v1::Hello& hello, ToNode to_node) {
  const auto session = std::make_shared<Session>(*this, stream, std::move(to_node), hello.name());
  sessions_[stream->id()] = session;
  stream->OnBroken(Stream::kListener, [this, id = stream->id()] {
    if (const auto found = sessions_.find(id); found != sessions_.end()) std::shared_ptr(found->second)->End();
  });
  driver_->SessionOpened(session, hello, [session](SessionToken token) { session->Opened(token); });
}

void SimCoordinator::OnMessage(const std::shared_ptr<Stream>& stream, v1::NodeMessage message) {
  if (const auto session = sessions_.find(stream->id()); session != sessions_.end())
    session->second->Say(std::move(message));
}

// ---- the process ----

SimCoordinator::SimCoordinator(SimCluster& cluster, int index, Etcd* etcd)
    : cluster_(cluster),
      world_(cluster.world()),
      host_(absl::StrFormat("coordinator-%d", index)),
      clock_(world_, host_),
      etcd_(etcd) {
  if (etcd_ != nullptr) return;
  disk_ = std::make_unique<SimDisk>(true);
  if (cluster_.options().bug == PlantedBug::kStoreLate)
    late_ = std::make_unique<PlantedStore>(*disk_, world_, host_, PlantedBug::kPersistLate, PlantedStore::Hooks());
}

SimCoordinator::~SimCoordinator() {
  host_.up = false;  // nothing that ends now posts anything
}

void SimCoordinator::Start() {
  if (host_.up) return;
  host_.up = true;
  ++host_.process;
  host_.still_until = absl::InfinitePast();
  world_.Trace("%s starts", host_.name);
  ClusterEnvironment environment;
  environment.clock = &clock_;
  environment.executor = std::make_unique<SimExecutor>(world_, host_, cluster_.thread_load());
  environment.observer = this;
  driver_ = std::make_unique<ClusterDriver>(CoordinatorOptions{}, std::move(environment));
  if (etcd_ == nullptr) {
    Lead();
  } else {
    Campaign();
  }
}

void SimCoordinator::End(bool power_loss) {
  if (!host_.up) return;
  world_.Trace("%s is killed", host_.name);
  cluster_.network().ProcessEnded(host_);
  host_.up = false;
  core_ = nullptr;
  sessions_.clear();
  driver_ = nullptr;
  if (late_ != nullptr && late_->ProcessEnded()) cluster_.NotePlantedActed();
  if (power_loss && disk_ != nullptr) disk_->PowerLoss(world_.rng);
}

// ---- who leads ----

void SimCoordinator::Lead() {
  driver_->Lead([this, term = term_] { return BeginToLead(term); });
}

// As CoordinatorNode does.
absl::StatusOr<Leadership> SimCoordinator::BeginToLead(uint64_t term) {
  StateStore store(OpenStore(term));
  absl::StatusOr<StoredState> stored = store.Load();
  absl::Status status = stored.status();
  if (status.ok() && !Valid(term)) status = absl::UnavailableError("the lease lapsed before the state was read");
  if (!status.ok()) {
    EndTerm(term, status);
    return status;
  }
  if (cluster_.options().bug == PlantedBug::kLoseJobsOnRestart && cluster_.job_id() != 0) stored->jobs.clear();
  return Leadership{std::move(store), *std::move(stored), world_.rng.Next(), [this, term] { return Valid(term); },
                    [this, term](const absl::Status& why) { EndTerm(term, why); }};
}

std::unique_ptr<KvStore> SimCoordinator::OpenStore(uint64_t term) {
  if (etcd_ != nullptr) return std::make_unique<EtcdInTerm>(*etcd_, cluster_.network(), host_, term);
  if (late_ != nullptr) return std::make_unique<OwnDisk>(*late_);
  return std::make_unique<OwnDisk>(*disk_);
}

bool SimCoordinator::Valid(uint64_t term) const {
  if (etcd_ == nullptr) return true;
  return term == term_ && world_.ClockOf(host_) < valid_until_;
}

void SimCoordinator::OnLeads(const ClusterCore* core) {
  core_ = core;
  world_.Trace("%s %s", host_.name, core != nullptr ? "leads" : "leads no more");
}

// Makes the driver stand by.
void SimCoordinator::EndTerm(uint64_t term, const absl::Status& why) {
  if (etcd_ == nullptr) return world_.Fail(why.ToString());
  if (absl::IsDataLoss(why)) world_.Fail(why.ToString());
  if (term != term_ || std::exchange(valid_until_, absl::InfinitePast()) == absl::InfinitePast()) return;
  world_.Trace("%s gives up its term: %s", host_.name, why.ToString());
  world_.AfterOn(host_, kPoll, [this] { Campaign(); });
}

void SimCoordinator::Campaign() {
  const absl::Time asked = clock_.Now();
  if (cluster_.network().Reaches(host_, etcd_->host) && world_.now() >= etcd_->lease_until) {
    etcd_->lease_until = world_.now() + kLease;
    term_ = ++etcd_->term;
    valid_until_ = asked + kLease - kMargin;
    Lead();
    return Renew(term_);
  }
  world_.AfterOn(host_, kPoll, [this] { Campaign(); });
}

void SimCoordinator::Renew(uint64_t term) {
  if (term != term_ || valid_until_ == absl::InfinitePast()) return;
  if (!Valid(term)) {
    const absl::Status why = absl::AbortedError("its lease lapsed");
    driver_->StandBy(why);
    return EndTerm(term, why);
  }
  if (!cluster_.network().Cuts(host_, etcd_->host) && etcd_->term == term && world_.now() < etcd_->lease_until) {
    etcd_->lease_until = world_.now() + kLease;
    if (!cluster_.network().Cuts(etcd_->host, host_)) valid_until_ = clock_.Now() + kLease - kMargin;
  }
  world_.AfterOn(host_, kRenew, [this, term] { Renew(term); });
}

// ---- what it does ----

void SimCoordinator::Call(std::function<Event(ReplyToken)> make_event, ClusterDriver::ReplyFn reply) {
  if (host_.up && host_.still_until <= world_.now()) driver_->Call("", std::move(make_event), std::move(reply));
}

void SimCoordinator::OnEffect(const Effect& effect) {
  if (const auto* line = std::get_if<LogLine>(&effect)) {
    world_.Trace("%s: %s", host_.name, LogText(*line));
  } else if (const auto* changed = std::get_if<JobChanged>(&effect)) {
    if (const auto status = core_->GetJob(changed->job, clock_.Now()); status.ok()) cluster_.OnJobChanged(*status);
  }
}

}  // namespace cairn::sim
