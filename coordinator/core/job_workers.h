// JobWorkers: what the core knows of the workers of one job beside its replicas (JobStatus.replicas): which are slower
// than the others, which end again and again, and which cannot work for it. Each struct is written by its owner, as
// job_parts.h says.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "coordinator/core/stragglers.h"

namespace cairn {

// Assignments: workers that are slower than the others.
struct JobStragglers {
  StragglerWatch watch;
  absl::Time looked_at = absl::InfinitePast();
  absl::Time relieve_at = absl::InfinitePast();  // no relief before this time
};

// Assignments: whom its commands concern.
struct JobTold {
  std::set<NodeName> workers;  // all that have replicas of the job or were told of it; others too

  // As it says itself.
  void Runs(const NodeName& worker) { workers.insert(worker); }
};

// CrashLoops: how often a worker's process ended at the present step. Stored.
struct JobCrashLoops {
  struct Ends {
    int64_t step = 0;
    int times = 0;
    bool gone = false;  // has not come back since the last end
  };
  std::map<NodeName, Ends> ends;
};

// Candidates: nodes that cannot work for the job. Stored.
struct JobLeftOut {
  struct Node {
    uint64_t incarnation = 0;  // a restart may have mended it
    std::string why;
    bool crash_loop = false;  // its process ended again and again
  };
  std::map<NodeName, Node> nodes;

  void Add(const NodeName& node, uint64_t incarnation, std::string why) { nodes[node] = {incarnation, std::move(why)}; }
  void AddCrashLoop(const NodeName& node, uint64_t incarnation, std::string why) {
    nodes[node] = {incarnation, std::move(why), /*crash_loop=*/true};
  }
  // Returns those that were left out for their crashes, and that no longer are.
  std::vector<NodeName> ForgiveCrashLoops() {
    std::vector<NodeName> forgiven;
    std::erase_if(nodes, [&](const auto& n) {
      if (n.second.crash_loop) forgiven.push_back(n.first);
      return n.second.crash_loop;
    });
    return forgiven;
  }
};

struct JobWorkers {
  JobStragglers stragglers;
  JobTold told;
  JobCrashLoops crash_loops;
  JobLeftOut left_out;
};

}  // namespace cairn
