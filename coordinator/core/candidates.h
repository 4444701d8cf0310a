// Candidates: which nodes may work for a job, and how much room they have. Questions only; nothing is changed.
//
// Not thread-safe; as what it reads.
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
  // Alive, and fit to work for the job; else null.
  const ClusterNode* UsablePs(const Job& job, const NodeName& name) const;
  // The job continues without the node's present process.
  bool LeftOut(const Job& job, const ClusterNode& node) const;
  // It must hold no partitions: a user drained it, or its store failed.
  bool Draining(const NodeName& name) const;
  // How many ps can be given copies of the job.
  size_t PsThere(const Job& job) const;
  // Those ps, with the bytes that they hold for all jobs, or for all jobs but this one.
  std::vector<PsLoad> PsLoads(const Job& job, bool with_own = true) const;
  // A ps without which some partition is not served; empty: all are.
  NodeName MissingPs(const Job& job) const;
  // Whether every partition that this ps serves has another copy that can be promoted, as soon as its ps is connected:
  // after a change of the leader it may not be yet.
  bool OthersServe(const Job& job, const NodeName& ps) const;
  // Those that hold partitions of the job although they must hold none.
  std::set<NodeName> LeavingHolders(const Job& job) const;

  // ---- workers ----
  int32_t FreeSlots(const ClusterNode& worker) const;
  bool MayWork(const Job& job, const ClusterNode& worker) const;
  // Whether the job can continue without this worker.
  bool OthersMayWork(const Job& job, const NodeName& worker) const;
  // Nodes for questions that any of them can answer: those that are drained, silent or far slower than the others are
  // not asked while there is another one. `job`: whose speeds count; null: nobody's. computes: only those that have its
  // compute_dtype.
  std::vector<ClusterNode*> Askable(v1::Role role, const Job* job, bool computes = false) const;
  // For files of the job; null: there is no worker.
  const ClusterNode* ChiefOrAnother(const Job& job) const;
  // Workers that may work for it and have the same kind of device; free: with a slot that nobody uses.
  size_t MostOfOneDevice(const Job& job, bool free) const;

  // ---- for the user ----
  // Why work is taken from a node; empty: it is there, and nothing is wrong with it.
  std::string TroubleText(const Job& job, const NodeName& name) const;
  // Set where nodes of that role are connected, but none of them supports the job's compute_dtype.
  std::string NobodyComputesText(const Job& job, v1::Role role) const;
  // Likewise of workers, with the kind of device that the job asks for.
  std::string NobodyFitsText(const Job& job) const;
  // Why another run of the running job may end with other bits.
  std::string BitsText(const Job& job) const;

 private:
  const CoordinatorOptions& options_;
  const StepContext& step_;
  const JobTable& jobs_;
  Nodes& nodes_;
};

}  // namespace cairn
