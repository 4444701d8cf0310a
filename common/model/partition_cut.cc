#include "common/model/partition_cut.h"

#include <map>
#include <set>
#include <string>

#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/model/constraint.h"
#include "common/model/penalty.h"
#include "common/model/step_plan.h"

namespace cairn {
namespace {

struct Span {
  int64_t begin = 0, end = 0;  // including the padding after the variable
};

// In order of the space.
std::vector<Span> WholeSpansOf(const Graph& graph) {
  std::map<int64_t, int64_t> ends;  // by their beginnings
  const auto add = [&](int64_t begin, int64_t end) {
    ends[begin] = (end + kSpaceAlignment - 1) / kSpaceAlignment * kSpaceAlignment;
  };
  for (const ConstraintRange& range : ConstraintRangesOf(graph, 0, graph.space_size())) {
    if (range.constraint.kind() != v1::Constraint::NON_NEG) add(range.begin, range.end);
  }
  for (const PenaltyRange& range : PenaltyRangesOf(graph, 0, graph.space_size())) {
    if (range.orthogonal != 0) add(range.begin, range.end);
  }
  std::vector<Span> spans;
  for (const auto& [begin, end] : ends) spans.push_back({begin, end});
  return spans;
}

std::string Described(const Graph& graph, const Span& span) {
  for (const Variable& v : graph.variables()) {
    if (v.offset == span.begin) return absl::StrCat(v.name, " ", ToString(v.shape));
  }
  return "";
}

}  // namespace

absl::Status CheckWholeVariables(const Graph& graph) {
  for (const Span& span : WholeSpansOf(graph)) {
    if ((span.end - span.begin) * static_cast<int64_t>(sizeof(float)) <= kPartitionBytesMax) continue;
    return Bad("model: ", Described(graph, span), " has a constraint with a norm or the orthogonal regularizer, for ",
               "which one ps must have it whole, and is larger than ", kPartitionBytesMax,
               " bytes; leave that out, or use a smaller layer");
  }
  return absl::OkStatus();
}

absl::Status CheckWholeVariables(const Graph& graph, int64_t begin, int64_t end) {
  for (const Span& span : WholeSpansOf(graph)) {
    const bool apart = span.end <= begin || span.begin >= end, whole = span.begin >= begin && span.end <= end;
    if (apart || whole) continue;
    return Bad("range [", begin, ",", end, ") cuts ", Described(graph, span), ", which must be whole");
  }
  return absl::OkStatus();
}

std::vector<v1::PartitionRange> CutPartitions(const Graph& graph, int64_t partition_bytes) {
  std::set<int64_t> bounds;  // ends of partitions
  for (const v1::PartitionRange& range : CutPartitions(graph.space_size(), partition_bytes)) {
    bounds.insert(static_cast<int64_t>(range.end()));
  }
  for (const Span& span : WholeSpansOf(graph)) {
    const auto first = bounds.upper_bound(span.begin), last = bounds.lower_bound(span.end);
    if (first == last) continue;
    bounds.erase(first, last);
    if (span.begin > 0) bounds.insert(span.begin);
    bounds.insert(span.end);
  }
  std::vector<v1::PartitionRange> ranges;
  int64_t begin = 0;
  for (const int64_t end : bounds) {
    v1::PartitionRange& range = ranges.emplace_back();
    range.set_partition(static_cast<uint32_t>(ranges.size() - 1));
    range.set_begin(begin);
    range.set_end(end);
    begin = end;
  }
  return ranges;
}

}  // namespace cairn
