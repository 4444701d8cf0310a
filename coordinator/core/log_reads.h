// LogReads: asks nodes for lines of their logs, for users who wait for the answer.
//
// Not thread-safe; one core owns it. Invariants:
//   1. At most kLogReadsMax wait at a time, and kLogReadsOfNodeMax for one node.
//   2. Each is answered once: by its node, when the node's session ends, or at its deadline.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/core/component.h"

namespace cairn {

class LogReads : Component {
 public:
  explicit LogReads(Ground& ground) : Component(ground) {}

  // Whether `who` may read lines of the job, or (0) all lines. Errors: NOT_FOUND, PERMISSION_DENIED.
  absl::Status CheckAccess(uint64_t job_id, const Requester& who) const;
  void OnReadLog(const ReadLog& event);
  void OnLogRead(const ClusterNode& node, const v1::LogRead& answer);
  void ReleaseNode(const NodeName& node);
  void Tick();

 private:
  struct Waiting {
    ReplyToken reply;
    NodeName node;
    absl::Time deadline;
  };
  absl::Status Check(const ReadLog& event) const;

  std::map<uint64_t, Waiting> waiting_;  // by request id
};

}  // namespace cairn
