// Hosting: generations, and what each ps is told to hold in them.
//
// Not thread-safe; one core owns it. Invariants:
//   1. A generation is raised here alone, and stored before any ps is told of it.
//   2. A ps is told what it holds when that differs from what it was told last; one that was restarted serves nothing
//      before it is settled which of its copies are used (JobCopies::returned).
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

  // Partitions to the ps that are there. Only for a job that has not run: nothing is lost.
  void PlaceAnew(Job& job);
  void NewGeneration(Job& job, uint64_t at_least = 0);
  // Tells every ps what it has to hold, unless it was told already; anew: in a generation that it does not know.
  void HostAll(Job& job, bool anew);
  void Host(const Job& job, ClusterNode& ps, bool anew);
  // Whether this ps is to serve the partition.
  bool MarkReady(Job& job, const NodeName& ps, const v1::HeldPartition& held);
  // The copies begin with the image of the primary, whose weights are other ones from now on; those that are not there
  // cannot.
  void BeginCopiesAnew(Job& job);
  // A node that is away says what it holds when it comes back, and is told then.
  void DropFromNodes(uint64_t job_id, v1::Role role);

 private:
  StepContext& step_;
  JobTable& jobs_;
  Nodes& nodes_;
  const Candidates& candidates_;
};

}  // namespace cairn
