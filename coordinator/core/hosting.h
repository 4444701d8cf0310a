// Hosting: generations, and what each ps is told to hold in them.
//
// Not thread-safe; one core owns it. Invariants:
//   1. Generations are raised only here, and stored before any ps is told.
//   2. A ps is told what to hold when that differs from what it was told last; a restarted ps serves nothing until the
//      core has decided which of its copies are used (JobCopies::returned).
//   3. Partitions of a job that has run are never placed again.
#pragma once

#include <cstdint>

#include "coordinator/core/candidates.h"
#include "coordinator/core/job.h"
#include "coordinator/core/job_table.h"
#include "coordinator/core/nodes.h"
#include "coordinator/core/step_context.h"

namespace cairn {

class Hosting {
 public:
  // All outlive it.
  Hosting(StepContext& step, JobTable& jobs, Nodes& nodes, const Candidates& candidates)
      : step_(step), jobs_(jobs), nodes_(nodes), candidates_(candidates) {}

  // Places all partitions on the present ps. Only for a job that has not run, so that no update is lost.
  void PlaceAnew(Job& job);
  void NewGeneration(Job& job, uint64_t at_least = 0);
  // Tells every ps what to hold, unless it was told already. anew: in a generation that the ps does not know yet.
  void HostAll(Job& job, bool anew);
  void Host(const Job& job, ClusterNode& ps, bool anew);
  // Records that the partition is ready. False: another ps is its primary, and nothing is recorded.
  bool MarkReady(Job& job, const NodeName& ps, const v1::HeldPartition& held);
  // The primary's weights are replaced: its backups start again from its image, and backups on ps that are not usable
  // are removed.
  void BeginCopiesAnew(Job& job);
  // Sends DropJob to all connected nodes of that role. A node that is away reports what it holds when it comes back.
  void DropFromNodes(uint64_t job_id, v1::Role role, bool cancelled = false);

 private:
  void Host(const Job& job, ClusterNode& ps, const std::vector<int>& partitions, bool anew);
  bool Unsettled(const Job& job, const NodeName& ps) const;

  StepContext& step_;
  JobTable& jobs_;
  Nodes& nodes_;
  const Candidates& candidates_;
};

}  // namespace cairn
