// The coordinator's core with a large cluster: do membership, placement and heartbeats scale?
//
// The nodes are minimal: they join, send heartbeats, answer every command at once, and a few die and
// come back.
#pragma once

#include <cstdint>
#include <string>

namespace cairn::sim {

struct ScaleResult {
  std::string violation;  // empty: every job ran on all nodes that it should
  uint64_t events = 0;    // steps of the core
  double cpu_seconds = 0;
  double virtual_seconds = 0;
  double worst_step_ms = 0;   // the longest single step
  double steady_percent = 0;  // of a core, once all nodes have joined and all jobs are submitted
  std::string text;           // all figures in one line
};

struct ScaleOptions {
  int nodes = 1000;  // a fifth of them are ps, the others workers
  uint64_t seed = 1;
  int jobs = 4;  // share the nodes for 30 s
  bool small =
      false;      // one replica and a few partitions each; else each has its share of all nodes, and a model of 16 MB
  int slots = 2;  // per worker; if they are too few for the replicas of small jobs, jobs wait
  int min_workers = 0;  // of each job; more than exist: all jobs wait
};

ScaleResult SimulateScale(const ScaleOptions& options);

}  // namespace cairn::sim
