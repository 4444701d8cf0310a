#include "coordinator/core/candidates.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/model/callback_check.h"
#include "common/model/external_check.h"
#include "common/model/fault_check.h"
#include "common/model/strategy_check.h"
#include "coordinator/core/devices.h"
#include "coordinator/core/partition_copies.h"

namespace cairn {
namespace {

constexpr size_t kNodesShown = 8;
constexpr size_t kProgramsShown = 4;

// "w1" (CPU), "w2" (CPU)
std::string NodesText(const std::vector<const ClusterNode*>& nodes) {
  std::vector<std::string> names;
  for (const ClusterNode* node : nodes) {
    if (names.size() == kNodesShown) break;
    names.push_back(absl::StrFormat("\"%s\" (%s)", node->name, v1::Device_Name(node->machine.device_kind)));
  }
  std::string text = absl::StrJoin(names, ", ");
  if (nodes.size() > names.size()) absl::StrAppendFormat(&text, " and %d more", nodes.size() - names.size());
  return text;
}

// "w1" (none), "w2" (resnet 1, resnet 2)
std::string ProgramsText(const std::vector<const ClusterNode*>& nodes) {
  std::vector<std::string> texts;
  for (const ClusterNode* node : nodes) {
    if (texts.size() == kNodesShown) break;
    std::vector<std::string> programs;
    for (const v1::ExternalProgram& program : node->machine.programs) {
      if (programs.size() == kProgramsShown) break;
      programs.push_back(absl::StrCat(program.name(), " ", program.version()));
    }
    texts.push_back(
        absl::StrFormat("\"%s\" (%s)", node->name, programs.empty() ? "none" : absl::StrJoin(programs, ", ")));
  }
  std::string text = absl::StrJoin(texts, ", ");
  if (nodes.size() > texts.size()) absl::StrAppendFormat(&text, " and %d more", nodes.size() - texts.size());
  return text;
}

}  // namespace

const ClusterNode* Candidates::UsablePs(const Job& job, const NodeName& name) const {
  const ClusterNode* node = nodes_.Find(name);
  const bool usable = node != nullptr && node->role == v1::PS && node->alive() && !LeftOut(job, *node);
  return usable ? node : nullptr;
}

bool Candidates::LeftOut(const Job& job, const ClusterNode& node) const {
  auto it = job.workers.left_out.nodes.find(node.name);
  return it != job.workers.left_out.nodes.end() && it->second.incarnation == node.incarnation;
}

// Whether the ps must hold no partitions: a user drains it, or its store failed.
bool Candidates::Draining(const NodeName& name) const {
  const ClusterNode* node = nodes_.Find(name);
  return node != nullptr && node->leaving();
}

bool Candidates::CopyThere(const Job& job, const v1::PartitionPlacement& p) const {
  const auto serves = [&](const NodeName& name) {
    const ClusterNode* node = UsablePs(job, name);
    return node != nullptr && node->connected() && !job.partitions.copies.returned.contains({p.partition(), name});
  };
  return serves(p.primary()) || std::any_of(p.backups().begin(), p.backups().end(),
                                            [&](const auto& b) { return Complete(b) && serves(b.node()); });
}

// One that is given a role drops what it kept aside, which may be the only copy of what the job waits for.
bool Candidates::MayHold(const Job& job, const ClusterNode& ps) const {
  return !ps.leaving() && !LeftOut(job, ps) && !(job.keeps_updates() && ps.work.aside.contains(job.id()));
}

// How many ps can receive copies of the job.
size_t Candidates::PsThere(const Job& job) const {
  const std::vector<ClusterNode*> all = nodes_.Connected(v1::PS);
  return std::count_if(all.begin(), all.end(), [&](auto* ps) { return MayHold(job, *ps); });
}

// The same ps by name, with the bytes that they hold for all jobs, or for all other jobs.
std::vector<PsLoad> Candidates::PsLoads(const Job& job, bool with_own) const {
  std::vector<PsLoad> loads;
  for (const ClusterNode* ps : nodes_.Connected(v1::PS)) {
    if (!MayHold(job, *ps)) continue;
    const uint64_t bytes = jobs_.usage().BytesOn(ps->name) - jobs_.usage().BytesOn(ps->name, job.id());
    loads.push_back({ps->name, ps->machine.host, bytes});
  }
  if (!with_own) return loads;
  // The present placement may not be stored yet.
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    for (const NodeName& holder : HoldersOf(p)) {
      const auto load = std::lower_bound(loads.begin(), loads.end(), holder,
                                         [](const PsLoad& l, const NodeName& name) { return l.name < name; });
      if (load != loads.end() && load->name == holder) load->bytes += BytesOf(p);
    }
  }
  return loads;
}

