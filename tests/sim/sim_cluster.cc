#include "tests/sim/sim_cluster.h"

#include "common/base/check.h"
#include "common/model/fault_check.h"
#include "common/model/job_check.h"

namespace cairn::sim {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);  // without a step, once the faults have stopped
constexpr absl::Duration kTimeAfterFaults = absl::Seconds(200);  // for the job to end; far more than it needs

bool IsFinal(v1::JobState state) { return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED; }

}  // namespace

const std::vector<PlantedBug>& AllBugs() {
  static const auto* const all = new std::vector<PlantedBug>{
      PlantedBug::kReplyBeforePersist, PlantedBug::kForgetSequences,   PlantedBug::kAddInOrderOfArrival, PlantedBug::kStaleValues,
      PlantedBug::kSkipExamples,       PlantedBug::kLoseJobsOnRestart, PlantedBug::kGoOnAlone,           PlantedBug::kBelieveUnconfirmed,
      PlantedBug::kNoSync,             PlantedBug::kNoRetry,           PlantedBug::kLeakRequests};
  return *all;
}

const char* Name(PlantedBug bug) {
  switch (bug) {
    case PlantedBug::kNone: return "none";
    case PlantedBug::kReplyBeforePersist: return "reply-before-persist";
    case PlantedBug::kForgetSequences: return "forget-sequences";
    case PlantedBug::kAddInOrderOfArrival: return "add-in-order-of-arrival";
    case PlantedBug::kStaleValues: return "stale-values";
    case PlantedBug::kSkipExamples: return "skip-examples";
    case PlantedBug::kLoseJobsOnRestart: return "lose-jobs-on-restart";
    case PlantedBug::kGoOnAlone: return "go-on-alone";
    case PlantedBug::kBelieveUnconfirmed: return "believe-unconfirmed";
    case PlantedBug::kNoSync: return "no-sync";
    case PlantedBug::kNoRetry: return "no-retry";
    case PlantedBug::kLeakRequests: return "leak-requests";
  }
  return "?";
}

SimCluster::SimCluster(const Options& options)
    : options_(options), world_(options.seed, options.trace, options.checker), network_(world_), plan_(FaultPlan::Random(world_.rng)) {
  Rng& rng = world_.rng;
  const int ps = static_cast<int>(rng.Between(1, 4)), workers = static_cast<int>(rng.Between(1, 4));
  auto checked = CheckJob(RandomJob(rng, ps));
  CAIRN_CHECK(checked.ok(), checked.status().ToString());
  facts_.spec = checked->spec;
  graph_ = std::make_shared<const Graph>(checked->graph);
  facts_.synchronous = IsSynchronous(facts_.spec);
  const int64_t examples = facts_.spec.batch_size() + rng.Between(0, 11 * facts_.spec.batch_size());
  facts_.plan = StepPlan::Of(facts_.spec, examples);
  facts_.ranges = CutPartitions(graph_->space_size(), facts_.spec.partition_bytes());
  reference_ = std::make_unique<Reference>(facts_.spec, *graph_, facts_.plan);
  facts_.reference = reference_.get();
  checked_ = std::make_shared<const CheckedJob>(*std::move(checked));
  checkers_ = std::make_unique<Checkers>(world_, facts_, kPatience);

  if (rng.Chance(0.6)) {
    network_.faults.broken = 0.0005 * static_cast<double>(rng.Between(0, 20));
    network_.faults.repeated = 0.01 * static_cast<double>(rng.Between(0, 10));
  }
  network_.faults.delay_max = absl::Milliseconds(rng.Between(1, 30));
  power_losses_ = facts_.spec.fsync() && LogsBeforeReply(facts_.spec.durability());

  const int coordinators = rng.Chance(0.4) ? static_cast<int>(rng.Between(2, 3)) : 1;
  if (coordinators > 1) etcd_ = std::make_unique<Etcd>();
  for (int i = 0; i < coordinators; ++i) coordinators_.push_back(std::make_unique<SimCoordinator>(*this, i, etcd_.get()));
  for (int i = 0; i < ps; ++i) ps_.push_back(std::make_unique<SimPs>(*this, i, power_losses_));
  for (int i = 0; i < workers; ++i) workers_.push_back(std::make_unique<SimWorker>(*this, i, static_cast<int>(rng.Between(1, 3))));

  const double drift = rng.Chance(0.5) ? 0 : rng.Chance(0.8) ? 0.001 : 0.1;
  for (Host* host : Hosts()) {
    host->clock_rate = 1 + drift * static_cast<double>(rng.Between(-100, 100)) / 100;
    host->clock_offset = drift > 0 ? rng.Between(-absl::Hours(1), absl::Hours(1)) : absl::ZeroDuration();
    if (rng.Chance(0.1)) host->cpu = 5;
    if (rng.Chance(0.05)) host->network_delay = absl::Milliseconds(rng.Between(1, 60));
  }
}

