// Which workers can compute a job, and on which kind of device it goes: GPUs before CPUs, never both at a time.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cluster_core.h"

namespace cairn {
namespace {

constexpr size_t kNodesShown = 8;

// The bits of its weights are promised to be the same from run to run.
bool BitsMatter(const Job& job) {
  const v1::JobSpec& spec = job.status.spec();
  return job.synchronous() && (!spec.has_deterministic() || spec.deterministic()) && spec.backup_replicas() == 0;
}

// "w1" (CPU), "w2" (CPU)
std::string NodesText(const std::vector<const ClusterNode*>& nodes) {
  std::vector<std::string> names;
  for (const ClusterNode* node : nodes) {
    if (names.size() == kNodesShown) break;
    names.push_back(absl::StrFormat("\"%s\" (%s)", node->name, v1::Device_Name(node->device_kind)));
  }
  std::string text = absl::StrJoin(names, ", ");
  if (nodes.size() > names.size()) absl::StrAppendFormat(&text, " and %d more", nodes.size() - names.size());
  return text;
}

}  // namespace

// Its compute_dtype: what no node without it can do for the job.
bool ClusterCore::Computes(const v1::JobSpec& spec, const ClusterNode& node) {
  const std::vector<v1::DataType>& types = node.compute_dtypes;
  return types.empty() || spec.compute_dtype() == v1::DATA_TYPE_UNSPECIFIED ||
         std::find(types.begin(), types.end(), spec.compute_dtype()) != types.end();
}

// Also the kind of device that the user asks for, for training.
bool ClusterCore::Fits(const v1::JobSpec& spec, const ClusterNode& worker) {
  const bool any = spec.device() == v1::DEVICE_UNSPECIFIED || spec.device() == v1::ANY;
  return Computes(spec, worker) && (any || spec.device() == worker.device_kind);
}

std::vector<v1::Device> ClusterCore::PreferredDevices(const Job& job) {
  if (BitsMatter(job) && job.status.devices_size() > 0 && job.status.devices(0) == v1::CPU) return {v1::CPU, v1::GPU};
  return {v1::GPU, v1::CPU};
}

size_t ClusterCore::WorkersNeeded(const Job& job) {
  return job.mirrored() ? 1 : static_cast<size_t>(std::max(1, job.status.spec().min_workers()));
}

ClusterCore::Needs ClusterCore::NeedsOf(const Job& job) {
  const v1::JobSpec& spec = job.status.spec();
  return {spec.compute_dtype(), spec.device(), WorkersNeeded(job), spec.backups()};
}

// Workers that may work for it and have the same kind of device; free: with a slot that nobody uses.
size_t ClusterCore::MostOfOneDevice(const Job& job, bool free) const {
  std::map<v1::Device, size_t> count;
  for (const auto& [name, node] : members_.nodes()) {
    if (node.role != v1::WORKER || !node.connected() || !MayWork(job, node)) continue;
    count[node.device_kind] += !free || FreeSlots(node) > 0;
  }
  return std::max(count[v1::CPU], count[v1::GPU]);
}

void ClusterCore::NoteDevices(Job& job) const {
  for (const v1::ReplicaPlacement& r : job.status.replicas()) {
    const ClusterNode* node = members_.Find(r.worker());
    if (node == nullptr) continue;
    const auto& known = job.status.devices();
    if (std::find(known.begin(), known.end(), node->device_kind) == known.end())
      job.status.add_devices(node->device_kind);
  }
}

// Nodes of that role are there, and none of them has the job's compute_dtype; empty: that is not so.
std::string ClusterCore::NobodyComputesText(const Job& job, v1::Role role) const {
  std::vector<const ClusterNode*> there;
  for (const auto& [name, node] : members_.nodes()) {
    if (node.role != role || !node.connected()) continue;
    if (Computes(job.status.spec(), node)) return "";
    there.push_back(&node);
  }
  if (there.empty()) return "";
  return absl::StrFormat("no %s can compute %s: %s; start one that can, or use another compute_dtype",
                         role == v1::EVALUATOR ? "evaluator" : "worker",
                         v1::DataType_Name(job.status.spec().compute_dtype()), NodesText(there));
}

// Likewise of workers, with the kind of device that the job asks for.
std::string ClusterCore::NobodyFitsText(const Job& job) const {
  if (std::string text = NobodyComputesText(job, v1::WORKER); !text.empty()) return text;
  std::vector<const ClusterNode*> there;
  for (const auto& [name, node] : members_.nodes()) {
    if (node.role != v1::WORKER || !node.connected()) continue;
    if (Fits(job.status.spec(), node)) return "";
    there.push_back(&node);
  }
  if (there.empty()) return "";
  return absl::StrFormat("no worker with device %s can compute it: %s; start one, or use device: ANY",
                         v1::Device_Name(job.status.spec().device()), NodesText(there));
}

// Why the bits of a running job may be none that another run gives.
std::string ClusterCore::BitsText(const Job& job) const {
  if (!BitsMatter(job)) return "";
  if (job.status.devices_size() > 1) {
    return "warning: it was computed on CPUs and on GPUs, one after the other: the bits are not those of a run on one "
           "kind; `device` of the job "
           "holds it on one";
  }
  std::map<std::string, NodeName> first;  // by fingerprint
  for (const v1::ReplicaPlacement& r : job.status.replicas()) {
    const ClusterNode* node = members_.Find(r.worker());
    if (node != nullptr && !node->fingerprint.empty()) first.try_emplace(node->fingerprint, node->name);
  }
  if (first.size() < 2) return "";
  return absl::StrFormat(
      "warning: workers \"%s\" (%s) and \"%s\" (%s) may differ in the last bits: the weights are those of this run "
      "alone",
      first.begin()->second, first.begin()->first, first.rbegin()->second, first.rbegin()->first);
}

}  // namespace cairn
