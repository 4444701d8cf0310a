#include "coordinator/dashboard/overview.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/version.h"
#include "common/model/role_text.h"
#include "common/model/state_text.h"
#include "common/report/figures.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

const char* NodeState(const v1::NodeStatus& node) {
  if (node.expected()) return "unknown";
  if (!node.alive()) return "dead";
  return !node.fault().empty()      ? "failed"
         : node.draining()          ? "draining"
         : node.not_ready().empty() ? "alive"
                                    : "not ready";
}

Json NodeRow(const v1::NodeStatus& node) {
  return {{"name", node.name()},
          {"role", RoleText(node.role())},
          {"state", NodeState(node)},
          {"fault", node.fault()},
          {"not_ready", node.not_ready()},
          {"slots", node.slots()},
          {"slots_used", node.slots_used()},
          {"primaries", node.primaries()},
          {"backups", node.partitions() - node.primaries()},
          {"memory_bytes", node.has_memory_bytes() ? Json(node.memory_bytes()) : Json()},
          {"device", node.device()},
          {"host", node.host()},
          {"address", node.address().substr(0, node.address().find(','))},  // without the local socket
          {"joined_unix_ms", node.joined_unix_ms()},
          {"last_heartbeat_unix_ms", node.last_heartbeat_unix_ms()}};
}

// Those of the running or the last epoch; then those of the last validation.
Json LastFigures(const v1::JobStatus& job) {
  const v1::MetricSums* train = &job.epoch_sums();
  if (train->examples() == 0 && job.epochs_size() > 0) train = &job.epochs(job.epochs_size() - 1).train();
  Json list = Json::array();
  const auto add = [&](const char* prefix, const v1::MetricSums& sums) {
    for (const auto& [name, value] : MeanFigures(job.spec(), sums)) {
      if (list.size() < kOverviewFiguresMax) list.push_back({absl::StrCat(prefix, name), value});
    }
  };
  add("", *train);
  for (int i = job.epochs_size(); i-- > 0;) {
    if (job.epochs(i).validation().examples() == 0) continue;
    add("val_", job.epochs(i).validation());
    break;
  }
  return list;
}

Json JobRow(const v1::JobStatus& job) {
  return {{"id", job.job_id()},
          {"name", job.spec().name()},
          {"state", v1::JobState_Name(job.state())},
          {"step", job.step()},
          {"total_steps", job.total_steps()},
          {"epoch", job.epoch()},
          {"epochs", job.spec().epochs()},
          {"batch_size", job.spec().batch_size()},
          {"images_per_second", job.has_images_per_second() ? Json(job.images_per_second()) : Json()},
          {"figures", LastFigures(job)},
          {"degraded", job.has_degraded()
                           ? Json{{"since_unix_ms", job.degraded().since_unix_ms()}, {"text", job.degraded().text()}}
                           : Json()},
          {"not_finite", job.has_not_finite_step()},
          {"reason", job.reason()}};
}

Json NewestEvents(const v1::ListEventsResponse& events, const OverviewPart& part) {
  Json list = Json::array();
  for (int i = events.events_size(); i-- > 0 && list.size() < part.events;) {
    const v1::ClusterEvent& event = events.events(i);
    if (part.warnings && !event.warning()) continue;
    list.push_back({{"unix_ms", event.unix_ms()},
                    {"warning", event.warning()},
                    {"job_id", event.job_id()},
                    {"job_name", event.job_name()},
                    {"role", event.node().empty() ? "" : RoleText(event.role())},
                    {"node", event.node()},
                    {"text", event.text()}});
  }
  return list;
}

}  // namespace

std::string OverviewJson(const OverviewOf& of, const std::vector<v1::NodeStatus>& nodes,
                         const std::vector<v1::JobStatus>& jobs, const v1::ListEventsResponse& events,
                         const OverviewPart& part) {
  std::vector<const v1::JobStatus*> shown;
  std::map<std::string, int> in_state;
  Json images_per_second = 0.0;  // null: unknown for a job
  const std::string name = absl::AsciiStrToLower(part.name);
  for (const v1::JobStatus& job : jobs) {
    ++in_state[v1::JobState_Name(job.state())];
    if (job.state() == v1::RUNNING && !job.has_images_per_second()) {
      images_per_second = nullptr;
    } else if (job.state() == v1::RUNNING && !images_per_second.is_null()) {
      images_per_second = images_per_second.get<double>() + job.images_per_second();
    }
    const bool wanted = part.jobs == JobsShown::kAll || IsFinal(job.state()) == (part.jobs == JobsShown::kEnded);
    if (wanted && absl::StrContains(absl::AsciiStrToLower(job.spec().name()), name)) shown.push_back(&job);
  }
  std::stable_partition(shown.begin(), shown.end(), [](const v1::JobStatus* job) { return !IsFinal(job->state()); });
  Json node_rows = Json::array(), job_rows = Json::array();
  for (const v1::NodeStatus& node : nodes) {
    node_rows.push_back(NodeRow(node));
    node_rows.back()["draining"] = node.draining();
    node_rows.back()["may_drain"] = of.may_drain != nullptr && of.may_drain(node);
  }
  for (size_t i = part.offset; i < shown.size() && job_rows.size() < part.limit; ++i)
    job_rows.push_back(JobRow(*shown[i]));
  const Json all = {{"coordinator", of.coordinator},
                    {"version", ProgramVersion()},
                    {"up_seconds", of.up_seconds},
                    {"now_unix_ms", absl::ToUnixMillis(of.now)},
                    {"images_per_second", images_per_second},
                    {"jobs_in_state", in_state},
                    {"jobs_total", shown.size()},
                    {"jobs_offset", part.offset},
                    {"jobs", job_rows},
                    {"nodes", node_rows},
                    {"events_since_unix_ms", events.since_unix_ms()},
                    {"events_dropped", events.dropped()},
                    {"events", NewestEvents(events, part)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cairn
