#include "client/cli/trace_collector.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/limits.h"

namespace cairn {
namespace {

constexpr int64_t kNotKnown = std::numeric_limits<int64_t>::max();

bool EndsTheTrace(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsPermissionDenied(status) || absl::IsInvalidArgument(status) ||
         absl::IsUnimplemented(status);
}

// The node's clock was read between the coordinator's two times.
void CompareClocks(const v1::ReadTraceResponse& answer, NodeTrace* trace) {
  const int64_t way = std::max<int64_t>(answer.answered_ns() - answer.asked_ns(), 0);
  const int64_t uncertainty = way / 2 + 1;
  if (trace->offset_ns && trace->uncertainty_ns <= uncertainty) return;
  trace->uncertainty_ns = uncertainty;
  trace->offset_ns = answer.node_ns() - (answer.asked_ns() + way / 2);
}

}  // namespace

TraceCollector::TraceCollector(Read read, const v1::StartTraceResponse& started, int64_t steps)
    : read_(std::move(read)), trace_(started.trace_id()), synchronous_(started.synchronous()), steps_(steps) {
  for (const v1::TracedNode& traced : started.nodes()) {
    Node& node = nodes_.emplace_back();
    node.trace.name = traced.name();
    node.trace.role = traced.role();
    node.trouble = traced.lacks();
    node.asked = traced.lacks().empty();
  }
  std::sort(nodes_.begin(), nodes_.end(), [](const Node& a, const Node& b) {
    const bool a_works = a.trace.role == v1::WORKER, b_works = b.trace.role == v1::WORKER;
    return a_works != b_works ? a_works : a.trace.name < b.trace.name;
  });
}

absl::Status TraceCollector::Round(absl::Time now, bool stop) {
  for (Node& node : nodes_) {
    if (node.asked && now >= node.again) CAIRN_RETURN_IF_ERROR(Ask(node, now, stop));
  }
  return absl::OkStatus();
}

absl::Status TraceCollector::Ask(Node& node, absl::Time now, bool stop) {
  for (int answers = 0; answers < kTraceAnswersOfRoundMax; ++answers) {
    v1::ReadTraceRequest request;
    request.set_trace_id(trace_);
    request.set_node(node.trace.name);
    request.set_after(node.received);
    request.set_stop(stop);
    absl::StatusOr<v1::ReadTraceResponse> answer = read_(request);
    if (!answer.ok() && EndsTheTrace(answer.status())) return answer.status();
    if (!answer.ok()) {
      node.trouble = std::string(answer.status().message());
      node.again = now + kTraceAskAgain;
      return absl::OkStatus();
    }
    node.trouble.clear();
    node.forgot = node.forgot || (node.began_ns && *node.began_ns != answer->began_ns());
    if (node.began_ns && *node.began_ns != answer->began_ns()) BeginAnew(node);
    node.began_ns = answer->began_ns();
    CompareClocks(*answer, &node.trace);
    node.dropped = answer->dropped();
    node.ended = answer->ended();
    job_ended_ = job_ended_ || answer->job_ended();
    if (!answer->spans().empty()) node.received = answer->first() + static_cast<uint64_t>(answer->spans_size()) - 1;
    for (v1::TraceSpan& span : *answer->mutable_spans()) {
      if (kept_ < kTraceSpansCollectedMax) {
        Note(node, span);
        node.trace.spans.push_back(std::move(span));
        ++kept_;
      } else {
        ++beyond_;
      }
    }
    if (node.received >= answer->last() || answer->spans().empty()) return absl::OkStatus();
  }
  return absl::OkStatus();
}

// Another process, perhaps with another clock: what was received keeps its times.
void TraceCollector::BeginAnew(Node& node) {
  std::vector<v1::TraceSpan>& spans = node.trace.spans;
  for (; node.aligned < spans.size(); ++node.aligned) {
    v1::TraceSpan& span = spans[node.aligned];
    span.set_begin_ns(span.begin_ns() - node.trace.offset_ns.value_or(0));
  }
  node.trace.offset_ns.reset();
  node.received = 0;
}

void TraceCollector::Note(Node& node, const v1::TraceSpan& span) {
  if (span.kind() == v1::TRACE_DECODE) return decoded_[span.replica()].Add(span.step());
  if (span.kind() == v1::TRACE_COMPUTE) decoded_[span.replica()];  // its batches are to be there, too
  node.first = std::min(node.first.value_or(span.step()), span.step());
  node.newest = std::max(node.newest.value_or(span.step()), span.step());
}

std::optional<int64_t> TraceCollector::DecodedSteps::AllFrom() {
  if (steps_.empty()) return std::nullopt;
  int64_t from = *steps_.rbegin();
  while (from > end_ + 1 && steps_.contains(from - 1)) --from;
  if (from <= end_ + 1) from = std::min(from, begin_);  // what was known before goes on
  while (steps_.contains(from - 1)) --from;
  begin_ = from;
  end_ = *steps_.rbegin();
  return from;
}

// Of the first step that a node has spans of, it may have recorded a part only.
int64_t TraceCollector::FirstWhole(bool with_decoding) {
  int64_t first = 0;
  for (const Node& node : nodes_) {
    if (node.first) first = std::max(first, *node.first + 1);
  }
  if (!with_decoding) return first;
  for (auto& [replica, steps] : decoded_) {
    const std::optional<int64_t> from = steps.AllFrom();
    if (!from) return kNotKnown;
    first = std::max(first, *from + 1);
  }
  return first;
}

int64_t TraceCollector::LastWhole() const {
  int64_t last = std::numeric_limits<int64_t>::max();
  for (const Node& node : nodes_) {
    // Its work may have gone elsewhere; what there is of it is shown.
    if (!node.newest || !node.trouble.empty() || node.forgot) continue;
    last = std::min(last, job_ended_ ? *node.newest : *node.newest - 1);
  }
  return last == std::numeric_limits<int64_t>::max() ? -1 : last;
}

bool TraceCollector::Done() {
  const int64_t first_whole = synchronous_ ? FirstWhole(/*with_decoding=*/true) : 0;
  bool any = false;
  for (const Node& node : nodes_) {
    if (!node.asked || !node.trouble.empty()) continue;
    any = true;
    if (node.ended) continue;
    if (!node.newest && node.trace.role == v1::WORKER && synchronous_) return false;
    // An asynchronous job: a ps counts updates.
    if (!node.newest || (!synchronous_ && node.trace.role != v1::WORKER)) continue;
    if (*node.newest - steps_ < (synchronous_ ? first_whole : *node.first + 1)) return false;
  }
  const bool worked = std::any_of(nodes_.begin(), nodes_.end(), [](const Node& n) { return n.newest || n.ended; });
  return any && worked;
}

bool TraceCollector::Enough() {
  return !synchronous_ || LastWhole() - FirstWhole(/*with_decoding=*/true) + 1 >= steps_;
}

bool TraceCollector::AllEnded() const {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [](const Node& node) { return !node.asked || !node.trouble.empty() || node.ended; });
}