// The largest number of workers that may work for the job and have the same kind of device. free: that have a free
// slot.
size_t Candidates::MostOfOneDevice(const Job& job, bool free) const {
  std::map<v1::Device, size_t> count;
  for (const auto& [name, node] : nodes_.all()) {
    if (node.role != v1::WORKER || !node.connected() || !MayWork(job, node)) continue;
    count[node.machine.device_kind] += !free || FreeSlots(node) > 0;
  }
  return std::max(count[v1::CPU], count[v1::GPU]);
}

// Text saying that there are nodes of that role, but none with the job's compute_dtype; empty if that is not the case.
std::string Candidates::NobodyComputesText(const Job& job, v1::Role role) const {
  std::vector<const ClusterNode*> there;
  for (const auto& [name, node] : nodes_.all()) {
    if (node.role != role || !node.connected()) continue;
    if (Computes(job.status.spec(), node)) return "";
    there.push_back(&node);
  }
  if (there.empty()) return "";
  const char* const what = role == v1::EVALUATOR ? "evaluator" : "worker";
  if (const v1::External* const external = ExternalOf(job.status.spec())) {
    return absl::StrFormat("no %s has program %s; they have: %s", what,
                           ProgramText(external->program(), external->version()), ProgramsText(there));
  }
  if (std::all_of(there.begin(), there.end(), [](const ClusterNode* node) { return node->machine.programs_only; })) {
    return absl::StrFormat("no %s computes layers, only programs of their own: %s; start a cairn-worker", what,
                           ProgramsText(there));
  }
  return absl::StrFormat("no %s can compute %s: %s; start one that can, or use another compute_dtype", what,
                         v1::DataType_Name(job.status.spec().compute_dtype()), NodesText(there));
}

// The same for workers, with the kind of device that the job asks for.
std::string Candidates::NobodyFitsText(const Job& job) const {
  if (std::string text = NobodyComputesText(job, v1::WORKER); !text.empty()) return text;
  std::vector<const ClusterNode*> there;
  for (const auto& [name, node] : nodes_.all()) {
    if (node.role != v1::WORKER || !node.connected()) continue;
    if (Fits(job.status.spec(), node)) return "";
    there.push_back(&node);
  }
  if (there.empty()) return "";
  return absl::StrFormat("no worker with device %s can compute it: %s; start one, or use device: ANY",
                         v1::Device_Name(job.status.spec().device()), NodesText(there));
}

// Why the bits of a running job may not be reproducible.
std::string Candidates::BitsText(const Job& job) const {
  if (!BitsMatter(job)) return "";
  if (job.status.devices_size() > 1) {
    return "warning: it was computed on CPUs and on GPUs in turn: its bits differ from those of a run on one kind of "
           "device; set `device` in the job to keep it on one";
  }
  std::map<std::string, NodeName> first;  // by fingerprint
  for (const v1::ReplicaPlacement& r : job.status.replicas()) {
    const ClusterNode* node = nodes_.Find(r.worker());
    if (node != nullptr && !node->machine.fingerprint.empty()) first.try_emplace(node->machine.fingerprint, node->name);
  }
  if (first.size() < 2) return "";
  return absl::StrFormat(
      "warning: workers \"%s\" (%s) and \"%s\" (%s) may differ in the last bits: the weights are those of this run "
      "alone",
      first.begin()->second, first.begin()->first, first.rbegin()->second, first.rbegin()->first);
}