SimCluster::~SimCluster() = default;

std::vector<SimNode*> SimCluster::Nodes() {
  std::vector<SimNode*> nodes;
  for (auto& p : ps_) nodes.push_back(p.get());
  for (auto& w : workers_) nodes.push_back(w.get());
  return nodes;
}

std::vector<Host*> SimCluster::Hosts() {
  std::vector<Host*> hosts;
  for (SimNode* node : Nodes()) hosts.push_back(&node->host());
  for (auto& c : coordinators_) hosts.push_back(&c->host());
  return hosts;
}

SimCoordinator* SimCluster::CoordinatorOn(const Host& host) {
  for (auto& c : coordinators_) {
    if (&c->host() == &host) return c.get();
  }
  return nullptr;
}

SimPs* SimCluster::FindPs(const std::string& address) {
  for (auto& ps : ps_) {
    if (ps->up() && ps->address() == address) return ps.get();
  }
  return nullptr;
}

SimCoordinator* SimCluster::Leader() {
  for (auto& c : coordinators_) {
    if (c->leads()) return c.get();
  }
  return nullptr;
}

// ---- the user ----

// With a request key: again and again until there is an answer.
void SimCluster::SubmitUntilAccepted() {
  if (job_id_ != 0) return;
  if (SimCoordinator* leader = Leader()) leader->Call(SubmitJob{ReplyToken(++last_reply_), checked_, "key"});
  world_.After(absl::Milliseconds(300), [this] { SubmitUntilAccepted(); });
}

void SimCluster::OnReply(const Reply& reply) {
  if (const auto* submitted = std::get_if<v1::SubmitResponse>(&reply.body); submitted != nullptr && reply.status.ok()) {
    job_id_ = submitted->job().job_id();
  } else if (!reply.status.ok() && !absl::IsUnavailable(reply.status) && job_id_ == 0) {
    world_.Fail("the job was refused: " + reply.status.ToString());
  }
}

void SimCluster::OnJobChanged(const v1::JobStatus& status) {
  if (status.job_id() == job_id_ && IsFinal(status.state())) final_ = status;
}

void SimCluster::Updated(uint32_t partition, uint64_t version) {
  if (std::exchange(versions_[partition], version) != version) checkers_->progress.Reached(++updates_);
}

// Whether the coordinator may have taken the host for dead lately.
bool SimCluster::Troubled(const Host& host) const { return world_.now() - host.last_trouble < absl::Seconds(15); }

void SimCluster::OnServes(const SimPs& ps, uint32_t partition, uint64_t generation, bool rolled_back) {
  Copy copy = ps.CopyOf(partition);
  copy.generation = generation;
  // Where the log is not waited for, the end of all copies in memory may cost updates; but not while one lives that has everything.
  bool may_lose = !LogsBeforeReply(facts_.spec.durability());
  const bool lacks = checkers_->acknowledged.Lacks(copy) || checkers_->history.Behind(copy);
  if (lacks && may_lose && !rolled_back && facts_.spec.durability() == v1::REPLICATED) {
    for (const auto& other : ps_) {
      auto core = other->cores().find(partition);
      if (other.get() == &ps || core == other->cores().end() || Troubled(other->host())) continue;
      const Copy living = other->CopyOf(partition);
      if (!checkers_->acknowledged.Lacks(living) && !checkers_->history.Behind(living)) may_lose = false;
    }
  }
  if (lacks && may_lose) checkers_->history.Forgive(partition, copy.state.version, generation);
  checkers_->acknowledged.Serves(copy, may_lose);
}

