// The layers of the core above its ground: parts that do one thing together (component.h lists all, from the ground
// up). ClusterCore owns one of each, and hands events to the parts in them.
//
// A layer's parts use each other, the ground and the layers before it. It holds them in the order in which they are
// made; what they decide is their own.
#pragma once

#include "coordinator/core/assignments.h"
#include "coordinator/core/checkpoints.h"
#include "coordinator/core/component.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/copy_watch.h"
#include "coordinator/core/crash_loops.h"
#include "coordinator/core/drains.h"
#include "coordinator/core/endings.h"
#include "coordinator/core/epochs.h"
#include "coordinator/core/evaluations.h"
#include "coordinator/core/idle_ps.h"
#include "coordinator/core/model_files.h"
#include "coordinator/core/restores.h"
#include "coordinator/core/rollback.h"
#include "coordinator/core/schedule.h"

namespace cairn {

// The weights of jobs: which copies hold them, which of these serve, and from where they come back when they are lost.
struct PartitionLayer {
  PartitionLayer(Ground& ground, Endings& endings)
      : restores(ground, endings),
        rollback(ground, endings, restores),
        copies(ground, endings, restores),
        copy_watch(ground),
        idle_ps(ground) {}

  Restores restores;
  Rollback rollback;
  Copies copies;
  CopyWatch copy_watch;
  IdlePs idle_ps;
};

// Who computes: which workers may, which do, and when a job that waits for them starts.
struct WorkerLayer {
  WorkerLayer(Ground& ground, Endings& endings, const PartitionLayer& partitions)
      : crash_loops(ground, endings, partitions.copies),
        drains(ground, crash_loops),
        assignments(ground),
        schedule(ground, endings, assignments) {}

  CrashLoops crash_loops;
  Drains drains;
  Assignments assignments;
  Schedule schedule;
};

// What comes out of training, beside the weights: files, checkpoints, figures and decisions, predictions.
struct OutputLayer {
  OutputLayer(Ground& ground, Endings& endings, PartitionLayer& partitions, WorkerLayer& workers)
      : files(ground),
        checkpoints(ground, files),
        epochs(ground, endings, workers.assignments, files),
        evaluations(ground, partitions.copies) {}

  ModelFiles files;
  Checkpoints checkpoints;
  Epochs epochs;
  Evaluations evaluations;
};

}  // namespace cairn
