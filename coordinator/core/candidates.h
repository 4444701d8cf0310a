// Candidates: which nodes may work for a job, and how much room they have. Read-only.
//
// Not thread-safe; one core owns it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/job.h"
#include "coordinator/core/job_table.h"
#include "coordinator/core/nodes.h"
#include "coordinator/core/options.h"
#include "coordinator/core/placement.h"
#include "coordinator/core/step_context.h"

namespace cairn {

class Candidates {
 public:
  // All outlive it.
  Candidates(const CoordinatorOptions& options, const StepContext& step, const JobTable& jobs, Nodes& nodes)
      : options_(options), step_(step), jobs_(jobs), nodes_(nodes) {}

  // ---- ps ----
  // The ps if it is alive and may work for the job; else null.
  const ClusterNode* UsablePs(const Job& job, const NodeName& name) const;
  // Whether the job continues without the node's present process.
  bool LeftOut(const Job& job, const ClusterNode& node) const;
  // Whether the ps must hold no partitions: a user drained it, or its store failed.
  bool Draining(const NodeName& name) const;
  // Whether a ps is connected that has every acknowledged update of the partition, and may serve it.
  bool CopyThere(const Job& job, const v1::PartitionPlacement& p) const;
  // The number of ps that can be given copies of the job's partitions.
  size_t PsThere(const Job& job) const;
  // Those ps, with the bytes that they hold for all jobs, or for all jobs but this one.
  std::vector<PsLoad> PsLoads(const Job& job, bool with_own = true) const;
  // A ps whose absence leaves some partition unserved; empty: all partitions are served.
  NodeName MissingPs(const Job& job) const;
  // Whether every partition that this ps serves has another copy that can be promoted. The ps of that copy may still be
  // unconnected, as after a change of the leader.
  bool OthersServe(const Job& job, const NodeName& ps) const;
  // Ps that hold partitions of the job although they must hold none.
  std::set<NodeName> LeavingHolders(const Job& job) const;

  // ---- workers ----
  int32_t FreeSlots(const ClusterNode& worker) const;
  bool MayWork(const Job& job, const ClusterNode& worker) const;
  // Whether the job can continue without this worker.
  bool OthersMayWork(const Job& job, const NodeName& worker) const;
  // Nodes for requests that any node can answer; drained, silent or far slower nodes only where there are no others.
  // `job`: the job whose measured speeds count; null: speeds do not count. computes: only nodes that support its
  // compute_dtype.
  std::vector<ClusterNode*> Askable(v1::Role role, const Job* job, bool computes = false) const;
  // The worker to write files of the job; null: there is no worker.
  const ClusterNode* ChiefOrAnother(const Job& job) const;
  // The most workers of one kind of device that may work for the job; free: only workers with a free slot count.
  size_t MostOfOneDevice(const Job& job, bool free) const;

  // Whether the ps, which is connected, may be given copies of the job.
  bool MayHold(const Job& job, const ClusterNode& ps) const;

  // ---- for the user ----
  // Why work is taken from a node; empty: the node is there and healthy.
  std::string TroubleText(const Job& job, const NodeName& name) const;
  // Not empty where nodes of that role are connected, but none of them has the job's program or compute_dtype.
  std::string NobodyComputesText(const Job& job, v1::Role role) const;
  // Likewise for workers, with the kind of device that the job asks for.
  std::string NobodyFitsText(const Job& job) const;
  // Why another run of this job may not end with the same bits.
  std::string BitsText(const Job& job) const;

 private:
  const CoordinatorOptions& options_;
  const StepContext& step_;
  const JobTable& jobs_;
  Nodes& nodes_;
};

}  // namespace cairn