// As `cairn watch`: asks whoever leads.
void SimCluster::Watch() {
  if (SimCoordinator* leader = Leader(); leader != nullptr && job_id_ != 0) {
    if (const auto status = leader->core()->GetJob(JobId(job_id_), world_.ClockOf(leader->host())); status.ok()) OnJobChanged(*status);
  }
  world_.After(absl::Seconds(1), [this] { Watch(); });
}

// ---- faults ----

void SimCluster::PlanFaults() {
  Rng& rng = world_.rng;
  for (int i = 0; i < plan_.count; ++i) {
    world_.After(rng.Between(absl::Milliseconds(200), plan_.horizon), [this] {
      if (OneFault(world_.rng.Pick(plan_.kinds))) ++faults_;
    });
  }
  faults_end_ = world_.now() + plan_.horizon + absl::Seconds(8);
  world_.At(faults_end_, [this] { StopFaults(); });
}

// As a user who wants the job to get on.
void SimCluster::Undrain() {
  if (final_) return;
  SimCoordinator* leader = Leader();
  if (leader == nullptr) return world_.After(absl::Milliseconds(500), [this] { Undrain(); });
  v1::DrainNodeRequest request;
  request.set_undo(true);
  for (const auto& ps : ps_) {
    request.set_name(ps->name());
    leader->Call(DrainNode{ReplyToken(++last_reply_), request});
  }
}

// From now on everything is up and the network is kind.
void SimCluster::StopFaults() {
  world_.Trace("the faults stop");
  network_.faults.broken = 0;
  network_.faults.repeated = 0;
  network_.HealAll();
  Undrain();
  for (auto& ps : ps_) {
    if (ps.get() != gone_) ps->Start();
  }
  for (auto& c : coordinators_) c->Start();
  bool any = false;
  for (auto& worker : workers_) any = any || worker->up();
  if (!any) workers_[0]->Start();
  checkers_->progress.FaultsStopped();
}

void SimCluster::CutBetween(Host& a, Host& b, bool both, absl::Duration away) {
  a.last_trouble = b.last_trouble = world_.now() + away;
  network_.Cut(a, b);
  if (both) network_.Cut(b, a);
  world_.After(away, [this, &a, &b] {
    network_.Heal(a, b);
    network_.Heal(b, a);
  });
}

// Another copy of everything that it has is in sync, as the coordinator has stored, and nothing else is amiss: no promise covers more.
bool SimCluster::MayGo(const SimPs& ps) {
  for (Host* host : Hosts()) {
    if (Troubled(*host)) return false;
  }
  if (drains_ > 0) return false;  // a wish takes copies away, and hands partitions to a ps that may be the one
  for (const auto& other : ps_) {
    if (!other->up() || (other->host().process > 1 && world_.now() - other->host().started < absl::Seconds(5))) return false;
  }
  SimCoordinator* leader = Leader();
  if (leader == nullptr || job_id_ == 0 || !LogsBeforeReply(facts_.spec.durability())) return false;
  const auto status = leader->core()->GetJob(JobId(job_id_), world_.ClockOf(leader->host()));
  if (!status.ok() || status->partitions_size() == 0) return false;
  for (const v1::PartitionPlacement& p : status->partitions()) {
    bool elsewhere = p.primary() != ps.name();
    for (const v1::BackupPlacement& b : p.backups()) elsewhere = elsewhere || (b.in_sync() && b.node() != ps.name());
    if (!elsewhere) return false;
  }
  return true;
}

