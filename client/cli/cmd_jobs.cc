// cairn jobs, cancel, delete, nodes, health: one call, one answer.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "common/report/figures.h"
#include "common/report/json.h"
#include "client/cli/nodes_table.h"

namespace cairn {
namespace {

constexpr absl::Duration kHealthTimeout = absl::Seconds(3);

std::string ProgressText(const v1::JobStatus& job) {
  if (job.total_steps() == 0) return "";
  return absl::StrFormat("%d/%d", job.step(), job.total_steps());
}

std::string LastFigures(const v1::JobStatus& job) {
  const v1::MetricSums* sums = &job.epoch_sums();
  if (job.epochs_size() > 0) sums = &job.epochs(job.epochs_size() - 1).train();
  std::string text;
  for (const auto& [name, value] : MeanFigures(job.spec(), *sums)) {
    absl::StrAppend(&text, text.empty() ? "" : " ", name, " ", FigureText(value));
  }
  return text;
}

absl::Status CheckNode(const Globals& globals, const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::NodeStatus> nodes, JobClient(globals.client).ListNodes());
  for (const v1::NodeStatus& node : nodes) {
    if (node.name() == name && node.alive()) return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrFormat("%s is not among the live nodes; see `cairn nodes`", name));
}

}  // namespace

int RunJobs(const Globals& globals) {
  const auto jobs = JobClient(globals.client).List();
  if (!jobs.ok()) return Fail(jobs.status());
  if (globals.json) {
    absl::PrintF("%s\n", JobsJson(*jobs));
    return kExitOk;
  }
  if (jobs->empty()) {
    absl::PrintF("no jobs; submit one with `cairn submit FILE`\n");
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows = {{"ID", "NAME", "STATE", "STEP", "FIGURES", "REASON"}};
  for (const v1::JobStatus& job : *jobs) {
    rows.push_back({absl::StrCat(job.job_id()), job.spec().name(), StateText(job.state()), ProgressText(job),
                    LastFigures(job), job.reason()});
  }
  absl::PrintF("%s", Table(rows));
  return kExitOk;
}

int RunCancel(const Globals& globals, const std::string& name) {
  const auto ref = JobRef::Parse(name);
  if (!ref.ok()) return Fail(ref.status());
  const auto job = JobClient(globals.client).Cancel(*ref);
  if (!job.ok()) return Fail(job.status());
  if (globals.json) {
    absl::PrintF("%s\n", JobJson(*job));
  } else {
    absl::PrintF("job %d \"%s\": %s\n", job->job_id(), job->spec().name(), StateText(job->state()));
  }
  return kExitOk;
}

int RunDelete(const Globals& globals, const std::string& name) {
  const auto ref = JobRef::Parse(name);
  if (!ref.ok()) return Fail(ref.status());
  const absl::Status status = JobClient(globals.client).Delete(*ref);
  if (!status.ok()) return Fail(status);
  if (!globals.json) absl::PrintF("job %s is deleted\n", name);
  return kExitOk;
}

int RunNodes(const Globals& globals) {
  const auto nodes = JobClient(globals.client).ListNodes();
  if (!nodes.ok()) return Fail(nodes.status());
  absl::PrintF("%s", globals.json ? NodesJson(*nodes) + "\n" : NodesTable(*nodes, absl::Now()));
  return kExitOk;
}

int RunDrain(const Globals& globals, const DrainOptions& options) {
  const auto node = JobClient(globals.client).DrainNode(options.name, options.undo);
  if (!node.ok()) return Fail(node.status());
  absl::PrintF("%s", globals.json ? NodesJson({*node}) + "\n" : NodesTable({*node}, absl::Now()));
  return kExitOk;
}

int RunHealth(const Globals& globals, const HealthOptions& options) {
  const std::string& address = options.address.empty() ? globals.client.address : options.address;
  const absl::Status status =
      options.node.empty() ? CheckHealth(address, kHealthTimeout) : CheckNode(globals, options.node);
  if (!status.ok()) return Fail(status);
  absl::PrintF("%s: serving\n", options.node.empty() ? address : options.node);
  return kExitOk;
}

}  // namespace cairn
