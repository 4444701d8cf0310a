#include "tests/sim/sim_cluster.h"

#include <cmath>

#include "common/base/check.h"
#include "common/model/job_check.h"

namespace cairn::sim {
namespace {

constexpr absl::Duration kFaultsFrom = absl::Milliseconds(200);
constexpr absl::Duration kTimeAfterFaults = absl::Seconds(120);  // for the job to end; far more than it needs

// What a coordinator finds in its store when it starts.
StoredState Load(KvStore& store, World& world) {
  StoredState state;
  auto parse = [&world](std::string_view value, google::protobuf::MessageLite* message) {
    if (!message->ParseFromArray(value.data(), static_cast<int>(value.size()))) world.Fail("a stored message does not parse");
  };
  if (auto cluster = store.Get(kClusterKey); cluster.ok() && *cluster) parse(**cluster, &state.cluster);
  const absl::Status scanned = store.Scan(kJobKeyPrefix, [&](std::string_view, std::string_view value) {
    parse(value, &state.jobs.emplace_back());
    return true;
  });
  if (!scanned.ok()) world.Fail(scanned.ToString());
  return state;
}

}  // namespace

const char* Name(PlantedBug bug) {
  switch (bug) {
    case PlantedBug::kNone: return "none";
    case PlantedBug::kReplyBeforePersist: return "reply-before-persist";
    case PlantedBug::kForgetSequences: return "forget-sequences";
    case PlantedBug::kAddInOrderOfArrival: return "add-in-order-of-arrival";
    case PlantedBug::kStaleValues: return "stale-values";
    case PlantedBug::kSkipExamples: return "skip-examples";
    case PlantedBug::kLoseJobsOnRestart: return "lose-jobs-on-restart";
  }
  return "?";
}

SimCluster::SimCluster(const Options& options)
    : options_(options), world_(options.seed, options.trace), coordinator_store_(NewMemoryKvStore()) {
  Rng& rng = world_.rng;
  auto checked = CheckJob(RandomJob(rng));
  CAIRN_CHECK(checked.ok(), checked.status().ToString());
  spec_ = checked->spec;
  graph_ = checked->graph;
  train_examples_ = spec_.batch_size() + rng.Between(0, 5 * spec_.batch_size());
  plan_ = StepPlan::Make(train_examples_, spec_.batch_size(), spec_.replicas(), 0, spec_.epochs());
  checked_ = std::make_shared<const CheckedJob>(*std::move(checked));
  oracle_ = std::make_unique<UpdateOracle>(world_, spec_, plan_);

  if (rng.Chance(0.7)) {
    world_.network.lost = 0.0005 * rng.Between(0, 20);
    world_.network.repeated = 0.01 * rng.Between(0, 10);
  }
  world_.network.delay_max = absl::Milliseconds(rng.Between(1, 30));
  const int64_t ps = rng.Between(1, 3), workers = rng.Between(1, 4);
  for (int i = 0; i < ps; ++i) ps_.push_back(std::make_unique<SimPs>(*this, i));
  for (int i = 0; i < workers; ++i) {
    const int slots = static_cast<int>(rng.Between(1, 3));
    workers_.push_back(std::make_unique<SimWorker>(*this, i, slots, rng.Chance(0.2) ? 5 : 1));
  }
  for (auto& p : ps_) nodes_[p->name()].ps = p.get();
  for (auto& w : workers_) nodes_[w->name()].worker = w.get();
}

// ---- sessions ----

void SimCluster::JoinCluster(const std::string& node, uint64_t process) {
  nodes_[node].up = true;
  nodes_[node].process = process;
  Connect(node, process, world_.NetworkDelay());
}

void SimCluster::Connect(const std::string& node, uint64_t process, absl::Duration delay) {
  world_.After(delay, [this, node, process] {
    Node& n = nodes_[node];
    if (!n.up || n.process != process) return;
    if (coordinator_ == nullptr) return Connect(node, process, world_.rng.Between(absl::Milliseconds(50), absl::Seconds(1)));
    auto session = std::make_shared<Session>();
    session->token = SessionToken(++next_token_);
    session->to_node = [this, node, process](const v1::CoordinatorMessage& message) {
      Node& to = nodes_[node];
      if (!to.up || to.process != process) return;
      if (message.has_welcome()) return Heartbeats(node, process);
      if (to.ps != nullptr) to.ps->OnCommand(message);
      if (to.worker != nullptr) to.worker->OnCommand(message);
    };
    session->node_closed = [this, node, process] {
      Connect(node, process, world_.rng.Between(absl::Milliseconds(50), absl::Milliseconds(500)));
    };
    n.session = session;
    sessions_[session->token.value] = session;
    session_nodes_[session->token.value] = node;
    v1::Hello hello = n.ps != nullptr ? n.ps->Hello() : n.worker->Hello();
    session->up_busy_until = world_.now() + world_.NetworkDelay();
    world_.At(session->up_busy_until, [this, session, hello = std::move(hello)] {
      if (session->open && coordinator_ != nullptr) Step(NodeUp{session->token, hello});
    });
  });
}

void SimCluster::NodeSays(const std::string& node, v1::NodeMessage message) {
  std::shared_ptr<Session> session = nodes_[node].session;
  if (session == nullptr || !session->open) return;
  session->up_busy_until = std::max(session->up_busy_until, world_.now() + world_.NetworkDelay());
  world_.At(session->up_busy_until, [this, session, message = std::move(message)] {
    if (session->open && coordinator_ != nullptr) Step(cairn::NodeSays{session->token, message});
  });
}

void SimCluster::NodeDown(const std::string& name) {
  Node& node = nodes_[name];
  if (!node.up) return;
  ++crashes_;
  node.up = false;
  if (node.ps != nullptr) {
    for (auto& worker : workers_) {
      if (worker->up()) worker->BreakStreams(node.ps);
    }
    node.ps->Crash();
  } else {
    node.worker->Crash();
  }
  if (node.session != nullptr) Break(node.session);
  node.session = nullptr;
}

// Both ends learn of it after a while, each by itself.
void SimCluster::Break(const std::shared_ptr<Session>& session) {
  if (!session->open) return;
  session->open = false;
  world_.After(world_.NetworkDelay(), session->node_closed);
  sessions_.erase(session->token.value);
  world_.After(world_.NetworkDelay(), [this, session, process = coordinator_process_] {
    if (coordinator_ != nullptr && coordinator_process_ == process) Step(SessionClosed{session->token});
  });
}

void SimCluster::Heartbeats(const std::string& name, uint64_t process) {
  Node& node = nodes_[name];
  std::shared_ptr<Session> session = node.session;
  if (!node.up || node.process != process || session == nullptr || !session->open) return;
  v1::NodeMessage message;
  *message.mutable_heartbeat() = node.worker != nullptr ? node.worker->Heartbeat() : v1::Heartbeat();
  NodeSays(name, std::move(message));
  world_.After(absl::Milliseconds(500), [this, name, process, session] {
    if (nodes_[name].session == session) Heartbeats(name, process);
  });
}

// ---- coordinator ----

void SimCluster::StartCoordinator() {
  world_.Trace("the coordinator starts");
  ++coordinator_process_;
  StoredState stored = Load(*coordinator_store_, world_);
  if (options_.bug == PlantedBug::kLoseJobsOnRestart && coordinator_process_ > 1) stored.jobs.clear();
  coordinator_ = std::make_unique<ClusterCore>(CoordinatorOptions{}, coordinator_process_, stored, world_.now());
  Ticks(coordinator_process_);
}

void SimCluster::CrashCoordinator() {
  world_.Trace("the coordinator is killed");
  ++crashes_;
  coordinator_.reset();
  for (auto& [token, session] : sessions_) {
    session->open = false;
    world_.After(world_.NetworkDelay(), session->node_closed);
  }
  sessions_.clear();
}

void SimCluster::Ticks(uint64_t process) {
  if (coordinator_ == nullptr || coordinator_process_ != process) return;
  Step(Tick{});
  world_.After(absl::Milliseconds(100), [this, process] { Ticks(process); });
}

void SimCluster::Step(Event event) {
  Effects effects = coordinator_->Step(event, world_.now());
  for (Effect& effect : effects) Carry(effect);
}

void SimCluster::Carry(Effect& effect) {
  if (auto* store = std::get_if<Store>(&effect)) {
    KvBatch batch;
    if (store->value) {
      batch.Put(store->key, *store->value);
    } else {
      batch.Delete(store->key);
    }
    if (auto s = coordinator_store_->Write(batch, true); !s.ok()) world_.Fail(s.ToString());
  } else if (auto* send = std::get_if<SendCommand>(&effect)) {
    auto found = sessions_.find(send->session.value);
    if (found == sessions_.end() || !found->second->open) return;
    std::shared_ptr<Session> session = found->second;
    session->down_busy_until = std::max(session->down_busy_until, world_.now() + world_.NetworkDelay());
    world_.At(session->down_busy_until, [session, message = send->message] {
      if (session->open) session->to_node(message);
    });
  } else if (auto* reply = std::get_if<Reply>(&effect)) {
    if (auto* submitted = std::get_if<v1::SubmitResponse>(&reply->body); submitted != nullptr && reply->status.ok()) {
      job_id_ = submitted->job().job_id();
    } else if (!reply->status.ok() && !absl::IsUnavailable(reply->status)) {
      world_.Fail("the job was refused: " + reply->status.ToString());
    }
  } else if (auto* close = std::get_if<CloseSession>(&effect)) {
    world_.Trace("the coordinator closes a session: %s", close->reason.ToString());
    if (auto found = sessions_.find(close->session.value); found != sessions_.end()) Break(found->second);
  } else if (auto* line = std::get_if<LogLine>(&effect)) {
    world_.Trace("coordinator: %s", line->text);
  } else if (auto* changed = std::get_if<JobChanged>(&effect)) {
    if (changed->job.value != job_id_) return;
    const auto status = coordinator_->GetJob(changed->job, world_.now());
    if (!status.ok()) return;
    if (status->state() == v1::SUCCEEDED || status->state() == v1::FAILED || status->state() == v1::CANCELLED) {
      final_state_ = status->state();
      final_reason_ = status->reason();
    }
  }
}

// As a user with a request key: again and again until there is an answer.
void SimCluster::SubmitUntilAccepted() {
  if (job_id_ != 0) return;
  if (coordinator_ != nullptr) Step(SubmitJob{ReplyToken(++next_token_), checked_, "key"});
  world_.After(absl::Milliseconds(300), [this] { SubmitUntilAccepted(); });
}

// ---- data plane ----

SimPs* SimCluster::FindPs(const std::string& address) {
  for (auto& ps : ps_) {
    if (ps->up() && ps->address() == address) return ps.get();
  }
  return nullptr;
}

std::shared_ptr<Exchange> SimCluster::OpenExchange(SimWorker* worker, SimPs* ps) {
  auto stream = std::make_shared<Exchange>();
  stream->token = ++next_token_;
  stream->worker = worker;
  stream->ps = ps;
  return stream;
}

bool SimCluster::Finished() const {
  const uint64_t updates = plan_.total_steps * (IsSynchronous(spec_) ? 1 : spec_.replicas());
  size_t partitions = 0;
  for (const auto& ps : ps_) {
    if (!ps->up()) return false;
    for (const auto& [id, core] : ps->cores()) {
      if (core->version() != updates) return false;
      ++partitions;
    }
  }
  return partitions == CutPartitions(graph_.space_size(), spec_.partition_bytes()).size();
}

// ---- faults ----

void SimCluster::PlanFaults() {
  Rng& rng = world_.rng;
  const int64_t faults = rng.Between(0, 12);
  const absl::Duration horizon = absl::Seconds(rng.Between(1, 8));
  for (int64_t i = 0; i < faults; ++i) {
    world_.After(rng.Between(kFaultsFrom, horizon), [this] { OneFault(); });
  }
  faults_end_ = world_.now() + horizon + absl::Seconds(6);
  // From then on everything is up and the network is kind.
  world_.At(faults_end_, [this] {
    world_.network.lost = 0;
    world_.network.repeated = 0;
    for (auto& ps : ps_) {
      if (!ps->up()) ps->Start();
    }
    if (coordinator_ == nullptr) StartCoordinator();
    bool any = false;
    for (auto& worker : workers_) any = any || worker->up();
    if (!any) workers_[0]->Start();
  });
}

void SimCluster::OneFault() {
  Rng& rng = world_.rng;
  const absl::Duration away = rng.Between(absl::Milliseconds(10), absl::Milliseconds(rng.Chance(0.5) ? 300 : 5000));
  switch (rng.Between(0, 6)) {
    case 0:
    case 1: {  // a worker dies; often it comes back, as a new process
      SimWorker* worker = workers_[rng.Between(0, workers_.size() - 1)].get();
      if (!worker->up()) return;
      NodeDown(worker->name());
      if (rng.Chance(0.7)) {
        world_.After(away, [worker] {
          if (!worker->up()) worker->Start();
        });
      }
      return;
    }
    case 2:
    case 3: {  // a ps dies and is started again on its store
      SimPs* ps = ps_[rng.Between(0, ps_.size() - 1)].get();
      if (!ps->up()) return;
      NodeDown(ps->name());
      world_.After(away, [ps] {
        if (!ps->up()) ps->Start();
      });
      return;
    }
    case 4:
      if (coordinator_ == nullptr) return;
      CrashCoordinator();
      world_.After(away, [this] {
        if (coordinator_ == nullptr) StartCoordinator();
      });
      return;
    case 5: {  // a session breaks, both processes live on
      auto node = nodes_.begin();
      std::advance(node, rng.Between(0, nodes_.size() - 1));
      world_.Trace("the session of %s breaks", node->first);
      if (node->second.session != nullptr) Break(node->second.session);
      return;
    }
    default: {  // the streams between a worker and the ps break
      SimWorker* worker = workers_[rng.Between(0, workers_.size() - 1)].get();
      world_.Trace("the streams of %s break", worker->name());
      if (worker->up()) worker->BreakStreams(nullptr);
    }
  }
}

// ---- the run ----

void SimCluster::CheckEnd() {
  if (world_.failed()) return;
  if (!final_state_) {
    std::string where = "the coordinator is away";
    if (coordinator_ != nullptr && job_id_ != 0) {
      const auto status = coordinator_->GetJob(JobId(job_id_), world_.now());
      where = status.ok() ? absl::StrFormat("%s at step %d of %d: %s", v1::JobState_Name(status->state()), status->step(),
                                            plan_.total_steps, status->reason())
                          : status.status().ToString();
    }
    return world_.Fail("the job did not end after the faults had stopped: " + where);
  }
  if (*final_state_ != v1::SUCCEEDED) return world_.Fail(v1::JobState_Name(*final_state_) + ": " + final_reason_);
  const auto ranges = CutPartitions(graph_.space_size(), spec_.partition_bytes());
  oracle_->Finish(ranges.size());
  const std::vector<float> expected = ExpectedValues(spec_, graph_, plan_);
  size_t found = 0;
  for (const auto& ps : ps_) {
    for (const auto& [id, core] : ps->cores()) {
      CheckValues(world_, expected, ranges[id], core->state());
      ++found;
    }
  }
  // A ps that is down at the end holds the rest; Finalize has seen all of them.
  if (found > ranges.size()) world_.Fail("a partition is served twice");
}

Result SimCluster::Run() {
  StartCoordinator();
  for (auto& ps : ps_) {
    world_.After(world_.rng.Between(absl::ZeroDuration(), absl::Milliseconds(20)), [&ps] { ps->Start(); });
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    const bool late = i > 0 && world_.rng.Chance(0.3);
    world_.After(world_.rng.Between(absl::ZeroDuration(), late ? absl::Seconds(4) : absl::Milliseconds(20)),
                 [worker = workers_[i].get()] {
                   if (!worker->up()) worker->Start();
                 });
  }
  world_.After(absl::Milliseconds(100), [this] { SubmitUntilAccepted(); });
  PlanFaults();
  world_.RunUntil(faults_end_ + kTimeAfterFaults, [this] { return final_state_.has_value(); });
  CheckEnd();

  Result result;
  result.violation = world_.violation();
  result.events = world_.events();
  result.virtual_seconds = world_.seconds();
  result.crashes = crashes_;
  result.summary = absl::StrFormat(
      "%s%s R=%d batch=%d steps=%d partitions=%d, %d ps, %d workers, %d crashes", v1::Strategy_Name(spec_.strategy()),
      spec_.has_staleness_bound() ? absl::StrFormat(" s=%d", spec_.staleness_bound()) : "", spec_.replicas(), spec_.batch_size(),
      plan_.total_steps, CutPartitions(graph_.space_size(), spec_.partition_bytes()).size(), ps_.size(), workers_.size(), crashes_);
  return result;
}

Result Simulate(const Options& options) {
  SimCluster cluster(options);
  return cluster.Run();
}

}  // namespace cairn::sim
