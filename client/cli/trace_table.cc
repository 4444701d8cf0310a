#include "client/cli/trace_table.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/limits.h"
#include "common/model/role_text.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

struct Mean {
  double total_ms = 0;
  int64_t spans = 0;

  void Add(double ms) {
    total_ms += ms;
    ++spans;
  }
  double ms() const { return spans == 0 ? 0 : total_ms / static_cast<double>(spans); }
};

// The mean time from the beginning of a replica's step to that of its next one; of a single step, to the end of its
// last span. Unset: the node computes none.
std::optional<double> StepTime(const NodeTrace& node) {
  std::map<int32_t, std::map<int64_t, int64_t>> begins_ns;  // by replica and step, of what it computes
  std::map<int64_t, int64_t> ends_ns;                       // by step, of all that the node does in it
  for (const v1::TraceSpan& span : node.spans) {
    if (span.kind() == v1::TRACE_DECODE) continue;  // ahead of its step
    const int64_t end_ns = span.begin_ns() + span.duration_ns();
    int64_t& end = ends_ns.emplace(span.step(), end_ns).first->second;
    end = std::max(end, end_ns);
    if (span.kind() != v1::TRACE_COMPUTE) continue;
    int64_t& begin = begins_ns[span.replica()].emplace(span.step(), span.begin_ns()).first->second;
    begin = std::min(begin, span.begin_ns());
  }
  Mean mean;
  for (const auto& [replica, steps] : begins_ns) {
    const auto& [first, begun_ns] = *steps.begin();
    const auto& [last, last_begun_ns] = *steps.rbegin();
    const int64_t ns = last > first ? (last_begun_ns - begun_ns) / (last - first) : ends_ns.at(first) - begun_ns;
    mean.Add(static_cast<double>(ns) / 1e6);
  }
  return mean.spans == 0 ? std::nullopt : std::optional(mean.ms());
}

struct Row {
  std::string name;
  std::map<v1::TraceKind, Mean> means;
  std::optional<double> step_ms;

  // The kind that a slow node is known by.
  double Heaviest(v1::Role role) const {
    const auto found = means.find(role == v1::PS ? v1::TRACE_APPLY : v1::TRACE_COMPUTE);
    return found == means.end() ? 0 : found->second.ms();
  }
};

bool IsOfLayer(const v1::TraceSpan& span) {
  return (span.kind() == v1::TRACE_FORWARD || span.kind() == v1::TRACE_BACKWARD) && !span.text().empty();
}

Row RowOf(const NodeTrace& node) {
  Row row{.name = node.name, .means = {}, .step_ms = StepTime(node)};
  for (const v1::TraceSpan& span : node.spans) {
    if (IsOfLayer(span)) continue;
    row.means[span.kind()].Add(static_cast<double>(span.duration_ns()) / 1e6);
  }
  return row;
}

struct LayerRow {
  std::string name;
  double forward_ms = 0, backward_ms = 0;  // means of a replica's step, of those that have layers

  double ms() const { return forward_ms + backward_ms; }
};

// The slowest first.
std::vector<LayerRow> LayersOf(const CollectedTrace& trace) {
  std::map<std::string, LayerRow> layers;
  std::set<std::tuple<std::string, int32_t, int64_t>> steps;  // by node, replica and step
  for (const NodeTrace& node : trace.nodes) {
    for (const v1::TraceSpan& span : node.spans) {
      if (!IsOfLayer(span)) continue;
      steps.emplace(node.name, span.replica(), span.step());
      LayerRow& layer = layers[span.text()];
      (span.kind() == v1::TRACE_FORWARD ? layer.forward_ms : layer.backward_ms) +=
          static_cast<double>(span.duration_ns()) / 1e6;
    }
  }
  std::vector<LayerRow> slowest;
  const double count = static_cast<double>(std::max<size_t>(1, steps.size()));
  for (auto& [name, layer] : layers) slowest.push_back({name, layer.forward_ms / count, layer.backward_ms / count});
  std::stable_sort(slowest.begin(), slowest.end(), [](const auto& a, const auto& b) { return a.ms() > b.ms(); });
  slowest.resize(std::min(slowest.size(), kTraceTableLayersMax));
  return slowest;
}

std::string LayersTable(const std::vector<LayerRow>& layers) {
  if (layers.empty()) return "";
  size_t width = 5;  // "layer"
  for (const LayerRow& layer : layers) width = std::max(width, layer.name.size());
  const int indent = static_cast<int>(width);
  std::string table = absl::StrFormat("slowest layers, mean time in a replica's step, in ms:\n%-*s %9s %9s %9s\n",
                                      indent, "layer", "forward", "backward", "both");
  for (const LayerRow& layer : layers) {
    absl::StrAppendFormat(&table, "%-*s %9.2f %9.2f %9.2f\n", indent, layer.name, layer.forward_ms, layer.backward_ms,
                          layer.ms());
  }
  return table;
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
  const bool steps = role != v1::PS;
  absl::StrAppendFormat(&table, "%s\n", steps ? absl::StrFormat(" %9s", "step") : "");
  for (const Row& row : rows) {
    absl::StrAppendFormat(&table, "%-*s", width, row.name);
    for (const v1::TraceKind kind : kinds) {
      const auto mean = row.means.find(kind);
      absl::StrAppendFormat(&table, " %9s", mean == row.means.end() ? "-" : absl::StrFormat("%.2f", mean->second.ms()));
    }
    if (steps) absl::StrAppendFormat(&table, " %9s", row.step_ms ? absl::StrFormat("%.2f", *row.step_ms) : "-");
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
  if (table.empty()) return "";
  return absl::StrCat("mean time of a span, and of a step, in ms:\n", table, LayersTable(LayersOf(trace)));
}

std::string TraceSummaryJson(const CollectedTrace& trace, const TraceAbout& about, const std::string& file) {
  Json object = {
      {"job_id", about.job_id},           {"job_name", about.job_name},     {"file", file},
      {"steps_wanted", about.steps},      {"first_step", trace.first_step}, {"last_step", trace.last_step},
      {"synchronous", trace.synchronous}, {"nodes", Json::array()},         {"slowest_layers", Json::array()}};
  for (const NodeTrace& node : trace.nodes) {
    const Row row = RowOf(node);
    Json means = Json::object();
    for (const auto& [kind, mean] : row.means) means[TraceKindText(kind)] = mean.ms();
    object["nodes"].push_back({{"name", node.name},
                               {"role", RoleText(node.role)},
                               {"spans", node.spans.size()},
                               {"missing", node.missing},
                               {"mean_ms", std::move(means)},
                               {"step_ms", row.step_ms ? Json(*row.step_ms) : Json()}});
  }
  for (const LayerRow& layer : LayersOf(trace)) {
    object["slowest_layers"].push_back(
        {{"layer", layer.name}, {"forward_ms", layer.forward_ms}, {"backward_ms", layer.backward_ms}});
  }
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cairn
