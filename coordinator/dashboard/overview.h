// The dashboard's first page as JSON: a row for each node, rows for some jobs, sums over all. Stays small where `cairn
// jobs --json` would be large.
//
// Pure; any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"

namespace cairn {

enum class JobsShown { kAll, kActive, kEnded };

struct OverviewPart {
  JobsShown jobs = JobsShown::kAll;
  size_t offset = 0;
  size_t limit = 50;      // of jobs
  std::string name;       // jobs whose name contains this, in any case
  size_t events = 0;      // the newest so many
  bool warnings = false;  // of events: warnings only
};

struct OverviewOf {
  std::string coordinator;  // its address
  double up_seconds = 0;
  absl::Time now;
  std::function<bool(const v1::NodeStatus&)> may_drain;  // whether the reader may; null: none
};

// jobs: newest first. Jobs that have not ended come before the others. events: the oldest first.
std::string OverviewJson(const OverviewOf& of, const std::vector<v1::NodeStatus>& nodes,
                         const std::vector<v1::JobStatus>& jobs, const v1::ListEventsResponse& events,
                         const OverviewPart& part);

}  // namespace cairn
