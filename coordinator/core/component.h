// Component: what every part of the core above the ground may use. The parts, from the ground up, the left column
// first:
//
//   StepContext   time, effects, domain events           Assignments   who computes which replica
//   JobTable      the jobs, as stored and shown          Schedule      the queue, how jobs start
//   Nodes         who is in the cluster                  ModelFiles    model files and summaries
//   Candidates    which nodes may work for a job         Checkpoints   what the chief wrote, the best one
//   Hosting       generations, what each ps holds        Epochs        figures, decisions at the end of epochs
//   Endings       how a job ends, how long it is kept    Evaluations   evaluate, predict, evaluators
//   Restores      partitions filled from a checkpoint    Reasons       why a job waits, as shown to users
//   Rollback      back to a common version               Submissions   jobs that come in
//   Copies        which copy serves; repair, moves       JobRuns       from ready partitions to the digest
//   CopyWatch     missing copies; readiness              Reconciler    what a node has, what it should have
//   CrashLoops    workers that die again and again       ClusterCore   dispatches events
//   Drains        nodes that must have no work
//
// A part calls only parts below it, and raises domain events for those above (StepContext): calls form no cycle
// (tests/lint/component_graph.py).
//
// Not thread-safe; one core owns all parts.
#pragma once

#include "coordinator/core/candidates.h"
#include "coordinator/core/hosting.h"
#include "coordinator/core/job_table.h"
#include "coordinator/core/nodes.h"
#include "coordinator/core/options.h"
#include "coordinator/core/step_context.h"

namespace cairn {

// All of these outlive the parts that use them.
struct Ground {
  const CoordinatorOptions& options;
  StepContext& step;
  JobTable& jobs;
  Nodes& nodes;
  const Candidates& candidates;
  Hosting& hosting;
};

class Component {
 protected:
  explicit Component(const Ground& ground)
      : options_(ground.options),
        step_(ground.step),
        jobs_(ground.jobs),
        nodes_(ground.nodes),
        candidates_(ground.candidates),
        hosting_(ground.hosting) {}
  Component(const Component&) = delete;
  Component& operator=(const Component&) = delete;
  ~Component() = default;

  const CoordinatorOptions& options_;
  StepContext& step_;
  JobTable& jobs_;
  Nodes& nodes_;
  const Candidates& candidates_;
  Hosting& hosting_;
};

}  // namespace cairn
