#include "client/cli/nodes_table.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/version.h"
#include "common/model/role_text.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

std::string WorkText(const v1::NodeStatus& node) {
  if (node.role() == v1::WORKER) return absl::StrFormat("%d of %s", node.slots_used(), CountText(node.slots(), "slot"));
  if (node.role() != v1::PS) return "";
  // Those of ended jobs are kept, and cost no time. A ps with nothing else does not show "0 partitions": who drains it
  // waits for that.
  const int partitions = node.partitions() - node.ended_partitions();
  const int primaries = node.primaries() - node.ended_primaries();
  const std::string ended = CountText(node.ended_partitions(), "partition");
  if (partitions == 0 && node.ended_partitions() > 0) return absl::StrCat(ended, " of ended jobs");
  std::string text = partitions == primaries
                         ? CountText(partitions, "partition")
                         : absl::StrFormat("%d %s, %s", primaries, primaries == 1 ? "primary" : "primaries",
                                           CountText(partitions - primaries, "backup"));
  if (node.ended_partitions() > 0) absl::StrAppend(&text, ", and ", ended, " of ended jobs");
  return text;
}

std::string SeenText(const v1::NodeStatus& node, absl::Time now) {
  if (node.alive())
    return !node.fault().empty()      ? "failed"
           : node.draining()          ? "draining"
           : node.not_ready().empty() ? "alive"
                                      : "alive, not ready";
  if (node.expected()) return "not heard of yet";
  return absl::StrFormat("dead for %s", ShortDuration(now - absl::FromUnixMillis(node.last_heartbeat_unix_ms())));
}

// Of one processor: 150 % is one and a half.
std::string CpuText(const v1::NodeStatus& node) {
  return node.has_processors() ? absl::StrFormat("%.0f%%", 100 * node.processors()) : "";
}

// Omits the local socket, which --json shows.
std::string TcpAddress(const v1::NodeStatus& node) { return node.address().substr(0, node.address().find(',')); }

// While a cluster is upgraded: who is what. Nothing, if all live nodes are the same.
std::string VersionsText(const std::vector<v1::NodeStatus>& nodes) {
  std::map<std::string, std::vector<std::string>> names;  // by program
  for (const v1::NodeStatus& node : nodes) {
    if (node.alive()) names[ProgramText(node.version(), InterfaceOf(node.interface()))].push_back(node.name());
  }
  if (names.size() < 2) return "";
  std::string text = "programs of several releases:\n";
  for (const auto& [program, which] : names)
    absl::StrAppend(&text, "  ", program, ": ", absl::StrJoin(which, ", "), "\n");
  return text;
}

}  // namespace

std::string NodesLines(const std::vector<v1::NodeStatus>& nodes, absl::Time now) {
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "ROLE", "STATE", "WORK", "CPU", "MEMORY", "HOST", "ADDRESS", "DEVICE"}};
  for (const v1::NodeStatus& node : nodes) {
    rows.push_back({node.name(), RoleText(node.role()), SeenText(node, now), WorkText(node), CpuText(node),
                    node.has_memory_bytes() ? ShortBytes(node.memory_bytes()) : "", node.host(), TcpAddress(node),
                    node.device()});
  }
  return Table(rows);
}

std::string NodesTable(const std::vector<v1::NodeStatus>& nodes, absl::Time now) {
  if (nodes.empty()) return "no nodes yet; start cairn-ps and cairn-worker with --coordinator\n";
  std::string text = NodesLines(nodes, now);
  for (const v1::NodeStatus& node : nodes) {
    if (!node.alive() || node.fault().empty()) continue;
    absl::StrAppend(&text, node.name(),
                    node.role() == v1::PS ? " is given no partitions: " : " is given no replicas: ", node.fault(),
                    "\n");
  }
  for (const v1::NodeStatus& node : nodes) {
    if (node.alive() && !node.not_ready().empty())
      absl::StrAppend(&text, node.name(), " is not ready: ", node.not_ready(), "\n");
  }
  for (const v1::NodeStatus& node : nodes) {
    if (!node.alive() || node.programs().empty()) continue;
    absl::StrAppend(&text, node.name(), " has ", node.programs_only() ? "nothing but " : "", "the programs ",
                    absl::StrJoin(node.programs(), ", ",
                                  [](std::string* out, const v1::ExternalProgram& program) {
                                    absl::StrAppend(out, program.name(), " ", program.version());
                                  }),
                    "\n");
  }
  return text + VersionsText(nodes);
}

}  // namespace cairn
