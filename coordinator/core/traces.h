// Traces: has nodes record what they do for a job, and asks them for it, for users who wait for the answers.
//
// Not thread-safe; one core owns it. Invariants:
//   1. A job has at most one trace at a time, and there are at most kTracesMax.
//   2. A trace ends by OnEnd, or when nobody has read it for kTraceUnreadMax; then its nodes are told.
//   3. At most kTraceReadsMax reads wait at a time, and kTraceReadsOfNodeMax for one node. Each is answered once: by
//      its node, when the node's session ends, or at its deadline.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/core/component.h"

namespace cairn {

class Traces : Component {
 public:
  explicit Traces(Ground& ground) : Component(ground) {}

  void OnStart(const StartTrace& event);
  void OnRead(const ReadTrace& event);
  void OnEnd(const EndTrace& event);
  void OnTraceRead(const ClusterNode& node, const v1::TraceRead& answer);
  void ReleaseNode(const NodeName& node);
  void Tick();

 private:
  struct Trace {
    uint64_t job = 0;
    int64_t steps = 0;  // as FetchTrace
    int32_t seconds = 0;
    std::string user;     // empty: nobody knows
    v1::JobStatus owned;  // whose the job is: its owner and groups; it may be deleted meanwhile
    absl::Time began, read;
    std::vector<NodeName> nodes;
  };
  struct Waiting {
    ReplyToken reply;
    uint64_t trace = 0;
    NodeName node;
    absl::Time asked;
  };

  absl::StatusOr<const Job*> FindJob(const v1::StartTraceRequest& request, const Requester& who) const;
  v1::TracedNode AddNode(Trace& trace, const NodeName& name) const;
  // Errors: NOT_FOUND, PERMISSION_DENIED.
  absl::StatusOr<Trace*> Find(uint64_t id, const Requester& who);
  absl::StatusOr<const ClusterNode*> NodeToAsk(const Trace& trace, const NodeName& name) const;
  void Forget(uint64_t id, const Trace& trace);

  std::map<uint64_t, Trace> traces_;     // by number
  std::map<uint64_t, Waiting> waiting_;  // by request id
};

}  // namespace cairn
