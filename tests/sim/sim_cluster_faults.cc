// The faults of a run, and their end.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/model/fault_check.h"
#include "tests/sim/sim_cluster.h"

namespace cairn::sim {

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

// As a user who wants the job to continue.
void SimCluster::Undrain() {
  if (final_) return;
  SimCoordinator* leader = Leader();
  if (leader == nullptr) return world_.After(absl::Milliseconds(500), [this] { Undrain(); });
  v1::DrainNodeRequest request;
  request.set_undo(true);
  for (const auto& ps : ps_) {
    request.set_name(ps->name());
    Drain(*leader, request);
  }
}

// Or undoes a drain.
void SimCluster::Drain(SimCoordinator& coordinator, const v1::DrainNodeRequest& request) {
  coordinator.Call(
      [request](ReplyToken token) {
        return DrainNode{token, request};
      },
      [](const absl::Status&, const ReplyBody&) {});
}

// From now on all nodes are up and the network has no faults.
void SimCluster::StopFaults() {
  world_.Trace("the faults stop");
  network_.faults.broken = 0;
  network_.faults.repeated = 0;
  network_.HealAll();
  Undrain();
  directory_.SetFull(false);
  for (auto& ps : ps_) {
    ps->disk().SetFailing(false);
    if (ps.get() != gone_) ps->Start();
  }
  for (auto& c : coordinators_) c->Start();
  const auto fits = [&](auto& worker) { return !worker->device() || CanCompute(facts_.spec, *worker->device()); };
  const bool any =
      std::any_of(workers_.begin(), workers_.end(), [&](auto& worker) { return worker->up() && fits(worker); });
  if (!any) (*std::find_if(workers_.begin(), workers_.end(), fits))->Start();
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

// Whether another copy of everything that it holds is in sync, as the coordinator has stored, and nothing else is
// wrong: no promise covers more.
bool SimCluster::MayGo(const SimPs& ps) {
  for (Host* host : Hosts()) {
    if (Troubled(*host)) return false;
  }
  for (const auto& other : ps_) {
    if (other->host().process == 0) continue;  // not there yet
    if (!other->up() || other->disk().failing()) return false;
    if (other->host().process > 1 && world_.now() - other->host().started < absl::Seconds(5)) return false;
  }
  if (facts_.spec.backups() == 0) return false;  // a copy that is there for a move goes when that is done
  SimCoordinator* leader = Leader();
  if (leader == nullptr || job_id_ == 0 || !LogsBeforeReply(facts_.spec.durability())) return false;
  const auto status = leader->core()->GetJob(JobId(job_id_), world_.ClockOf(leader->host()));
  if (!status.ok() || status->partitions_size() == 0 || status->state() == v1::STARTING) return false;
  // The ps that are to go do not count. If the remaining ps can hold all copies that the job wants, no needed copy is
  // taken away.
  int staying = 0;
  std::set<std::string> drained;
  const v1::ListNodesResponse nodes = leader->core()->ListNodes();
  for (const v1::NodeStatus& node : nodes.nodes()) {
    if (node.role() != v1::PS) continue;
    if (node.draining()) drained.insert(node.name());
    staying += node.alive() && !node.draining() && node.name() != ps.name();
  }
  if (!drained.empty() && staying < 1 + facts_.spec.backups()) return false;
  const auto lasts = [&](const std::string& node) { return node != ps.name() && !drained.contains(node); };
  for (const v1::PartitionPlacement& p : status->partitions()) {
    bool elsewhere = lasts(p.primary());
    for (const v1::BackupPlacement& b : p.backups()) elsewhere = elsewhere || (b.in_sync() && lasts(b.node()));
    if (!elsewhere) return false;
  }
  return true;
}

// The ps come back empty. If there is no other copy, the job has a checkpoint to go on from.
bool SimCluster::LoseDisks(SimPs* one, absl::Duration away) {
  if (!one->up()) return false;
  const bool others = MayGo(*one);
  bool all = false;
  if (!others) {
    SimCoordinator* leader = Leader();
    if (leader == nullptr || job_id_ == 0 || final_ || !facts_.spec.callbacks().empty())
      return false;  // an epoch may pass undecided
    const auto status = leader->core()->GetJob(JobId(job_id_), world_.ClockOf(leader->host()));
    if (!status.ok() || std::none_of(status->checkpoints().begin(), status->checkpoints().end(),
                                     [&](const v1::CheckpointInfo& info) { return directory_.IsWhole(info.path()); })) {
      return false;
    }
    all = world_.rng.Chance(0.5);
    disks_lost_ = true;
  }
  quiet_until_ = world_.now() + absl::Seconds(10);
  for (auto& ps : ps_) {
    if ((!all && ps.get() != one) || !ps->up()) continue;
    ps->End();
    world_.Trace("%s loses its disk", ps->name());
    ps->disk().Replace();
    world_.After(away, [ps = ps.get()] { ps->Start(); });
  }
  return true;
}

// Everything but the checkpoints is lost; the user submits the job again, perhaps with other settings.
bool SimCluster::LoseAll(absl::Duration away) {
  if (job_id_ == 0 || final_ || gone_ != nullptr) return false;
  // Callbacks start anew. What an asynchronous chief's checkpoint keeps of the epochs' figures is not known in advance.
  if (!facts_.spec.callbacks().empty() && !facts_.synchronous) return false;
  world_.Trace("the whole cluster is lost");
  for (SimNode* node : Nodes()) node->End();
  for (auto& c : coordinators_) {
    c->End(false);
    c->ReplaceDisk();
  }
  for (auto& ps : ps_) ps->disk().Replace();
  if (etcd_ != nullptr) etcd_->Replace();
  directory_.SetFull(false);
  quiet_until_ = world_.now() + away + absl::Seconds(3);
  world_.After(away, [this] {
    for (auto& c : coordinators_) c->Start();
    for (SimNode* node : Nodes()) {
      if (node != gone_ && (node->host().process > 0)) node->Start();
    }
  });

  Rng& rng = world_.rng;
  v1::JobSpec spec = facts_.spec;
  spec.clear_resume_from();
  spec.set_partition_bytes(facts_.partition_bytes);
  int there = 0;
  for (auto& ps : ps_) there += ps->host().process > 0;
  RandomDurability(rng, there, spec);
  const auto found = directory_.Open(kCheckpointDir);
  int64_t step = -1;
  if (found.ok() && !directory_.IsNewest(*found)) {
    world_.Fail(
        absl::StrCat("checkpoint: ", found->path, " is taken for the newest, but another one was written after it"));
  }
  if (found.ok()) {
    const CheckpointManifest& m = found->checkpoint->contents.manifest;
    step = m.step;
    spec.set_resume_from(kCheckpointDir);
    if (rng.Chance(0.3)) spec.set_epochs(spec.epochs() + 1);
    if (facts_.subsets == nullptr && facts_.synchronous) {
      if (rng.Chance(0.4)) spec.set_partition_bytes(64 * rng.Between(1, 3));
      if (rng.Chance(0.3)) spec.set_replicas(static_cast<int32_t>(rng.Between(1, std::min(6, spec.batch_size()))));
    } else if (rng.Chance(0.5)) {
      spec.clear_partition_bytes();  // the checkpoint's
    }
  }
  const bool other_replicas = spec.replicas() != facts_.spec.replicas();
  SetJob(spec, facts_.plan.examples, found.ok() ? &found->checkpoint->contents : nullptr);
  world_.Trace("the job is submitted once more%s, %d replicas",
               step < 0 ? "" : absl::StrCat(", to go on from step ", step), facts_.spec.replicas());
  power_losses_ = power_losses_ && facts_.spec.fsync() && LogsBeforeReply(facts_.spec.durability());
  if (other_replicas) checkers_->epoch.Resumed(step);
  checkers_->callbacks.Restart(std::max<int64_t>(0, step) / facts_.plan.steps_per_epoch);
  checkers_->acknowledged.Restart();
  checkers_->history.Restart();
  restores_.clear();
  versions_.clear();
  served_in_.clear();
  disks_lost_ = false;
  job_id_ = 0;
  final_.reset();
  ++submissions_;
  SubmitUntilAccepted();
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
      if (fault == Fault::kPsPowerLoss)
        world_.Trace("%s loses its power and %d writes", ps->name(), ps->disk().PowerLoss(rng));
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
    case Fault::kStreamsBroken: rng.Pick(workers_)->BreakStreams(); return true;
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
      // The daemons use the steady clock: it never stops, and leaps only ahead (after the machine slept).
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
      v1::DrainNodeRequest request;
      request.set_name(rng.Pick(ps_)->name());
      world_.Trace("a user drains %s", request.name());
      Drain(*leader, request);
      if (rng.Chance(0.5)) {
        request.set_undo(true);
        world_.After(away, [this, request] {
          if (SimCoordinator* later = Leader()) Drain(*later, request);
        });
      }
      return true;
    }
    case Fault::kPsJoins: {
      for (auto& ps : ps_) {
        if (ps->host().process > 0) continue;
        ps->Start();
        return true;
      }
      return false;
    }
    case Fault::kDiskFails: {
      SimPs* ps = rng.Pick(ps_).get();
      const bool others = MayGo(*ps);
      if (!ps->up() || ps->disk().failing() || (!others && !rng.Chance(0.2))) return false;
      world_.Trace("the disk of %s is full", ps->name());
      if (others) quiet_until_ = world_.now() + absl::Seconds(10);
      ps->disk().SetFailing(true);
      world_.After(away, [ps] { ps->disk().SetFailing(false); });
      return true;
    }
    case Fault::kDiskLost: return LoseDisks(rng.Pick(ps_).get(), away);
    case Fault::kAllLost: return LoseAll(away);
    case Fault::kCheckpointDamaged: {
      if (directory_.stored().size() < 2) return false;
      auto which = directory_.stored().begin();
      std::advance(which, rng.Between(0, static_cast<int64_t>(directory_.stored().size()) - 1));
      const std::string path = which->first;
      if (!directory_.IsWhole(path) || !directory_.ResumesWithout(path)) return false;
      world_.Trace("%s is damaged", path);
      directory_.Damage(path);
      OnFileRefused();  // a model file cannot be made of it, nor the best weights be taken from it
      return true;
    }
    case Fault::kCheckpointDiskFull:
      if (!facts_.spec.has_checkpoints()) return false;
      world_.Trace("there is no room for checkpoints");
      directory_.SetFull(true);
      world_.After(away, [this] { directory_.SetFull(false); });
      return true;
    case Fault::kPsGone: {
      SimPs* ps = rng.Pick(ps_).get();
      if (gone_ != nullptr || !ps->up() || !MayGo(*ps)) return false;
      world_.Trace("%s dies for good", ps->name());
      gone_ = ps;
      quiet_until_ = world_.now() + absl::Seconds(10);
      ps->End();
      return true;
    }
    case Fault::kCount: return false;
  }
  return false;
}

}  // namespace cairn::sim
