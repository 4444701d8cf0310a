// cairn logs, cairn events: what daemons logged, and what happened in the cluster.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/log_follower.h"
#include "client/cli/stop_signals.h"
#include "common/model/role_text.h"
#include "common/model/state_text.h"
#include "common/report/json.h"

namespace cairn {
namespace {

constexpr absl::Duration kLookAgain = absl::Milliseconds(500);
// The daemons log a job's end a moment after it.
constexpr int kRoundsAfterEnd = 2;
// With --follow: how long the coordinator may be away.
constexpr absl::Duration kPatience = absl::Minutes(1);

void Note(const std::string& text) { absl::FPrintF(stderr, "cairn: %s\n", text); }

// Ends a command that follows when the coordinator has been away for too long.
class Away {
 public:
  bool TooLong(const absl::Status& status) {
    if (status.ok()) {
      since_.reset();
      return false;
    }
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return true;
    if (!since_) {
      since_ = absl::Now();
      Note(absl::StrCat(status.message(), "; trying again"));
    }
    return absl::Now() - *since_ > kPatience;
  }

 private:
  std::optional<absl::Time> since_;
};

// ---- logs ----

// Whose lines are asked for.
struct LogSubject {
  std::string daemon;  // or
  uint64_t job = 0;
};

absl::StatusOr<LogSubject> FindSubject(JobClient& client, const std::string& name) {
  LogSubject subject;
  if (name.empty() || name == kCoordinatorLog) {
    subject.daemon = kCoordinatorLog;
    return subject;
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::NodeStatus> nodes, client.ListNodes());
  const bool node = std::any_of(nodes.begin(), nodes.end(), [&](const v1::NodeStatus& n) { return n.name() == name; });
  CAIRN_ASSIGN_OR_RETURN(const JobRef ref, JobRef::Parse(name));
  const absl::StatusOr<v1::JobStatus> job = client.Get(ref);
  if (node && job.ok()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "\"%s\" is a node and a job; give the job's number, %d, or --node %s", name, job->job_id(), name));
  }
  if (node) {
    subject.daemon = name;
    return subject;
  }
  if (absl::IsNotFound(job.status())) {
    return absl::NotFoundError(
        absl::StrFormat("there is no node and no job \"%s\"; see `cairn nodes` and `cairn jobs`", name));
  }
  if (!job.ok()) return job.status();
  subject.job = job->job_id();
  return subject;
}

absl::StatusOr<std::vector<std::string>> DaemonsOf(JobClient& client, const LogSubject& subject) {
  if (subject.job == 0) return std::vector<std::string>{subject.daemon};
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::NodeStatus> nodes, client.ListNodes());
  std::vector<std::string> daemons = {kCoordinatorLog};
  for (const v1::NodeStatus& node : nodes) {
    if (node.alive()) daemons.push_back(node.name());
  }
  return daemons;
}

void Print(const LogFollower::Round& round, bool json) {
  for (const std::string& note : round.notes) Note(note);  // they are of what is missing before the lines
  for (const DaemonLine& line : round.lines)
    absl::PrintF("%s\n", json ? LogLineJson(line) : LogLineText(line, absl::LocalTimeZone()));
  std::fflush(stdout);
}

bool MayPass(const absl::Status& trouble) {
  return absl::IsUnavailable(trouble) || absl::IsDeadlineExceeded(trouble) || absl::IsResourceExhausted(trouble);
}

// Until a signal, the job's end, or an error that no retry would remove.
int FollowLogs(JobClient& client, StopSignals& signals, const LogSubject& subject, LogFollower& follower, bool json) {
  Away away;
  int rounds_left = kRoundsAfterEnd;
  while (true) {
    bool ended = false;
    if (subject.job != 0) {
      const absl::StatusOr<v1::JobStatus> job = client.Get({subject.job, ""});
      if (!job.ok() && away.TooLong(job.status())) return Fail(job.status());
      ended = job.ok() && IsFinal(job->state());
    }
    const absl::StatusOr<std::vector<std::string>> daemons = DaemonsOf(client, subject);
    if (away.TooLong(daemons.status())) return Fail(daemons.status());
    if (daemons.ok()) {
      const LogFollower::Round round = follower.Next(*daemons);
      Print(round, json);
      if (round.answers == 0 && !MayPass(round.trouble)) return Fail(round.trouble);
    }
    if (ended && rounds_left-- == 0) return kExitOk;
    if (signals.Wait(kLookAgain)) return kExitInterrupted;
  }
}

// ---- events ----

