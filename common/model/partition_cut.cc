#include "common/model/partition_cut.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/model/constraint.h"
#include "common/model/optimizer_variables.h"
#include "common/model/penalty.h"
#include "common/model/spectral.h"
#include "common/model/step_plan.h"
#include "common/model/variable_fields.h"

namespace cairn {
namespace {

struct Span {
  int64_t begin = 0, end = 0;  // including the padding after the variable
};

// Of the variables with numbers in [begin, end), in order of the space.
std::vector<Span> WholeSpansOf(const Graph& graph, const v1::Optimizer& optimizer, int64_t begin, int64_t end) {
  std::map<int64_t, int64_t> ends;  // by their beginnings
  const std::vector<int> nodes = NodesWithin(graph, begin, end);
  if (nodes.empty()) return {};
  const auto& variables = graph.variables();
  const auto of = [&](int node) -> const std::vector<int>& {
    return graph.nodes()[static_cast<size_t>(node)].variables;
  };
  const Variable& first = variables[static_cast<size_t>(of(nodes.front()).front())];
  const Variable& last = variables[static_cast<size_t>(of(nodes.back()).back())];
  const int64_t whole_begin = first.offset, whole_end = last.offset + last.size;
  const auto add = [&](int64_t from, int64_t to) {
    from += whole_begin;
    to = (to + whole_begin + kSpaceAlignment - 1) / kSpaceAlignment * kSpaceAlignment;
    if (from < end && to > begin) ends[from] = std::max(ends[from], to);
  };
  for (const ConstraintRange& range : ConstraintRangesOf(graph, whole_begin, whole_end)) {
    if (range.constraint.kind() != v1::Constraint::NON_NEG) add(range.begin, range.end);
  }
  for (const PenaltyRange& range : PenaltyRangesOf(graph, whole_begin, whole_end)) {
    if (range.orthogonal != 0) add(range.begin, range.end);
  }
  for (const SpectralRange& range : SpectralRangesOf(graph, whole_begin, whole_end)) {
    add(range.kernel, range.vector + range.columns);
  }
  const WholeUpdates whole(optimizer);
  for (const Variable& v : variables) {
    if (v.offset >= whole_end) break;
    if (v.offset >= whole_begin && whole.Of(v)) add(v.offset - whole_begin, v.offset - whole_begin + v.size);
  }
  std::vector<Span> spans;
  for (const auto& [from, to] : ends) spans.push_back({from, to});
  return spans;
}

std::string Described(const Graph& graph, const Span& span) {
  for (const Variable& v : graph.variables()) {
    if (v.offset == span.begin) return absl::StrCat(v.name, " ", ToString(v.shape));
  }
  return "";
}

}  // namespace

absl::Status CheckWholeVariables(const Graph& graph, const v1::Optimizer& optimizer) {
  for (const Span& span : WholeSpansOf(graph, optimizer, 0, graph.space_size())) {
    if ((span.end - span.begin) * static_cast<int64_t>(sizeof(float)) <= kPartitionBytesMax) continue;
    return Bad("model: ", Described(graph, span), " has a constraint with a norm, the orthogonal regularizer, ",
               "spectral normalization, or an optimizer that updates it as a whole (lamb, adafactor, muon), for which "
               "one ps must have it whole, and ",
               "is larger than ", kPartitionBytesMax, " bytes; leave that out, or use a smaller layer");
  }
  return absl::OkStatus();
}

absl::Status CheckWholeVariables(const Graph& graph, const v1::Optimizer& optimizer, int64_t begin, int64_t end) {
  for (const Span& span : WholeSpansOf(graph, optimizer, begin, end)) {
    if (span.begin >= begin && span.end <= end) continue;
    return Bad("range [", begin, ",", end, ") cuts ", Described(graph, span), ", which must be whole");
  }
  return absl::OkStatus();
}

std::vector<v1::PartitionRange> CutPartitions(const Graph& graph, const v1::Optimizer& optimizer,
                                              int64_t partition_bytes) {
  std::set<int64_t> bounds;  // ends of partitions
  for (const v1::PartitionRange& range : CutPartitions(graph.space_size(), partition_bytes)) {
    bounds.insert(static_cast<int64_t>(range.end()));
  }
  for (const Span& span : WholeSpansOf(graph, optimizer, 0, graph.space_size())) {
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
