#include "tests/sim/sim_coordinator.h"

#include "tests/sim/sim_cluster.h"

namespace cairn::sim {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
// As coordinator/election.h.
constexpr absl::Duration kLease = absl::Seconds(3), kMargin = absl::Milliseconds(500), kRenew = absl::Seconds(1);
constexpr absl::Duration kPoll = absl::Milliseconds(250);

StoredState Load(KvStore& store, World& world) {
  std::map<std::string, std::string> entries;
  const absl::Status scanned = store.Scan("", [&](std::string_view key, std::string_view value) {
    entries.emplace(key, value);
    return true;
  });
  if (!scanned.ok()) world.Fail(scanned.ToString());
  absl::StatusOr<StoredState> state = ReadStored(entries);
  if (!state.ok()) world.Fail(state.status().ToString());
  return *std::move(state);
}

}  // namespace

SimCoordinator::SimCoordinator(SimCluster& cluster, int index, Etcd* etcd)
    : cluster_(cluster), world_(cluster.world()), host_(absl::StrFormat("coordinator-%d", index)), etcd_(etcd) {
  if (etcd_ == nullptr) disk_ = std::make_unique<SimDisk>(true);
}

absl::Time SimCoordinator::Now() const { return world_.ClockOf(host_); }

void SimCoordinator::Start() {
  if (host_.up) return;
  host_.up = true;
  ++host_.process;
  host_.still_until = absl::InfinitePast();
  world_.Trace("%s starts", host_.name);
  if (etcd_ == nullptr) {
    Lead(*disk_);
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
  if (power_loss && disk_ != nullptr) disk_->PowerLoss(world_.rng);
}

// ---- who leads ----

void SimCoordinator::Lead(KvStore& store) {
  StoredState stored = Load(store, world_);
  if (cluster_.options().bug == PlantedBug::kLoseJobsOnRestart && cluster_.job_id() != 0) stored.jobs.clear();
  core_ = std::make_unique<ClusterCore>(CoordinatorOptions{}, world_.rng.Next(), stored, Now());
  world_.Trace("%s leads", host_.name);
  Tick(++reign_);
}

void SimCoordinator::StandBy(const std::string& why) {
  if (core_ == nullptr) return;
  world_.Trace("%s leads no more: %s", host_.name, why);
  core_ = nullptr;
  for (auto& [token, session] : std::exchange(sessions_, {})) session.stream->Close(Stream::kListener);
  world_.AfterOn(host_, kPoll, [this] { Campaign(); });
}

void SimCoordinator::Campaign() {
  if (core_ != nullptr) return;
  const absl::Time asked = Now();
  if (cluster_.network().Reaches(host_, etcd_->host) && world_.now() >= etcd_->lease_until) {
    etcd_->lease_until = world_.now() + kLease;
    term_ = ++etcd_->term;
    valid_until_ = asked + kLease - kMargin;
    Lead(*etcd_->store);
    return Renew();
  }
  world_.AfterOn(host_, kPoll, [this] { Campaign(); });
}

void SimCoordinator::Renew() {
  if (core_ == nullptr) return;
  if (!MayAct()) return StandBy("its lease lapsed");
  if (!cluster_.network().Cuts(host_, etcd_->host) && etcd_->term == term_ && world_.now() < etcd_->lease_until) {
    etcd_->lease_until = world_.now() + kLease;
    if (!cluster_.network().Cuts(etcd_->host, host_)) valid_until_ = Now() + kLease - kMargin;
  }
  world_.AfterOn(host_, kRenew, [this, term = term_] {
    if (term == term_) Renew();
  });
}

bool SimCoordinator::MayAct() const { return etcd_ == nullptr || Now() < valid_until_; }

bool SimCoordinator::Write(const Store& store) {
  KvBatch batch;
  if (store.value) {
    batch.Put(store.key, *store.value);
  } else {
    batch.Delete(store.key);
  }
  if (etcd_ == nullptr) return disk_->Write(batch, true).ok();
  // A request that etcd got may have been carried out though its answer is lost.
  if (cluster_.network().Cuts(host_, etcd_->host) || etcd_->term != term_) return false;
  const bool written = etcd_->store->Write(batch, true).ok();
  return written && !cluster_.network().Cuts(etcd_->host, host_);
}

// ---- the core ----

void SimCoordinator::Tick(uint64_t reign) {
  if (core_ == nullptr || reign_ != reign) return;
  Step(cairn::Tick{});
  world_.AfterOn(host_, kTick, [this, reign] { Tick(reign); });
}

void SimCoordinator::Call(Event event) {
  if (core_ != nullptr && host_.still_until <= world_.now()) Step(event);
}

void SimCoordinator::Step(const Event& event) {
  if (core_ == nullptr) return;
  if (!MayAct()) return StandBy("its lease lapsed");
  Effects effects = core_->Step(event, Now());
  for (Effect& effect : effects) {
    if (!Carry(effect)) return StandBy("its state cannot be stored");
  }
}

bool SimCoordinator::Carry(Effect& effect) {
  if (auto* store = std::get_if<Store>(&effect)) return Write(*store);
  if (auto* send = std::get_if<SendCommand>(&effect)) {
    auto found = sessions_.find(send->session.value);
    if (found == sessions_.end()) return true;
    if (world_.tracing()) {
      world_.Trace("%s -> %s: %s", host_.name, found->second.node, Describe(send->message));
    }
    const ToNode& to_node = found->second.to_node;
    found->second.stream->Send(Stream::kListener, [to_node, message = std::move(send->message)] { to_node(message); });
  } else if (auto* reply = std::get_if<Reply>(&effect)) {
    cluster_.OnReply(*reply);
  } else if (auto* close = std::get_if<cairn::CloseSession>(&effect)) {
    world_.Trace("%s closes a session: %s", host_.name, close->reason.ToString());
    CloseSession(close->session.value);
  } else if (auto* line = std::get_if<LogLine>(&effect)) {
    world_.Trace("%s: %s", host_.name, line->text);
  } else if (auto* changed = std::get_if<JobChanged>(&effect)) {
    if (const auto status = core_->GetJob(changed->job, Now()); status.ok()) cluster_.OnJobChanged(*status);
  }
  return true;
}

// ---- sessions ----

void SimCoordinator::OnHello(const std::shared_ptr<Stream>& session, const v1::Hello& hello, ToNode to_node) {
  if (core_ == nullptr) return session->Close(Stream::kListener);  // who leads is elsewhere
  const uint64_t token = session->id();
  sessions_[token] = {session, std::move(to_node), hello.name()};
  session->OnBroken(Stream::kListener, [this, token] {
    if (sessions_.erase(token) > 0) Step(SessionClosed{SessionToken(token)});
  });
  Step(NodeUp{SessionToken(token), hello});
}

void SimCoordinator::OnMessage(const std::shared_ptr<Stream>& session, const v1::NodeMessage& message) {
  if (sessions_.contains(session->id())) Step(NodeSays{SessionToken(session->id()), message});
}

void SimCoordinator::CloseSession(uint64_t token) {
  auto session = sessions_.extract(token);
  if (session.empty()) return;
  session.mapped().stream->Close(Stream::kListener);
  // As the service does when its call ends.
  world_.AfterOn(host_, absl::Microseconds(10), [this, token, reign = reign_] {
    if (reign_ == reign) Step(SessionClosed{SessionToken(token)});
  });
}

}  // namespace cairn::sim
