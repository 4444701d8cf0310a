#include "coordinator/core/usage.h"

#include <utility>

#include "coordinator/core/partition_copies.h"

namespace cairn {
namespace {

template <typename Map>
auto ValueOf(const Map& map, const NodeName& name) {
  const auto it = map.find(name);
  return it == map.end() ? typename Map::mapped_type{0} : it->second;
}

template <typename Map>
void Subtract(const Map& part, Map& all) {
  for (const auto& [name, value] : part) {
    const auto it = all.find(name);
    if ((it->second -= value) == 0) all.erase(it);
  }
}

}  // namespace

void Usage::Note(const Job& job) {
  OfJob own;
  if (job.starting() || job.running()) {
    for (const v1::ReplicaPlacement& r : job.status.replicas()) {
      if (!r.worker().empty()) ++own.replicas[r.worker()];
    }
  }
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    for (const NodeName& holder : HoldersOf(p)) {
      if (!holder.empty()) own.bytes[holder] += BytesOf(p);
    }
    for (const v1::BackupPlacement& b : p.backups()) {
      if (!job.finished() || b.in_sync() || b.former()) continue;
      ++own.ended_copies;
      ++own.ended_syncing[b.node()];
      ++own.ended_syncing[p.primary()];
    }
  }
  const uint64_t changes = replica_changes_;
  const auto known = jobs_.find(job.id());
  const bool same = known == jobs_.end() ? own.replicas.empty() : known->second.replicas == own.replicas;
  Forget(job.id());
  replica_changes_ = changes + !same;
  for (const auto& [name, replicas] : own.replicas) all_.replicas[name] += replicas;
  for (const auto& [name, bytes] : own.bytes) all_.bytes[name] += bytes;
  for (const auto& [name, copies] : own.ended_syncing) all_.ended_syncing[name] += copies;
  all_.ended_copies += own.ended_copies;
  if (!own.replicas.empty() || !own.bytes.empty()) jobs_[job.id()] = std::move(own);
}

void Usage::Forget(uint64_t job_id) {
  const auto it = jobs_.find(job_id);
  if (it == jobs_.end()) return;
  ++replica_changes_;
  Subtract(it->second.replicas, all_.replicas);
  Subtract(it->second.bytes, all_.bytes);
  Subtract(it->second.ended_syncing, all_.ended_syncing);
  all_.ended_copies -= it->second.ended_copies;
  jobs_.erase(it);
}

int32_t Usage::ReplicasOn(const NodeName& worker) const { return ValueOf(all_.replicas, worker); }

int32_t Usage::ReplicasOn(const NodeName& worker, uint64_t job_id) const {
  const auto it = jobs_.find(job_id);
  return it == jobs_.end() ? 0 : ValueOf(it->second.replicas, worker);
}

uint64_t Usage::BytesOn(const NodeName& ps) const { return ValueOf(all_.bytes, ps); }

int Usage::EndedSyncingOn(const NodeName& ps) const { return ValueOf(all_.ended_syncing, ps); }

uint64_t Usage::BytesOn(const NodeName& ps, uint64_t job_id) const {
  const auto it = jobs_.find(job_id);
  return it == jobs_.end() ? 0 : ValueOf(it->second.bytes, ps);
}

}  // namespace cairn
