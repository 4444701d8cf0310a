#include "tests/sim/sim_cluster.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/model/fault_check.h"
#include "common/model/job_check.h"
#include "common/model/partition_cut.h"
#include "common/model/state_text.h"
#include "common/model/strategy_check.h"

namespace cairn::sim {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);          // without a step, once the faults have stopped
constexpr absl::Duration kTimeAfterFaults = absl::Seconds(200);  // for the job to end; far more than it needs

}  // namespace

const std::vector<PlantedBug>& AllBugs() {
  static const auto* const all = new std::vector<PlantedBug>{PlantedBug::kReplyBeforePersist,
                                                             PlantedBug::kForgetSequences,
                                                             PlantedBug::kAddInOrderOfArrival,
                                                             PlantedBug::kStaleValues,
                                                             PlantedBug::kSkipExamples,
                                                             PlantedBug::kLoseJobsOnRestart,
                                                             PlantedBug::kGoOnAlone,
                                                             PlantedBug::kBelieveUnconfirmed,
                                                             PlantedBug::kNoSync,
                                                             PlantedBug::kNoRetry,
                                                             PlantedBug::kLeakRequests,
                                                             PlantedBug::kMixedCut,
                                                             PlantedBug::kForgetTables,
                                                             PlantedBug::kForgetSlots,
                                                             PlantedBug::kRemoveNewest,
                                                             PlantedBug::kDropTooMany,
                                                             PlantedBug::kIgnoreDiskErrors,
                                                             PlantedBug::kReportEarly,
                                                             PlantedBug::kForgetGate,
                                                             PlantedBug::kSaveNewest,
                                                             PlantedBug::kRestoreNewest,
                                                             PlantedBug::kHideFailure,
                                                             PlantedBug::kHalfGroup,
                                                             PlantedBug::kWrongFactor,
                                                             PlantedBug::kForgetScale,
                                                             PlantedBug::kSkipAlone,
                                                             PlantedBug::kStayAhead,
                                                             PlantedBug::kForgetDevice,
                                                             PlantedBug::kSayKept,
                                                             PlantedBug::kLoseFigures,
                                                             PlantedBug::kPersistLate,
                                                             PlantedBug::kLoseWakeup,
                                                             PlantedBug::kLoseTimer,
                                                             PlantedBug::kStoreLate,
                                                             PlantedBug::kMixStreams};
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
    case PlantedBug::kMixedCut: return "mixed-cut";
    case PlantedBug::kForgetTables: return "forget-tables";
    case PlantedBug::kForgetSlots: return "forget-slots";
    case PlantedBug::kRemoveNewest: return "remove-newest";
    case PlantedBug::kDropTooMany: return "drop-too-many";
    case PlantedBug::kIgnoreDiskErrors: return "ignore-disk-errors";
    case PlantedBug::kReportEarly: return "report-early";
    case PlantedBug::kForgetGate: return "forget-gate";
    case PlantedBug::kSaveNewest: return "save-newest";
    case PlantedBug::kRestoreNewest: return "restore-newest";
    case PlantedBug::kHideFailure: return "hide-failure";
    case PlantedBug::kHalfGroup: return "half-group";
    case PlantedBug::kWrongFactor: return "wrong-factor";
    case PlantedBug::kLoseFigures: return "lose-figures";
    case PlantedBug::kForgetScale: return "forget-scale";
    case PlantedBug::kSkipAlone: return "skip-alone";
    case PlantedBug::kStayAhead: return "stay-ahead";
    case PlantedBug::kForgetDevice: return "forget-device";
    case PlantedBug::kSayKept: return "say-kept";
    case PlantedBug::kPersistLate: return "persist-late";
    case PlantedBug::kLoseWakeup: return "lose-wakeup";
    case PlantedBug::kLoseTimer: return "lose-timer";
    case PlantedBug::kStoreLate: return "store-late";
    case PlantedBug::kMixStreams: return "mix-streams";
  }
  return "?";
}