bool SimCluster::OneFault(Fault fault) {
  if (world_.now() < quiet_until_) return false;
  Rng& rng = world_.rng;
  const absl::Duration away = rng.Between(absl::Milliseconds(10), absl::Milliseconds(rng.Chance(0.5) ? 300 : 7000));
  const auto again = [this, away](SimNode* node) {
    world_.After(away, [this, node] {
      if (node != gone_) node->Start();
    });
  };
  switch (fault) {
    case Fault::kWorkerKilled: {
      SimWorker* worker = rng.Pick(workers_).get();
      if (!worker->up()) return false;
      worker->End();
      if (rng.Chance(0.7)) again(worker);
      return true;
    }
    case Fault::kPsKilled:
    case Fault::kPsPowerLoss: {
      SimPs* ps = rng.Pick(ps_).get();
      if (!ps->up() || (fault == Fault::kPsPowerLoss && !power_losses_)) return false;
      ps->End();
      if (fault == Fault::kPsPowerLoss) world_.Trace("%s loses its power and %d writes", ps->name(), ps->disk().PowerLoss(rng));
      again(ps);
      return true;
    }
    case Fault::kCoordinatorKilled: {
      SimCoordinator* c = rng.Pick(coordinators_).get();
      if (!c->up()) return false;
      c->End(rng.Chance(0.3));
      world_.After(away, [c] { c->Start(); });
      return true;
    }
    case Fault::kSessionBroken: {
      const std::vector<SimNode*> nodes = Nodes();
      SimNode* node = rng.Pick(nodes);
      node->host().last_trouble = world_.now();
      node->BreakSession();
      return true;
    }
    case Fault::kStreamsBroken:
      rng.Pick(workers_)->BreakStreams();
      return true;
    case Fault::kCut:
    case Fault::kCutOneWay: {
      std::vector<Host*> hosts = Hosts();
      if (etcd_ != nullptr) hosts.push_back(&etcd_->host);
      Host *a = rng.Pick(hosts), *b = rng.Pick(hosts);
      if (a == b) return false;
      CutBetween(*a, *b, fault == Fault::kCut, away);
      return true;
    }
    case Fault::kIsolated: {
      std::vector<Host*> hosts = Hosts();
      if (etcd_ != nullptr) hosts.push_back(&etcd_->host);
      Host* one = rng.Pick(hosts);
      const int64_t how = rng.Between(0, 2);
      for (Host* other : hosts) {
        if (other == one) continue;
        if (how == 0) CutBetween(*one, *other, true, away);
        if (how == 1) CutBetween(*one, *other, false, away);
        if (how == 2) CutBetween(*other, *one, false, away);
      }
      return true;
    }
    case Fault::kStandstill: {
      std::vector<Host*> hosts = Hosts();
      Host* host = rng.Pick(hosts);
      if (!host->up) return false;
      host->last_trouble = world_.now() + away;
      network_.StandStill(*host, world_.now() + away);
      return true;
    }
    case Fault::kClockJump: {
      // The daemons' clock is the steady one: it stops for nothing and leaps only ahead (a machine that slept).
      std::vector<Host*> hosts = Hosts();
      Host* host = rng.Pick(hosts);
      const absl::Duration leap = rng.Between(absl::Milliseconds(1), absl::Seconds(20));
      world_.Trace("the clock of %s leaps by %.3f s", host->name, absl::ToDoubleSeconds(leap));
      host->last_trouble = world_.now();
      host->clock_offset += leap;
      return true;
    }
    case Fault::kDrain: {
      SimCoordinator* leader = Leader();
      if (leader == nullptr) return false;
      ++drains_;
      v1::DrainNodeRequest request;
      request.set_name(rng.Pick(ps_)->name());
      world_.Trace("a user drains %s", request.name());
      leader->Call(DrainNode{ReplyToken(++last_reply_), request});
      if (rng.Chance(0.5)) {
        request.set_undo(true);
        world_.After(away, [this, request] {
          if (SimCoordinator* later = Leader()) later->Call(DrainNode{ReplyToken(++last_reply_), request});
        });
      }
      return true;
    }
    case Fault::kPsGone: {
      SimPs* ps = rng.Pick(ps_).get();
      if (gone_ != nullptr || !ps->up() || !MayGo(*ps)) return false;
      world_.Trace("%s dies for good", ps->name());
      gone_ = ps;
      quiet_until_ = world_.now() + absl::Seconds(10);
      ps->End();
      return true;
    }
    case Fault::kCount:
      return false;
  }
  return false;
}

// ---- the run ----