std::string SubjectText(const v1::ClusterEvent& event) {
  if (event.job_id() != 0) {
    return event.job_name().empty() ? absl::StrFormat("job %d: ", event.job_id())
                                    : absl::StrFormat("job %d \"%s\": ", event.job_id(), event.job_name());
  }
  if (!event.node().empty()) return absl::StrFormat("%s \"%s\" ", RoleText(event.role()), event.node());
  return "";
}

std::string EventText(const v1::ClusterEvent& event) {
  return absl::StrFormat(
      "%s %s %s%s",
      absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixMillis(event.unix_ms()), absl::LocalTimeZone()),
      event.warning() ? "W" : "I", SubjectText(event), OneLine(event.text()));
}

void Print(const v1::ListEventsResponse& events, bool json) {
  for (const v1::ClusterEvent& event : events.events())
    absl::PrintF("%s\n", json ? EventJson(event) : EventText(event));
  std::fflush(stdout);
}

std::string KeptText(const v1::ListEventsResponse& events) {
  const std::string since =
      absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(events.since_unix_ms()), absl::LocalTimeZone());
  const std::string kept = absl::StrFormat("events are kept since %s, when this coordinator began to lead", since);
  if (events.dropped() == 0) return kept;
  return absl::StrFormat("%s; the first %d are no longer kept", kept, events.dropped());
}

int FollowEvents(JobClient& client, StopSignals& signals, v1::ListEventsRequest request, bool json) {
  Away away;
  request.set_limit(0);  // it was for those before
  while (!signals.Wait(kLookAgain)) {
    const absl::StatusOr<v1::ListEventsResponse> events = client.ListEvents(request);
    if (away.TooLong(events.status())) return Fail(events.status());
    if (!events.ok()) continue;
    if (events->term() != request.term())
      Note(absl::StrCat("another coordinator leads: ", KeptText(*events)));
    else if (events->dropped() > 0)
      Note(absl::StrCat(events->dropped(), " events in between are lost"));
    Print(*events, json);
    request.set_term(events->term());
    request.set_after(events->last());
  }
  return kExitInterrupted;
}

}  // namespace

int RunLogs(const Globals& globals, const LogsOptions& options) {
  const absl::StatusOr<v1::LogSeverity> severity = ParseSeverity(options.level);
  if (!severity.ok()) return Fail(severity.status());
  std::optional<StopSignals> signals;  // before the client's threads
  if (options.follow) signals.emplace();
  JobClient client(globals.client);
  LogSubject subject;
  if (!options.node.empty()) {
    if (!options.name.empty()) return Fail(absl::InvalidArgumentError("--node: give it or NAME, not both"));
    subject.daemon = options.node;
  } else {
    absl::StatusOr<LogSubject> found = FindSubject(client, options.name);
    if (!found.ok()) return Fail(found.status());
    subject = *std::move(found);
  }
  v1::ReadLogRequest what;
  what.set_job_id(subject.job);
  what.set_severity(*severity);
  what.set_limit(static_cast<int32_t>(options.tail));
  LogFollower follower([&client](const v1::ReadLogRequest& request) { return client.ReadLog(request); }, what);
  if (signals) return FollowLogs(client, *signals, subject, follower, globals.json);
  const absl::StatusOr<std::vector<std::string>> daemons = DaemonsOf(client, subject);
  if (!daemons.ok()) return Fail(daemons.status());
  LogFollower::Round round = follower.Next(*daemons);
  // An error of the only daemon is the command's.
  if (round.answers == 0) return Fail(round.trouble);
  Print(round, globals.json);  // with a note for each daemon that did not answer
  return kExitOk;
}

int RunEvents(const Globals& globals, const EventsOptions& options) {
  std::optional<StopSignals> signals;  // before the client's threads
  if (options.follow) signals.emplace();
  JobClient client(globals.client);
  v1::ListEventsRequest request;
  request.set_node(options.node);
  request.set_warnings_only(options.warnings);
  request.set_limit(static_cast<int32_t>(options.limit));
  if (!options.job.empty()) {
    const absl::StatusOr<JobRef> ref = JobRef::Parse(options.job);
    if (!ref.ok()) return Fail(ref.status());
    const absl::StatusOr<v1::JobStatus> job = client.Get(*ref);
    if (!job.ok()) return Fail(job.status());
    request.set_job_id(job->job_id());
  }
  const absl::StatusOr<v1::ListEventsResponse> events = client.ListEvents(request);
  if (!events.ok()) return Fail(events.status());
  Print(*events, globals.json);
  Note(KeptText(*events));
  if (!signals) return kExitOk;
  request.set_term(events->term());
  request.set_after(events->last());
  return FollowEvents(client, *signals, std::move(request), globals.json);
}

}  // namespace cairn