SimCluster::SimCluster(const Options& options)
    : options_(options),
      world_(options.seed, options.trace, options.checker),
      network_(world_),
      plan_(FaultPlan::Random(world_.rng)) {
  Rng& rng = world_.rng;
  const int ps = static_cast<int>(rng.Between(1, 4)), workers = static_cast<int>(rng.Between(1, 4));
  ps_at_start_ = ps;
  v1::JobSpec spec = RandomJob(rng, ps);
  const DevicePlan devices = DevicePlan::Random(options.seed, workers, spec);
  SetJob(spec, spec.batch_size() + rng.Between(0, 11 * spec.batch_size()));
  checkers_ = std::make_unique<Checkers>(world_, facts_, kPatience);

  if (rng.Chance(0.6)) {
    network_.faults.broken = 0.0005 * static_cast<double>(rng.Between(0, 20));
    network_.faults.repeated = 0.01 * static_cast<double>(rng.Between(0, 10));
  }
  network_.faults.delay_max = absl::Milliseconds(rng.Between(1, 30));
  if (rng.Chance(0.5)) {
    thread_load_ = {0.01 * static_cast<double>(rng.Between(1, 10)), absl::Microseconds(50), absl::Milliseconds(5)};
  }
  power_losses_ = facts_.spec.fsync() && LogsBeforeReply(facts_.spec.durability());
  const int joining = plan_.Has(Fault::kPsJoins) ? static_cast<int>(rng.Between(1, 2)) : 0;

  const int coordinators = rng.Chance(0.4) ? static_cast<int>(rng.Between(2, 3)) : 1;
  if (coordinators > 1) etcd_ = std::make_unique<Etcd>();
  for (int i = 0; i < coordinators; ++i)
    coordinators_.push_back(std::make_unique<SimCoordinator>(*this, i, etcd_.get()));
  for (int i = 0; i < ps + joining; ++i) ps_.push_back(std::make_unique<SimPs>(*this, i, power_losses_));
  for (int i = 0; i < workers; ++i)
    workers_.push_back(std::make_unique<SimWorker>(*this, i, static_cast<int>(rng.Between(1, 3))));
  for (size_t i = 0; devices.mixed && i < workers_.size(); ++i) {
    workers_[i]->SetDevice(devices.kinds[i]);
    checkers_->devices.Know(workers_[i]->name(), devices.kinds[i]);
  }

  const double drift = rng.Chance(0.5) ? 0 : rng.Chance(0.8) ? 0.001 : 0.1;
  for (Host* host : Hosts()) {
    host->clock_rate = 1 + drift * static_cast<double>(rng.Between(-100, 100)) / 100;
    host->clock_offset = drift > 0 ? rng.Between(-absl::Hours(1), absl::Hours(1)) : absl::ZeroDuration();
    if (rng.Chance(0.1)) host->cpu = 5;
    if (rng.Chance(0.05)) host->network_delay = absl::Milliseconds(rng.Between(1, 60));
  }
}

SimCluster::~SimCluster() = default;

// Sets the job and its expected result. examples: of the training split.
void SimCluster::SetJob(const v1::JobSpec& spec, int64_t examples, const CheckpointContents* resumed) {
  auto checked = CheckJob(spec);
  CAIRN_CHECK(checked.ok(), checked.status().ToString());
  facts_.spec = checked->spec;
  if (graph_ == nullptr) graph_ = std::make_shared<const Graph>(checked->graph);
  facts_.synchronous = IsSynchronous(facts_.spec);
  facts_.plan = StepPlan::Make(examples, facts_.spec.batch_size(), facts_.spec.replicas(), 0, facts_.spec.epochs());
  facts_.group = LocalSyncOf(facts_.spec);
  facts_.end =
      EndOf(facts_.spec, facts_.plan, resumed == nullptr ? 0 : resumed->manifest.step / facts_.plan.steps_per_epoch);
  facts_.lacks_best = false;
  const int64_t partition_bytes =
      facts_.spec.partition_bytes() > 0 ? facts_.spec.partition_bytes() : facts_.partition_bytes;
  facts_.partition_bytes = partition_bytes;
  facts_.ranges = CutPartitions(*graph_, facts_.spec.optimizer(), partition_bytes);
  // With the same replicas throughout, the result is that of a job that was never interrupted.
  mixed_replicas_ =
      resumed != nullptr && (mixed_replicas_ || resumed->manifest.spec.replicas() != facts_.spec.replicas());
  reference_ =
      std::make_unique<Reference>(facts_.spec, *graph_, facts_.plan, mixed_replicas_ ? reference_.get() : nullptr,
                                  mixed_replicas_ ? resumed->manifest.step : 0);
  facts_.reference = reference_.get();
  if (facts_.spec.backup_replicas() > 0 && subsets_ == nullptr) {
    subsets_ = std::make_unique<SubsetReference>(facts_.spec, *graph_, facts_.plan, facts_.ranges);
  }
  facts_.subsets = subsets_.get();
  checked_ = std::make_shared<const CheckedJob>(*std::move(checked));
}

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

