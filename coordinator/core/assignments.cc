#include "coordinator/core/assignments.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/model/strategy_check.h"
#include "coordinator/core/devices.h"
#include "coordinator/core/job_facts.h"

namespace cairn {
namespace {

void MostSlotsFirst(std::vector<WorkerCapacity>& workers) {
  std::stable_sort(workers.begin(), workers.end(), [](const auto& a, const auto& b) { return a.slots > b.slots; });
}

// The interval of checks of the speeds of a job's workers.
constexpr absl::Duration kStragglerLook = absl::Milliseconds(500);
// The interval of moves of a replica away from a straggler.
constexpr absl::Duration kStragglerInterval = absl::Seconds(3);
// While there are stragglers, a move must shorten the slowest worker's step to this fraction.
constexpr double kStragglerGain = 0.9;
// The number of parts into which a slot is divided when speeds matter.
constexpr double kSpeedUnits = 64;

// With local_sync, groups of replicas are placed: each group is on one worker as a whole.
std::vector<WorkerCapacity> ByUnits(std::vector<WorkerCapacity> workers, int32_t group) {
  for (WorkerCapacity& w : workers) w.slots = std::max(1, w.slots / group);
  return workers;
}

std::vector<NodeName> OwnersOfUnits(const std::vector<NodeName>& owners, int32_t group) {
  std::vector<NodeName> units;
  for (size_t r = 0; r < owners.size(); r += static_cast<size_t>(group)) units.push_back(owners[r]);
  return units;
}

std::vector<NodeName> OwnersOfReplicas(const std::vector<NodeName>& units, int32_t group) {
  std::vector<NodeName> owners;
  for (const NodeName& unit : units) owners.insert(owners.end(), static_cast<size_t>(group), unit);
  return owners;
}

std::map<NodeName, int32_t> CountByOwner(const std::vector<NodeName>& owners) {
  std::map<NodeName, int32_t> count;
  for (const NodeName& owner : owners) ++count[owner];
  return count;
}

double FactorOf(const std::map<NodeName, double>& stragglers, const NodeName& worker) {
  const auto it = stragglers.find(worker);
  return it == stragglers.end() ? 1 : it->second;
}

// The highest load of a worker relative to its slots and speed. It determines the duration of a step.
double WorstLoad(const std::vector<NodeName>& owners, const std::vector<WorkerCapacity>& workers,
                 const std::map<NodeName, double>& stragglers) {
  const std::map<NodeName, int32_t> held = CountByOwner(owners);
  double worst = 0;
  for (const WorkerCapacity& w : workers) {
    const auto it = held.find(w.name);
    if (it != held.end()) worst = std::max(worst, it->second * FactorOf(stragglers, w.name) / w.slots);
  }
  return worst;
}

// Whether the worker has replicas of the job, and all of them are reported as finished.
bool IsDone(const Job& job, const NodeName& worker) {
  if (worker.empty() || !job.progress) return false;
  const std::vector<int32_t> replicas = job.ReplicasOf(worker);
  const std::vector<bool>& finished = job.progress->replicas().finished();
  return !replicas.empty() && std::all_of(replicas.begin(), replicas.end(), [&](int32_t r) { return finished[r]; });
}

}  // namespace

// ---- assignment of replicas ----

void Assignments::Place(Job& job, std::vector<WorkerCapacity> workers) {
  const int32_t group = LocalSyncOf(job.status.spec());
  SetOwners(job, OwnersOfReplicas(
                     PlaceReplicas(job.status.spec().replicas() / group, ByUnits(std::move(workers), group)), group));
}

// Connected, with a free slot, by name.
const std::vector<const ClusterNode*>& Assignments::FreeWorkers() {
  const std::pair<uint64_t, uint64_t> now(nodes_.changes(), jobs_.usage().replica_changes());
  if (std::exchange(free_of_, now) == now) return free_;
  free_.clear();
  for (const ClusterNode* node : nodes_.Connected(v1::WORKER)) {
    if (candidates_.FreeSlots(*node) > 0) free_.push_back(node);
  }
  return free_;
}

// The workers that may share the job, of one kind of device, with the slots that the job can have on each: those that
// have replicas of it, then free ones. Without may_change_device the job stays on its kind of device as long as a
// worker has replicas of it.
std::vector<WorkerCapacity> Assignments::WorkersFor(const Job& job, bool may_change_device) {
  const std::map<NodeName, int32_t> own_replicas = CountByOwner(job.owners());
  std::vector<WorkerCapacity> members, others;
  const auto may_work = [&](const ClusterNode* node) {
    return node != nullptr && node->role == v1::WORKER && candidates_.MayWork(job, *node);
  };
  for (const auto& [name, own] : own_replicas) {
    const ClusterNode* const node = nodes_.Find(name);
    if (!may_work(node)) continue;
    members.push_back(
        {name, std::clamp(own + candidates_.FreeSlots(*node), 1, node->slots), node->machine.device_kind});
  }
  for (const ClusterNode* node : FreeWorkers()) {
    if (own_replicas.contains(node->name) || !may_work(node)) continue;
    others.push_back({node->name, candidates_.FreeSlots(*node), node->machine.device_kind});
  }
  MostSlotsFirst(others);
  std::vector<v1::Device> preferred = PreferredDevices(job);
  if (!may_change_device && !members.empty()) preferred.insert(preferred.begin(), members.front().device);
  members.insert(members.end(), others.begin(), others.end());
  if (members.empty()) {  // all are busy with other jobs: sharing them is better than waiting
    for (const ClusterNode* node : nodes_.Connected(v1::WORKER)) {
      if (may_work(node)) members.push_back({node->name, node->slots, node->machine.device_kind});
    }
    MostSlotsFirst(members);
  }
  members = OfOneDevice(std::move(members), preferred);
  size_t most = job.mirrored() ? 1 : job.status.spec().max_workers();
  if (most > 0 && members.size() > most) members.resize(most);
  return members;
}

void Assignments::Rebalance(Job& job, bool may_grow) {
  const int32_t group = LocalSyncOf(job.status.spec());
  const std::vector<NodeName> before = OwnersOfUnits(job.owners(), group);
  const std::vector<WorkerCapacity> workers = ByUnits(WorkersFor(job, may_grow), group);
  std::vector<NodeName> owners = AdoptOrphans(before, workers);
  if (may_grow && !workers.empty()) {
    const std::map<NodeName, double>& stragglers = job.workers.stragglers.watch.stragglers();
    std::vector<WorkerCapacity> by_speed = workers;
    for (WorkerCapacity& w : by_speed)
      w.slots = std::max(1, static_cast<int32_t>(w.slots * kSpeedUnits / FactorOf(stragglers, w.name)));
    std::vector<NodeName> spread = RebalanceReplicas(owners, by_speed);
    const double gain = stragglers.empty() ? 1 : kStragglerGain;
    if (WorstLoad(spread, workers, stragglers) < gain * WorstLoad(owners, workers, stragglers))
      owners = std::move(spread);
  }
  if (owners != before) SetOwners(job, OwnersOfReplicas(owners, group));
}

// Moves one replica of the worst straggler to a worker that completes it sooner. The worker of a replica does not
// affect any bit.
void Assignments::RelieveStragglers(Job& job) {
  if (!job.running() || !job.synchronous() || job.partitions.hosting.awaiting_ready ||
      step_.now() < job.workers.stragglers.looked_at)
    return;
  job.workers.stragglers.looked_at = step_.now() + kStragglerLook;
  if (job.workers.stragglers.watch.Look(step_.now())) step_.Raise(SlotsChanged{});  // it gets its share back
  const std::map<NodeName, double>& stragglers = job.workers.stragglers.watch.stragglers();
  if (stragglers.empty() || step_.now() < job.workers.stragglers.relieve_at) return;
  job.workers.stragglers.relieve_at = step_.now() + kStragglerInterval;
  std::vector<NodeName> owners = job.owners();
  const std::vector<WorkerCapacity> workers = WorkersFor(job, /*may_change_device=*/false);
  const double before = WorstLoad(owners, workers, stragglers);
  std::map<NodeName, int32_t> held = CountByOwner(owners);
  for (const WorkerCapacity& slow : workers) {
    const double factor = FactorOf(stragglers, slow.name);
    if (factor <= 1 || held[slow.name] == 0 || held[slow.name] * factor / slow.slots < before) continue;
    const WorkerCapacity* best = nullptr;
    const auto load = [&](const WorkerCapacity& w) {
      return (held[w.name] + 1) * FactorOf(stragglers, w.name) / w.slots;
    };
    for (const WorkerCapacity& w : workers) {
      if (w.name != slow.name && (best == nullptr || load(w) < load(*best))) best = &w;
    }
    if (best == nullptr) return;
    *std::find(owners.rbegin(), owners.rend(), slow.name) = best->name;  // its highest replica
    if (WorstLoad(owners, workers, stragglers) > before * kStragglerGain) return;
    SetOwners(job, owners, absl::StrFormat("worker \"%s\" is %.1f times slower than the others", slow.name, factor));
    return Send(job);
  }
}

void Assignments::ForgetSpeedOf(const NodeName& worker) {
  for (auto& [id, job] : jobs_.all()) job.workers.stragglers.watch.Forget(worker);
}

// why: for the user, if nothing is wrong with the workers that had the replicas.
void Assignments::SetOwners(Job& job, const std::vector<NodeName>& owners, const std::string& why) {
  ReplicaMoves moves;
  NodeName chief;
  const bool chief_was_done = IsDone(job, job.status.chief());
  for (int32_t r = 0; r < static_cast<int32_t>(owners.size()); ++r) {
    v1::ReplicaPlacement& placement = *job.status.mutable_replicas(r);
    if (placement.worker() != owners[r]) moves[placement.worker()][owners[r]].push_back(r);
    placement.set_worker(owners[r]);
    if (!owners[r].empty() && (chief.empty() || owners[r] < chief)) chief = owners[r];
  }
  if (job.running() && job.status.spec().has_checkpoints()) {
    const bool done = IsDone(job, chief);
    if (chief != job.status.chief()) {
      job.outputs.checkpoints.NameChief(done, step_.now());
      TakeUnwritten(job, chief);
    } else if (done && !chief_was_done) {
      job.outputs.checkpoints.LeaveChiefDone(step_.now());
    }
  }
  if (chief != job.status.chief()) NoteFormerChief(job);
  job.status.set_chief(chief);
  NoteDevices(job);
  ++job.assignment;
  if (job.progress) job.progress->Restart(step_.now());
  TellMoves(job, moves, why);
  jobs_.Save(job);
  step_.Raise(ReasonDue{job.id()});
}

void Assignments::NoteDevices(Job& job) const {
  for (const v1::ReplicaPlacement& r : job.status.replicas()) {
    const ClusterNode* node = nodes_.Find(r.worker());
    if (node == nullptr) continue;
    const auto& known = job.status.devices();
    if (std::find(known.begin(), known.end(), node->machine.device_kind) == known.end())
      job.status.add_devices(node->machine.device_kind);
  }
}

// Logs moves. `moves`: replicas, by previous and by new worker. why: for workers that nothing is wrong with.
void Assignments::TellMoves(Job& job, const ReplicaMoves& moves, const std::string& why) {
  for (const auto& [from, to] : moves) {
    std::vector<std::string> parts;
    for (const auto& [name, replicas] : to) {
      const std::string which = absl::StrCat("replicas ", ReplicaListText(replicas));
      parts.push_back(name.empty() ? which + " wait for another"
                                   : absl::StrFormat("%s go to worker \"%s\"", which, name));
    }
    const std::string what = absl::StrJoin(parts, ", ");
    const std::string trouble = from.empty() ? "" : candidates_.TroubleText(job, from);
    if (!trouble.empty()) {
      jobs_.TellText(job, trouble != "is drained", absl::StrFormat("worker \"%s\" %s; %s", from, trouble, what));
    } else if (from.empty()) {
      jobs_.Tell(job, "%s", what);
    } else {
      jobs_.Tell(job, "%s; its %s",
                 why.empty() ? absl::StrFormat("worker \"%s\" gives replicas to workers that have room", from) : why,
                 what);
    }
  }
}

// ---- commands ----

// Commands every worker that, as far as is known, does not run what it should.
void Assignments::Send(Job& job) {
  if (!job.running() || job.partitions.hosting.awaiting_ready) return;
  std::map<NodeName, std::vector<int32_t>> wanted;
  for (const v1::ReplicaPlacement& r : job.status.replicas()) wanted[r.worker()].push_back(r.replica());
  std::set<NodeName>& told = job.workers.told.workers;
  for (const auto& [name, replicas] : wanted) told.insert(name);
  std::erase_if(told, [&](const NodeName& name) {
    ClusterNode* const node = nodes_.Find(name);  // one without a session says what it runs when it comes back
    if (node == nullptr || node->role != v1::WORKER || !node->connected()) return true;
    const auto its = wanted.find(name);
    SendTo(job, *node, its == wanted.end() ? std::vector<int32_t>() : its->second);
    return !node->work.running.contains(job.id());
  });
  step_.Raise(AssignmentsSent{job.id()});  // a new chief may not have been asked yet
}

void Assignments::SendTo(const Job& job, ClusterNode& node, const std::vector<int32_t>& replicas) {
  auto known = node.work.running.find(job.id());
  if (known != node.work.running.end() && known->second.generation < job.partitions.rollback.generation) {
    step_.Send(node, MakeDropJob(job.id()));  // it is ahead of the weights and must start over
    node.work.running.erase(known);
    known = node.work.running.end();
  }
  if (replicas.empty()) {
    if (known == node.work.running.end() || known->second.replicas.empty()) return;
    // It keeps the job's model and data until the job ends, and is told to drop it then.
    known->second.replicas.clear();
    known->second.assignment = job.assignment;
  } else {
    const bool chief = job.status.chief() == node.name;
    // After a Hello it is unknown whether the worker was told that it is chief; a chief that does not know writes no
    // checkpoints.
    const bool told_chief = known != node.work.running.end() && known->second.chief.value_or(false);
    if (known != node.work.running.end() && known->second.generation == job.status.generation() &&
        known->second.replicas == replicas && told_chief == chief && known->second.epochs == EpochsCode(job)) {
      return;
    }
    node.work.running[job.id()] = {job.status.generation(), replicas, chief, EpochsCode(job), job.assignment};
  }
  step_.Send(node, MakeAssignReplicas(job, node.name));
}

}  // namespace cairn