// Why work is taken away from a node; empty: it is present and healthy.
std::string Candidates::TroubleText(const Job& job, const NodeName& name) const {
  const ClusterNode* node = nodes_.Find(name);
  if (node == nullptr || !node->alive()) return "is gone";
  if (LeftOut(job, *node)) return "cannot work for the job";
  if (!node->fault.empty()) return "has failed";
  return node->draining ? "is drained" : "";
}

// Ps that hold partitions of the job but should hold none.
std::set<NodeName> Candidates::LeavingHolders(const Job& job) const {
  std::set<NodeName> leaving;
  const auto note = [&](const NodeName& name) {
    const ClusterNode* node = nodes_.Find(name);
    if (node != nullptr && node->role == v1::PS && node->leaving()) leaving.insert(name);
  };
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    note(p.primary());
    for (const v1::BackupPlacement& b : p.backups()) note(b.node());
  }
  return leaving;
}

// ---- for both roles ----
const ClusterNode* Candidates::ChiefOrAnother(const Job& job) const {
  const std::vector<ClusterNode*> workers = Askable(v1::WORKER, &job);
  if (workers.empty()) return nullptr;
  const auto chief =
      std::find_if(workers.begin(), workers.end(), [&](auto* w) { return w->name == job.status.chief(); });
  return chief != workers.end() ? *chief : workers.front();
}

// Whether the job can continue without this worker.
bool Candidates::OthersMayWork(const Job& job, const NodeName& worker) const {
  const std::vector<ClusterNode*> workers = nodes_.Connected(v1::WORKER);
  return std::any_of(workers.begin(), workers.end(),
                     [&](const ClusterNode* w) { return w->name != worker && MayWork(job, *w); });
}

// Whether every partition that this ps serves has another copy that can be promoted as soon as its ps is connected.
// After a change of leader it may not be connected yet.
bool Candidates::OthersServe(const Job& job, const NodeName& ps) const {
  return std::all_of(job.status.partitions().begin(), job.status.partitions().end(), [&](const auto& p) {
    if (p.primary() != ps) return true;
    return std::any_of(p.backups().begin(), p.backups().end(), [&](const v1::BackupPlacement& b) {
      const ClusterNode* node = UsablePs(job, b.node());
      return Complete(b) && node != nullptr && !job.partitions.copies.returned.contains({p.partition(), b.node()});
    });
  });
}

// A ps without which a partition is not served; empty if all are served.
NodeName Candidates::MissingPs(const Job& job) const {
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    if (UsablePs(job, p.primary()) == nullptr || job.partitions.copies.returned.contains({p.partition(), p.primary()}))
      return p.primary();
  }
  return {};
}

int32_t Candidates::FreeSlots(const ClusterNode& worker) const {
  return std::max(0, worker.slots - jobs_.usage().ReplicasOn(worker.name));
}

// Nodes for requests that any node can answer. Drained, silent and much slower nodes are used only if there is no
// other. `job`: the job whose speeds are compared; null: none. computes: only nodes that have its compute_dtype.
std::vector<ClusterNode*> Candidates::Askable(v1::Role role, const Job* job, bool computes) const {
  std::vector<ClusterNode*> all = nodes_.Connected(role);
  if (computes) std::erase_if(all, [&](const ClusterNode* node) { return !Computes(job->status.spec(), *node); });
  std::vector<ClusterNode*> good;
  for (ClusterNode* node : all) {
    const bool silent = step_.now() - node->lease.last_heard() > 2 * options_.heartbeat_interval;
    const bool slow = job != nullptr && job->workers.stragglers.watch.stragglers().contains(node->name);
    if (!node->leaving() && !silent && !slow && (job == nullptr || !LeftOut(*job, *node))) good.push_back(node);
  }
  return good.empty() ? all : good;
}

bool Candidates::MayWork(const Job& job, const ClusterNode& worker) const {
  return worker.alive() && !worker.leaving() && !LeftOut(job, worker) && Fits(job.status.spec(), worker);
}

}  // namespace cairn