// Submits with a request key, again and again until there is an answer.
void SimCluster::SubmitUntilAccepted() {
  if (job_id_ != 0) return;
  if (SimCoordinator* leader = Leader()) {
    leader->Call(
        [this, key = absl::StrCat("key ", submissions_)](ReplyToken token) {
          return SubmitJob{token, checked_, key};
        },
        [this](const absl::Status& status, const ReplyBody& body) { OnSubmitted(status, body); });
  }
  world_.After(absl::Milliseconds(300), [this] { SubmitUntilAccepted(); });
}

void SimCluster::OnSubmitted(const absl::Status& status, const ReplyBody& body) {
  if (const auto* submitted = std::get_if<v1::SubmitResponse>(&body); submitted != nullptr && status.ok()) {
    job_id_ = submitted->job().job_id();
  } else if (!status.ok() && !absl::IsUnavailable(status) && job_id_ == 0) {
    world_.Fail("the job was refused: " + status.ToString());
  }
}

void SimCluster::OnJobChanged(const v1::JobStatus& status) {
  if (status.job_id() == job_id_ && IsFinal(status.state())) final_ = status;
  std::set<std::string> steady;
  const bool coordinators = std::none_of(coordinators_.begin(), coordinators_.end(),
                                         [&](auto& c) { return !c->up() || Troubled(c->host()); });
  for (const auto& worker : workers_) {
    const bool settled = worker->up() && worker->ConnectedFor(absl::Seconds(5)) && !Troubled(worker->host());
    if (coordinators && settled) steady.insert(worker->name());
  }
  checkers_->devices.Placed(status, steady);
}

void SimCluster::Updated(uint32_t partition, uint64_t version) {
  if (std::exchange(versions_[partition], version) != version) checkers_->progress.Reached(++updates_);
}

// Whether the coordinator may have believed the host dead lately.
bool SimCluster::Troubled(const Host& host) const { return world_.now() - host.last_trouble < absl::Seconds(15); }