std::string SimCluster::Where() {
  SimCoordinator* leader = Leader();
  if (leader == nullptr) return "no coordinator leads";
  if (job_id_ == 0) return "the job was never accepted";
  const auto status = leader->core()->GetJob(JobId(job_id_), world_.ClockOf(leader->host()));
  if (!status.ok()) return status.status().ToString();
  return absl::StrFormat("%s at step %d of %d, generation %d: %s", v1::JobState_Name(status->state()), status->step(),
                         facts_.plan.total_steps, status->generation(), status->reason());
}

bool SimCluster::Done() { return final_.has_value() || checkers_->progress.Stalled(); }

void SimCluster::CheckEnd() {
  if (world_.failed()) return;
  if (!final_) {
    return world_.Fail(absl::StrFormat("progress: no step for %.0f s after the faults had stopped: %s",
                                       absl::ToDoubleSeconds(checkers_->progress.patience()), Where()));
  }
  // Where the log is not waited for, the end of all copies of a partition may leave nothing that fits together; then the job says so.
  if (final_->state() == v1::FAILED && !LogsBeforeReply(facts_.spec.durability()) &&
      final_->reason().find("can take them back to no common one") != std::string::npos) {
    return;
  }
  if (final_->state() != v1::SUCCEEDED) return world_.Fail(v1::JobState_Name(final_->state()) + ": " + final_->reason());
  checkers_->epoch.Reported(*final_);
  // A ps that is down holds the rest; the digest has seen all of them.
  for (const v1::PartitionPlacement& placement : final_->partitions()) {
    for (auto& ps : ps_) {
      if (ps->name() != placement.primary()) continue;
      auto core = ps->cores().find(placement.partition());
      if (core == ps->cores().end()) continue;
      const Copy copy{ps->name(), placement.partition(), core->second->generation().value, core->second->state()};
      checkers_->exactly_once.AtEnd(copy);
      checkers_->reference.Changed(copy);
      checkers_->acknowledged.AtEnd(copy);
      checkers_->epoch.AtEnd(copy);
    }
  }
}

Result SimCluster::Run() {
  for (auto& c : coordinators_) {
    world_.After(world_.rng.Between(absl::ZeroDuration(), absl::Milliseconds(20)), [&c] { c->Start(); });
  }
  for (auto& ps : ps_) {
    world_.After(world_.rng.Between(absl::ZeroDuration(), absl::Milliseconds(20)), [&ps] { ps->Start(); });
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    const bool late = i > 0 && world_.rng.Chance(0.3);
    world_.After(world_.rng.Between(absl::ZeroDuration(), late ? absl::Seconds(4) : absl::Milliseconds(20)),
                 [worker = workers_[i].get()] { worker->Start(); });
  }
  world_.After(absl::Milliseconds(100), [this] { SubmitUntilAccepted(); });
  Watch();
  PlanFaults();
  world_.RunUntil(faults_end_ + kTimeAfterFaults, [this] { return Done(); });
  CheckEnd();

  Result result;
  result.violation = world_.violation();
  result.events = world_.events();
  result.virtual_seconds = world_.seconds();
  result.longest_wait_seconds = absl::ToDoubleSeconds(checkers_->progress.longest());
  result.faults = faults_;
  result.summary = absl::StrFormat(
      "%s%s R=%d batch=%d steps=%d partitions=%d %s%s backups=%d, %d ps, %d workers, %d coordinators, %d faults of: %s",
      v1::Strategy_Name(facts_.spec.strategy()),
      facts_.spec.has_staleness_bound() ? absl::StrFormat(" s=%d", facts_.spec.staleness_bound()) : "", facts_.spec.replicas(),
      facts_.spec.batch_size(), facts_.plan.total_steps, facts_.ranges.size(), v1::Durability_Name(facts_.spec.durability()),
      facts_.spec.fsync() ? " fsync" : "", facts_.spec.backups(), ps_.size(), workers_.size(), coordinators_.size(), faults_, plan_.Text());
  return result;
}

Result Simulate(const Options& options) {
  SimCluster cluster(options);
  return cluster.Run();
}

}  // namespace cairn::sim
