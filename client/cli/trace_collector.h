// TraceCollector: the spans that the nodes of a job record, until each has done the steps that are wanted, with the
// clocks of the nodes compared with the coordinator's.
//
// One thread. Invariants:
//   1. Each span is taken once.
//   2. At most kTraceSpansCollectedMax spans are kept; those beyond are counted.
//   3. A node that does not answer is asked again at most every kTraceAskAgain, and is never waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/observe.pb.h"
#include "common/base/status.h"

namespace cairn {

inline constexpr absl::Duration kTraceAskAgain = absl::Seconds(2);

struct NodeTrace {
  std::string name;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::vector<v1::TraceSpan> spans;  // by the node's clock
  // The node's clock less the coordinator's Unix time, and how far that may be off; nullopt: it never answered.
  std::optional<int64_t> offset_ns;
  int64_t uncertainty_ns = 0;
  std::string missing;  // what is missing of it, and why; empty: nothing
};

struct CollectedTrace {
  bool synchronous = true;                 // else each replica counts its own steps, and a ps its updates
  int64_t first_step = 0, last_step = -1;  // last < first: there is no whole step
  std::vector<NodeTrace> nodes;            // workers first, then by name
};

class TraceCollector {
 public:
  using Read = std::function<absl::StatusOr<v1::ReadTraceResponse>(const v1::ReadTraceRequest&)>;

  TraceCollector(Read read, const v1::StartTraceResponse& started, int64_t steps);

  // Asks each node for what it has recorded since. stop: it is to record no more. Errors: the trace has ended, or the
  // caller may not read it; what was taken stays.
  absl::Status Round(absl::Time now, bool stop);
  // Whether another round would bring nothing that is wanted: every node that works has done the steps, or has ended.
  bool Done();
  bool job_ended() const { return job_ended_; }
  // Whether the steps that are wanted are there whole.
  bool Enough();
  // Whether no node that answers records any more.
  bool AllEnded() const;
  // Whether these, the nodes that work for the job now, are those that it asks. Else a step that they do is never
  // whole: replicas or partitions have moved. A node that does not answer need not be one of them.
  bool Asks(const std::set<std::string>& working) const;
  // After the last round. Spans of other steps are left out.
  CollectedTrace Take();

 private:
  struct Node {
    NodeTrace trace;
    bool asked = true;  // it can record
    uint64_t received = 0;
    std::optional<int64_t> began_ns;
    size_t aligned = 0;   // so many of its spans, of earlier starts, are by the coordinator's clock already
    bool forgot = false;  // it began anew
    uint64_t dropped = 0;
    bool ended = false;
    std::string trouble;  // of the last time that it was asked
    absl::Time again = absl::InfinitePast();
    std::optional<int64_t> first, newest;  // steps of its spans, but for decoding, which is ahead of them
  };
  // The steps whose batches of one replica were decoded, wherever it is computed: before the trace began, some were
  // ahead already.
  class DecodedSteps {
   public:
    void Add(int64_t step) { steps_.insert(step); }
    // From which step on all of them are there; nullopt: none is.
    std::optional<int64_t> AllFrom();

   private:
    std::set<int64_t> steps_;
    int64_t begin_ = 0, end_ = -1;  // [begin, end] are there
  };

  absl::Status Ask(Node& node, absl::Time now, bool stop);
  static void BeginAnew(Node& node);
  void Note(Node& node, const v1::TraceSpan& span);
  // The first step of which every node has recorded all. with_decoding: the decoding of its batches, too; the largest
  // number where that is not known yet.
  int64_t FirstWhole(bool with_decoding);
  // The last one.
  int64_t LastWhole() const;
  std::string MissingOf(const Node& node, uint64_t left) const;

  const Read read_;
  const uint64_t trace_;
  const bool synchronous_;
  const int64_t steps_;
  std::vector<Node> nodes_;
  std::map<int32_t, DecodedSteps> decoded_;  // by replica; of those that are computed, too
  size_t kept_ = 0;                          // spans
  uint64_t beyond_ = 0;                      // spans that were not kept
  bool job_ended_ = false;
};

}  // namespace cairn