void SimCluster::OnServes(const SimPs& ps, uint32_t partition, uint64_t generation, bool rolled_back) {
  // A late report: a copy that serves in a newer generation confirms nothing to it, so that it can answer nobody.
  if (generation < std::exchange(served_in_[partition], std::max(served_in_[partition], generation))) return;
  if (Starting()) return;  // it serves nobody before it is filled from a checkpoint, and that is looked at then
  Copy copy = ps.CopyOf(partition);
  copy.generation = generation;
  // If the log is not waited for, the loss of all copies in memory may lose updates; but not while one lives that has
  // everything.
  bool may_lose = !LogsBeforeReply(facts_.spec.durability()) || disks_lost_;
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

bool SimCluster::Starting() {
  const SimCoordinator* leader = Leader();
  if (leader == nullptr || job_id_ == 0) return job_id_ == 0;
  const auto status = Leader()->core()->GetJob(JobId(job_id_), world_.now());
  return status.ok() && (status->state() == v1::STARTING || status->state() == v1::QUEUED);
}

void SimCluster::NoteRestore(uint64_t generation, const CheckpointDirectory::Found& found) {
  restores_.insert_or_assign(generation, found);
}

// The partition now has the state of a checkpoint; what it had before is lost, as the loss of disks allows.
void SimCluster::OnRestored(const SimPs& ps, uint32_t partition, uint64_t generation) {
  const Copy copy = ps.CopyOf(partition);
  world_.Trace("%s: partition %d is restored: version %d", ps.name(), partition, copy.state.version);
  ++restored_;
  auto found = restores_.find(generation);
  if (found == restores_.end())
    return world_.Fail("checkpoint: a partition is restored in a generation that nobody restores");
  checkers_->checkpoint.Restored(copy, found->second.path, found->second.checkpoint->contents);
  const bool best =
      facts_.end.weights < facts_.end.steps && found->second.checkpoint->contents.manifest.step == facts_.end.weights;
  checkers_->acknowledged.Serves(copy, disks_lost_ || best || !LogsBeforeReply(facts_.spec.durability()));
  checkers_->history.Restored(partition, generation);
}

// As `cairn watch`: asks the leader.
void SimCluster::Watch() {
  if (SimCoordinator* leader = Leader(); leader != nullptr && job_id_ != 0) {
    if (const auto status = leader->core()->GetJob(JobId(job_id_), world_.ClockOf(leader->host())); status.ok()) {
      OnJobChanged(*status);
      RestartAsTold(status->reason());
    }
  }
  world_.After(absl::Seconds(1), [this] { Watch(); });
}

// A failed ps is left out until it is restarted; the job's reason tells the user which one.
void SimCluster::RestartAsTold(const std::string& reason) {
  const bool told = absl::StrContains(reason, "; restart") || absl::StrContains(reason, "start the ps");
  if (world_.now() < faults_end_ || !told) return;
  for (auto& ps : ps_) {
    if (!ps->up() || ps->host().started > faults_end_ ||
        !absl::StrContains(reason, absl::StrCat("\"", ps->name(), "\"")))
      continue;
    world_.Trace("the user starts %s anew", ps->name());
    ps->End();
    ps->Start();
  }
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

Result SimCluster::Run() {
  for (auto& c : coordinators_) {
    world_.After(world_.rng.Between(absl::ZeroDuration(), absl::Milliseconds(20)), [&c] { c->Start(); });
  }
  for (int i = 0; i < ps_at_start_; ++i) {
    world_.After(world_.rng.Between(absl::ZeroDuration(), absl::Milliseconds(20)),
                 [ps = ps_[i].get()] { ps->Start(); });
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
  if (final_) CheckAtRest();

  Result result;
  result.violation = world_.violation();
  result.events = world_.events();
  result.virtual_seconds = world_.seconds();
  result.longest_wait_seconds = absl::ToDoubleSeconds(checkers_->progress.longest());
  result.faults = faults_;
  const bool needs_more = options_.bug == PlantedBug::kGoOnAlone || options_.bug == PlantedBug::kSaveNewest ||
                          options_.bug == PlantedBug::kStoreLate;
  result.idle = needs_more && !planted_acted_;
  result.summary = absl::StrFormat(
      "%s%s R=%d%s%s%s batch=%d steps=%d partitions=%d %s%s backups=%d%s, %d ps, %d workers, %d coordinators, %d "
      "faults of: %s",
      v1::Strategy_Name(facts_.spec.strategy()),
      facts_.spec.has_staleness_bound() ? absl::StrFormat(" s=%d", facts_.spec.staleness_bound()) : "",
      facts_.spec.replicas(),
      facts_.spec.backup_replicas() > 0 ? absl::StrFormat("-%d", facts_.spec.backup_replicas()) : "",
      facts_.group > 1 ? absl::StrFormat(" in groups of %d", facts_.group) : "",
      facts_.spec.callbacks().empty() ? "" : absl::StrFormat(" callbacks=%d", facts_.spec.callbacks_size()),
      facts_.spec.batch_size(), facts_.plan.total_steps, facts_.ranges.size(),
      v1::Durability_Name(facts_.spec.durability()), facts_.spec.fsync() ? " fsync" : "", facts_.spec.backups(),
      facts_.spec.has_checkpoints() ? absl::StrFormat(" checkpoints (%d partitions restored)", restored_) : "",
      ps_.size(), workers_.size(), coordinators_.size(), faults_, plan_.Text());
  return result;
}

Result Simulate(const Options& options) {
  if (!options.trace) SilenceLog();
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);  // there is one thread
  SimCluster cluster(options);
  return cluster.Run();
}

}  // namespace cairn::sim
