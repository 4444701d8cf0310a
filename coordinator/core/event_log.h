// EventLog: what happened in the cluster, in memory, for people who look for a cause (`cairn events`). A job's own
// events are also stored with the job (JobTable::Tell).
//
// Not thread-safe; StepContext owns it. Invariants:
//   1. It holds at most kClusterEventsKept events and kClusterEventsBytesKept bytes of text: the newest ones.
//   2. Events are numbered from 1, in the order in which they happened; numbers have no gap.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "cairn/v1/observe.pb.h"
#include "coordinator/core/cluster_node.h"
#include "coordinator/core/events.h"

namespace cairn {

inline EventSubject OfJob(uint64_t job) { return {.job = job}; }
inline EventSubject OfNode(const ClusterNode& node) { return {.role = node.role, .node = node.name}; }

// As it stands in the log: "job 3: waits", "ps \"ps-0\" is lost".
std::string LogText(const LogLine& line);

class EventLog {
 public:
  // began: when the coordinator began to lead. term: random, new for each time.
  EventLog(absl::Time began, uint64_t term) : began_(began), term_(term) {}

  void Add(absl::Time now, const LogLine& line);
  // may_see: whether the caller may see what happened to the job; 0: to the whole cluster. name_of: the job's name;
  // empty: it is gone.
  v1::ListEventsResponse List(const v1::ListEventsRequest& request, const std::function<bool(uint64_t job)>& may_see,
                              const std::function<std::string(uint64_t job)>& name_of) const;

 private:
  const absl::Time began_;
  const uint64_t term_;
  std::deque<v1::ClusterEvent> events_;
  size_t bytes_ = 0;
  uint64_t last_ = 0;
};

}  // namespace cairn
