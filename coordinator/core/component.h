// Component: what every part of the core above the ground may use. The parts, from the ground up, the left column
// first; layers.h has those of a layer together:
//
//   Ground                                               WorkerLayer
//     StepContext   time, effects, domain events           CrashLoops    workers that die again and again
//     JobTable      the jobs, as stored and shown          Drains        nodes that must have no work
//     Nodes         who is in the cluster                  Assignments   who computes which replica
//     Candidates    which nodes may work for a job         Schedule      the queue, how jobs start
//     Hosting       generations, what each ps holds      OutputLayer
//   Endings         how a job ends, how long it is kept    ModelFiles    model files and summaries
//   PartitionLayer                                         Checkpoints   what the chief wrote, the best one
//     Restores      partitions filled from a checkpoint    Epochs        figures, decisions at the end of epochs
//     Rollback      back to a common version               Evaluations   evaluate, predict, evaluators
//     Copies        which copy serves; repair, moves     Reasons         why a job waits, as shown to users
//     CopyWatch     missing copies; readiness            Submissions     jobs that come in
//     IdlePs        ps that join and take nothing        JobRuns         from ready partitions to the digest
//   Tokens          who may log in with what
//                                                        Reconciler      what a node has, what it should have
//                                                        LogReads        lines of nodes' logs, for users
//                                                        Traces          spans of nodes' steps, for users
//                                                        StepDigests     digests of steps, for replays
//                                                        ClusterCore     dispatches events
//
// A part calls only parts below it, and raises domain events for those above (StepContext): calls form no cycle
// (tests/lint/component_graph.py).
//
// Not thread-safe; one core owns all parts.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "coordinator/core/candidates.h"
#include "coordinator/core/hosting.h"
#include "coordinator/core/job_table.h"
#include "coordinator/core/nodes.h"
#include "coordinator/core/options.h"
#include "coordinator/core/step_context.h"

namespace cairn {

// What the parts stand on. Each member uses those above it; all outlive the parts.
struct Ground {
  // valid_options: are copied. incarnation: of this coordinator.
  Ground(const CoordinatorOptions& valid_options, uint64_t incarnation, const StoredState& stored, absl::Time now)
      : options(valid_options),
        step(incarnation, now),
        jobs(options, stored, step),
        nodes(options, incarnation, stored, step, jobs),
        candidates(options, step, jobs, nodes),
        hosting(step, jobs, nodes, candidates) {}
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;

  const CoordinatorOptions options;
  StepContext step;
  JobTable jobs;
  Nodes nodes;
  const Candidates candidates;
  Hosting hosting;
};

class Component {
 protected:
  explicit Component(Ground& ground)
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
