// cairn jobs, cancel, delete, nodes, health: each makes a single call.
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/cli/colours.h"
#include "client/cli/commands.h"
#include "client/cli/nodes_table.h"
#include "client/health.h"
#include "common/report/figures.h"
#include "common/report/json.h"
#include "common/rpc/credentials.h"
#include "common/rpc/server.h"

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

// Each job's line in the colour of its state, on a terminal. rows: the header, then one row per job.
std::string ColouredTable(const std::vector<std::vector<std::string>>& rows,
                          const google::protobuf::RepeatedPtrField<v1::JobStatus>& jobs) {
  std::vector<std::string> lines = absl::StrSplit(Table(rows), '\n');
  for (int i = 0; i < jobs.size(); ++i)
    lines[static_cast<size_t>(i) + 1] =
        InColourOf(jobs[i].state(), std::move(lines[static_cast<size_t>(i) + 1]), ShowsColours());
  return absl::StrJoin(lines, "\n");
}

// What the node is, in the word of what was asked: a ps is "ready", another node "alive".
absl::StatusOr<std::string> CheckNode(const Globals& globals, const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::NodeStatus> nodes, JobClient(globals.client).ListNodes());
  for (const v1::NodeStatus& node : nodes) {
    if (node.name() != name || !node.alive()) continue;
    if (!node.not_ready().empty())
      return absl::UnavailableError(absl::StrFormat("%s is not ready: %s", name, node.not_ready()));
    return node.role() == v1::PS ? kReadyService : "alive";
  }
  return absl::UnavailableError(absl::StrFormat("%s is not among the live nodes; see `cairn nodes`", name));
}

// The states that StateText names so.
absl::StatusOr<std::set<v1::JobState>> StatesOf(const std::vector<std::string>& names) {
  std::map<std::string, v1::JobState> known;
  for (int i = v1::JobState_MIN; i <= v1::JobState_MAX; ++i) {
    if (v1::JobState_IsValid(i) && i != 0)
      known[StateText(static_cast<v1::JobState>(i))] = static_cast<v1::JobState>(i);
  }
  std::set<v1::JobState> states;
  for (const std::string& name : names) {
    const auto found = known.find(absl::AsciiStrToLower(name));
    if (found == known.end()) {
      std::vector<std::string> all;
      for (const auto& [text, state] : known) all.push_back(text);
      return absl::InvalidArgumentError(
          absl::StrFormat("--state: there is no state \"%s\"; use %s", name, absl::StrJoin(all, ", ")));
    }
    states.insert(found->second);
  }
  return states;
}

// Whose jobs --mine shows. Errors: INVALID_ARGUMENT: nobody's.
absl::StatusOr<std::string> OwnName(const Globals& globals) {
  std::string user = OwnCaller().user();
  if (!globals.client.token.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const v1::Identity who, JobClient(globals.client).Identify());
    user = who.user();
  }
  if (!user.empty()) return user;
  return absl::InvalidArgumentError(
      "--mine: your certificate names no user, and there is no token, so that no job is yours; see docs/security.md, "
      "or "
      "leave --mine out");
}

// Removes the jobs that the options do not ask for. jobs: the newest is the last. mine: with --mine.
void Keep(const JobsOptions& options, const std::set<v1::JobState>& states, const std::string& mine,
          google::protobuf::RepeatedPtrField<v1::JobStatus>* jobs) {
  const auto unwanted = [&](const v1::JobStatus& job) {
    return (!states.empty() && !states.contains(job.state())) || (options.mine && job.owner() != mine);
  };
  jobs->erase(std::remove_if(jobs->begin(), jobs->end(), unwanted), jobs->end());
  if (options.limit > 0 && jobs->size() > options.limit)
    jobs->DeleteSubrange(0, jobs->size() - static_cast<int>(options.limit));
}

}  // namespace

int RunJobs(const Globals& globals, const JobsOptions& options) {
  const auto states = StatesOf(options.states);
  if (!states.ok()) return Fail(states.status());
  const auto mine = options.mine ? OwnName(globals) : "";
  if (!mine.ok()) return Fail(mine.status());
  auto jobs = JobClient(globals.client).List();
  if (!jobs.ok()) return Fail(jobs.status());
  const int all = jobs->jobs_size();
  Keep(options, *states, *mine, jobs->mutable_jobs());
  if (options.names) {
    for (const v1::JobStatus& job : jobs->jobs()) absl::PrintF("%s\n", job.spec().name());
    return kExitOk;
  }
  if (globals.json) {
    absl::PrintF("%s\n", JobsJson(*jobs));
    return kExitOk;
  }
  if (jobs->jobs().empty()) {
    absl::PrintF("%s\n", all == 0 ? "no jobs; submit one with `cairn submit FILE`" : "none of the jobs is such a one");
    return kExitOk;
  }
  const bool owned = std::any_of(jobs->jobs().begin(), jobs->jobs().end(),
                                 [](const v1::JobStatus& job) { return !job.owner().empty(); });
  std::vector<std::vector<std::string>> rows = {{"ID", "NAME", "STATE", "STEP", "FIGURES", "REASON"}};
  if (owned) rows[0].insert(rows[0].begin() + 2, "OWNER");
  for (const v1::JobStatus& job : jobs->jobs()) {
    std::string reason = job.reason();
    if (job.has_degraded())
      absl::StrAppend(&reason, reason.empty() ? "" : "; ", DegradedText(job.degraded(), absl::LocalTimeZone()));
    rows.push_back({absl::StrCat(job.job_id()), job.spec().name(),
                    absl::StrCat(StateText(job.state()), job.has_degraded() ? ", degraded" : ""), ProgressText(job),
                    LastFigures(job), reason});
    if (owned) rows.back().insert(rows.back().begin() + 2, job.owner());
  }
  absl::PrintF("%s%s\n", ColouredTable(rows, jobs->jobs()), jobs->retention());
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
  const auto id = JobClient(globals.client).Delete(*ref);
  if (!id.ok()) return Fail(id.status());
  if (globals.json) {
    absl::PrintF("{\"job_id\":%d}\n", *id);
  } else if (*id == 0) {
    absl::PrintF("there is no job %s (any more)\n", name);
  } else {
    absl::PrintF("job %d is deleted\n", *id);
  }
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
  if (!options.node.empty()) {
    const absl::StatusOr<std::string> what = CheckNode(globals, options.node);
    if (!what.ok()) return Fail(what.status());
    absl::PrintF("%s: %s\n", options.node, *what);
    return kExitOk;
  }
  const std::string& address = options.address.empty() ? globals.client.address : options.address;
  const absl::Status status = CheckHealth(address, kHealthTimeout, options.ready ? kReadyService : "",
                                          options.address.empty() ? globals.client.token : "");
  if (!status.ok()) return Fail(status);
  absl::PrintF("%s: %s\n", address, options.ready ? kReadyService : "serving");
  return kExitOk;
}

}  // namespace cairn