bool TraceCollector::Asks(const std::set<std::string>& working) const {
  std::set<std::string> known;
  for (const Node& node : nodes_) {
    known.insert(node.trace.name);
    if (node.asked && node.trouble.empty() && !node.forgot && !working.contains(node.trace.name)) return false;
  }
  return std::includes(known.begin(), known.end(), working.begin(), working.end());
}

std::string TraceCollector::MissingOf(const Node& node, uint64_t left) const {
  std::vector<std::string> missing;
  if (!node.trouble.empty()) missing.push_back(node.trouble);
  if (node.forgot) missing.emplace_back("it lost its session and what it had recorded until then");
  if (node.dropped > 0) missing.push_back(absl::StrFormat("%d spans: its buffer was full", node.dropped));
  if (left == 0 && missing.empty()) missing.emplace_back("it has done nothing in these steps");
  return absl::StrJoin(missing, "; ");
}

CollectedTrace TraceCollector::Take() {
  CollectedTrace collected;
  collected.synchronous = synchronous_;
  if (synchronous_) {
    const int64_t last = LastWhole();
    collected.first_step = FirstWhole(/*with_decoding=*/true);
    if (collected.first_step > last) collected.first_step = FirstWhole(/*with_decoding=*/false);
    collected.last_step = std::min(collected.first_step + steps_ - 1, last);
  }
  bool any = false;
  for (Node& node : nodes_) {
    std::vector<v1::TraceSpan>& spans = node.trace.spans;
    for (size_t i = 0; i < node.aligned; ++i)  // by the node's clock, as the others
      spans[i].set_begin_ns(spans[i].begin_ns() + node.trace.offset_ns.value_or(0));
    if (synchronous_) {
      std::erase_if(spans, [&](const v1::TraceSpan& span) {
        return span.step() < collected.first_step || span.step() > collected.last_step;
      });
    } else if (node.trace.role == v1::WORKER && node.first) {  // the steps of its replicas
      collected.first_step = any ? std::min(collected.first_step, *node.first) : *node.first;
      collected.last_step = any ? std::max(collected.last_step, *node.newest) : *node.newest;
      any = true;
    }
    node.trace.missing = MissingOf(node, spans.size());
    if (beyond_ > 0 && &node == &nodes_.back()) {
      absl::StrAppend(&node.trace.missing, node.trace.missing.empty() ? "" : "; ", beyond_,
                      " spans of all nodes: a trace has at most ", kTraceSpansCollectedMax);
    }
    collected.nodes.push_back(std::move(node.trace));
  }
  return collected;
}

}  // namespace cairn
