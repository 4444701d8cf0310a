#include "client/cli/trace_table.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/trace_writer.h"
#include "client/limits.h"

namespace cairn {
namespace {

struct Mean {
  double total_ms = 0;
  int64_t spans = 0;

  double ms() const { return spans == 0 ? 0 : total_ms / static_cast<double>(spans); }
};

struct Row {
  std::string name;
  std::map<v1::TraceKind, Mean> means;

  // The kind that a slow node is known by.
  double Heaviest(v1::Role role) const {
    const auto found = means.find(role == v1::PS ? v1::TRACE_APPLY : v1::TRACE_COMPUTE);
    return found == means.end() ? 0 : found->second.ms();
  }
};

Row RowOf(const NodeTrace& node) {
  Row row{.name = node.name, .means = {}};
  for (const v1::TraceSpan& span : node.spans) {
    const bool pass = span.kind() == v1::TRACE_FORWARD || span.kind() == v1::TRACE_BACKWARD;
    if (pass && !span.text().empty()) continue;  // of one layer
    Mean& mean = row.means[span.kind()];
    mean.total_ms += static_cast<double>(span.duration_ns()) / 1e6;
    ++mean.spans;
  }
  return row;
}

std::string TableOf(const char* title, v1::Role role, std::vector<Row> rows) {
  if (rows.empty()) return "";
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const Row& a, const Row& b) { return a.Heaviest(role) > b.Heaviest(role); });
  const size_t left_out = rows.size() - std::min(rows.size(), kTraceTableNodesMax);
  rows.resize(rows.size() - left_out);
  std::set<v1::TraceKind> kinds;
  int width = static_cast<int>(std::string(title).size());
  for (const Row& row : rows) {
    width = std::max(width, static_cast<int>(row.name.size()));
    for (const auto& [kind, mean] : row.means) kinds.insert(kind);
  }
  std::string table = absl::StrFormat("%-*s", width, title);
  for (const v1::TraceKind kind : kinds) absl::StrAppendFormat(&table, " %9s", TraceKindText(kind));
  absl::StrAppend(&table, "\n");
  for (const Row& row : rows) {
    absl::StrAppendFormat(&table, "%-*s", width, row.name);
    for (const v1::TraceKind kind : kinds) {
      const auto mean = row.means.find(kind);
      absl::StrAppendFormat(&table, " %9s", mean == row.means.end() ? "-" : absl::StrFormat("%.2f", mean->second.ms()));
    }
    absl::StrAppend(&table, "\n");
  }
  if (left_out > 0) absl::StrAppendFormat(&table, "and %d more\n", left_out);
  return table;
}

}  // namespace

std::string TraceTable(const CollectedTrace& trace) {
  std::vector<Row> workers, ps;
  for (const NodeTrace& node : trace.nodes) {
    if (!node.spans.empty()) (node.role == v1::PS ? ps : workers).push_back(RowOf(node));
  }
  const std::string table = TableOf("worker", v1::WORKER, std::move(workers)) + TableOf("ps", v1::PS, std::move(ps));
  return table.empty() ? "" : absl::StrCat("mean time of a span, in ms:\n", table);
}

}  // namespace cairn
