#include "coordinator/dashboard/dashboard.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/http/certificate_metrics.h"
#include "common/report/json.h"
#include "common/report/metrics_text.h"
#include "coordinator/core/limits.h"
#include "coordinator/dashboard/answers.h"
#include "coordinator/dashboard/dashboard_pages.h"
#include "coordinator/dashboard/overview.h"

namespace cairn {
namespace {

constexpr char kScript[] = "text/javascript; charset=utf-8";
constexpr absl::string_view kJobPrefix = "/api/v1/jobs/";

constexpr char kHtml[] = "text/html; charset=utf-8";

// What never changes.
struct File {
  const char* path;
  const char* content_type;
  const std::string_view* body;
};
constexpr File kFiles[] = {
    {"/dashboard.css", "text/css; charset=utf-8", &kDashboardCss},
    {"/elements.js", kScript, &kElementsJs},
    {"/actions.js", kScript, &kActionsJs},
    {"/chart.js", kScript, &kChartJs},
    {"/job.js", kScript, &kJobJs},
    {"/compare.js", kScript, &kCompareJs},
    {"/log.js", kScript, &kLogJs},
    {"/submit.js", kScript, &kSubmitJs},
    {"/dashboard.js", kScript, &kDashboardJs},
};

HttpAnswer Page(const char* content_type, std::string_view body) { return {200, content_type, std::string(body), {}}; }

// Whether this coordinator stands by and knows the leader.
bool StandsBy(const absl::Status& status) { return !LeaderIn(status, kLeaderPayload).empty(); }

HttpAnswer Refuse(const absl::Status& status, const HttpRequest& request) {
  if (std::optional<HttpAnswer> leader = ToLeader(status, request)) return *std::move(leader);
  if (absl::IsNotFound(status)) return TextAnswer(404, status.message());
  if (absl::IsPermissionDenied(status)) return TextAnswer(403, status.message());
  HttpAnswer answer = TextAnswer(503, status.message());
  answer.headers = {{"Retry-After", "1"}};
  return answer;
}

absl::StatusOr<size_t> ReadNumber(const HttpRequest& request, const char* name, size_t otherwise) {
  const auto it = request.query.find(name);
  if (it == request.query.end()) return otherwise;
  uint32_t value = 0;
  if (absl::SimpleAtoi(it->second, &value)) return value;
  return absl::InvalidArgumentError(absl::StrCat(name, ": a number is expected"));
}

absl::StatusOr<OverviewPart> ReadPart(const HttpRequest& request) {
  OverviewPart part;
  CAIRN_ASSIGN_OR_RETURN(part.offset, ReadNumber(request, "offset", part.offset));
  CAIRN_ASSIGN_OR_RETURN(part.limit, ReadNumber(request, "limit", part.limit));
  part.limit = std::min(part.limit, kDashboardRowsMax);
  CAIRN_ASSIGN_OR_RETURN(part.events, ReadNumber(request, "events", part.events));
  part.events = std::min(part.events, kDashboardRowsMax);
  CAIRN_ASSIGN_OR_RETURN(const size_t warnings, ReadNumber(request, "warnings", 0));
  part.warnings = warnings != 0;
  if (const auto name = request.query.find("name"); name != request.query.end()) part.name = name->second;
  const auto it = request.query.find("jobs");
  const std::string jobs = it == request.query.end() ? "all" : it->second;
  if (jobs != "all" && jobs != "active" && jobs != "ended")
    return absl::InvalidArgumentError("jobs: all, active or ended is expected");
  part.jobs = jobs == "all" ? JobsShown::kAll : jobs == "active" ? JobsShown::kActive : JobsShown::kEnded;
  return part;
}

Requester ReaderOf(const Caller& caller) {
  // A person whose programs compute is a worker too, and still a user.
  const bool user = !caller.unrestricted && caller.Is(CallerRole::kUser) && !caller.Is(CallerRole::kAdmin);
  return {.everything = !user, .user = caller.user(), .groups = caller.groups};
}

// What names the requester's view of a job.
std::string KeyOf(const std::string& which, const Requester& who) {
  if (who.everything) return which;
  return absl::StrCat(which, " of ", who.user, " ", absl::StrJoin(who.groups, " "));
}

std::vector<v1::JobStatus> OwnJobs(const std::vector<v1::JobStatus>& jobs, const Requester& who) {
  std::vector<v1::JobStatus> own;
  std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(own), [&](const auto& job) { return who.MayUse(job); });
  return own;
}

// Those of nodes, and of the caller's jobs.
v1::ListEventsResponse OwnEvents(const v1::ListEventsResponse& events, const std::vector<v1::JobStatus>& own) {
  std::set<uint64_t> ids;
  for (const v1::JobStatus& job : own) ids.insert(job.job_id());
  v1::ListEventsResponse out = events;
  auto& list = *out.mutable_events();
  list.erase(std::remove_if(list.begin(), list.end(),
                            [&](const v1::ClusterEvent& event) {
                              return event.job_id() != 0 ? !ids.contains(event.job_id()) : event.node().empty();
                            }),
             list.end());
  return out;
}

template <typename T>
std::vector<T> TakeAll(google::protobuf::RepeatedPtrField<T>* list) {
  return {std::make_move_iterator(list->begin()), std::make_move_iterator(list->end())};
}

}  // namespace

Dashboard::Dashboard(ClusterDriver* driver, Clock* clock, std::string name, const UserCalls* calls,
                     absl::Duration patience)
    : name_(std::move(name)),
      clock_(clock),
      questions_(driver, clock, patience),
      logs_(driver, &questions_),
      actions_(calls) {}

HttpAnswer Dashboard::Answer(const HttpRequest& request) {
  if (request.method == "POST") return Act(request);
  const std::string& path = request.path;
  if (path == "/healthz") return Health();
  if (path == "/readyz") return Ready();
  if (path == "/metrics") return Metrics(ReaderOf(request.caller));
  for (const File& file : kFiles) {
    if (path == file.path) return Page(file.content_type, *file.body);
  }
  if (path == "/") {
    const absl::Status leads = questions_.Leads();
    return leads.ok() ? Page(kHtml, kDashboardHtml) : Refuse(leads, request);
  }
  if (absl::StartsWith(path, "/api/v1/")) return Api(request);
  return TextAnswer(404,
                    "there is no such page; there are /, /metrics, /healthz, /readyz, /api/v1/nodes, /api/v1/jobs, "
                    "/api/v1/jobs/ID, /api/v1/events and /api/v1/logs");
}

// The caller's next look shows what changed.
HttpAnswer Dashboard::Act(const HttpRequest& request) {
  HttpAnswer answer = actions_.Answer(request);
  if (answer.status != 200) return answer;
  {
    absl::MutexLock lock(&looking_);
    view_.at = absl::InfinitePast();
  }
  {
    absl::MutexLock lock(&listing_);
    jobs_.at = absl::InfinitePast();
  }
  absl::MutexLock lock(&mutex_);
  job_.at = absl::InfinitePast();
  return answer;
}

HttpAnswer Dashboard::Leader() {
  const absl::Status leads = questions_.Leads();
  const nlohmann::ordered_json leader = {
      {"leads", leads.ok()}, {"pages", LeaderIn(leads, kLeaderHttpPayload)}, {"text", std::string(leads.message())}};
  return JsonAnswer(leader.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

absl::StatusOr<Dashboard::ViewPtr> Dashboard::Look() {
  absl::MutexLock lock(&looking_);
  if (clock_->Now() - view_.at < kFresh) return view_.answer;
  view_.answer = questions_.Ask<ViewPtr>([](const ClusterCore& core, absl::Time now) {
    auto view = std::make_shared<View>();
    view->nodes = TakeAll(core.ListNodes().mutable_nodes());
    view->jobs = core.JobRows(now);
    v1::ListEventsRequest newest;
    newest.set_limit(kDashboardEventsMax);
    if (auto events = core.ListEvents(newest); events.ok()) view->events = *std::move(events);
    view->now = now;
    return ViewPtr(std::move(view));
  });
  view_.at = clock_->Now();
  return view_.answer;
}

absl::StatusOr<Dashboard::JobsPtr> Dashboard::AllJobs() {
  absl::MutexLock lock(&listing_);
  if (clock_->Now() - jobs_.at < kFresh) return jobs_.answer;
  jobs_.answer = questions_.Ask<JobsPtr>([](const ClusterCore& core, absl::Time now) {
    return std::make_shared<const v1::ListJobsResponse>(core.ListJobs(now));
  });
  jobs_.at = clock_->Now();
  return jobs_.answer;
}

// which: a job's number or name.
absl::StatusOr<Dashboard::JobPtr> Dashboard::OneJob(const std::string& which, const Requester& who) {
  const std::string key = KeyOf(which, who);
  {
    absl::MutexLock lock(&mutex_);
    if (key == which_ && clock_->Now() - job_.at < kFresh) return job_.answer;
  }
  absl::StatusOr<JobPtr> job = questions_.Ask<JobPtr>(
      [request = WhichJob(which), who](const ClusterCore& core, absl::Time now) -> absl::StatusOr<JobPtr> {
        CAIRN_ASSIGN_OR_RETURN(v1::JobStatus status, core.GetJob(request, now, who));
        return std::make_shared<const v1::JobStatus>(std::move(status));
      });
  absl::MutexLock lock(&mutex_);
  which_ = key;
  job_ = {job, clock_->Now()};
  return job;
}

HttpAnswer Dashboard::Api(const HttpRequest& request) {
  const absl::string_view path = request.path;
  const Requester who = ReaderOf(request.caller);
  if (absl::StartsWith(path, kJobPrefix) && path.size() > kJobPrefix.size()) {
    const absl::StatusOr<JobPtr> job = OneJob(std::string(absl::StripPrefix(path, kJobPrefix)), who);
    return job.ok() ? JsonAnswer(JobJson(**job)) : Refuse(job.status(), request);
  }
  if (path == "/api/v1/logs") {
    const absl::StatusOr<std::string> log = logs_.Answer(request, who);
    if (absl::IsInvalidArgument(log.status())) return TextAnswer(400, log.status().message());
    return log.ok() ? JsonAnswer(*log) : Refuse(log.status(), request);
  }
  if (path == "/api/v1/rights") return JsonAnswer(actions_.RightsJson(request.caller));
  if (path == "/api/v1/leader") return Leader();
  if (path == "/api/v1/jobs") return Jobs(request, who);
  if (path == "/api/v1/nodes" || path == "/api/v1/events" || path == "/api/v1/overview") return OfView(request, who);
  return TextAnswer(404,
                    "there is no such page; there are /api/v1/nodes, /api/v1/jobs, /api/v1/jobs/ID, /api/v1/events, "
                    "/api/v1/logs, /api/v1/overview, /api/v1/rights and /api/v1/leader");
}

HttpAnswer Dashboard::Jobs(const HttpRequest& request, const Requester& who) {
  const absl::StatusOr<JobsPtr> jobs = AllJobs();
  if (!jobs.ok()) return Refuse(jobs.status(), request);
  if (who.everything) return JsonAnswer(JobsJson(**jobs));
  v1::ListJobsResponse own;
  for (const v1::JobStatus& job : (*jobs)->jobs()) {
    if (who.MayUse(job)) *own.add_jobs() = job;
  }
  return JsonAnswer(JobsJson(own));
}

// Nodes, events, or the first page.
HttpAnswer Dashboard::OfView(const HttpRequest& request, const Requester& who) {
  const absl::StatusOr<OverviewPart> part = ReadPart(request);
  if (!part.ok()) return TextAnswer(400, part.status().message());
  const absl::StatusOr<ViewPtr> view = Look();
  if (!view.ok()) return Refuse(view.status(), request);
  const View& v = **view;
  if (request.path == "/api/v1/nodes") return JsonAnswer(NodesJson(v.nodes));
  const std::vector<v1::JobStatus> own = who.everything ? std::vector<v1::JobStatus>() : OwnJobs(v.jobs, who);
  const std::vector<v1::JobStatus>& jobs = who.everything ? v.jobs : own;
  const v1::ListEventsResponse own_events = who.everything ? v1::ListEventsResponse() : OwnEvents(v.events, own);
  const v1::ListEventsResponse& events = who.everything ? v.events : own_events;
  if (request.path == "/api/v1/events") return JsonAnswer(EventsJson(events));
  OverviewOf of = {name_, absl::ToDoubleSeconds(clock_->Now() - started_), v.now, nullptr};
  of.may_drain = [&](const v1::NodeStatus& node) { return actions_.MayDrain(request.caller, node); };
  return JsonAnswer(OverviewJson(of, v.nodes, jobs, events, *part));
}

HttpAnswer Dashboard::Metrics(const Requester& who) {
  MetricFamilies out;
  const absl::StatusOr<ViewPtr> view = Look();
  if (view.ok()) {
    AddClusterMetrics(out, (*view)->nodes, who.everything ? (*view)->jobs : OwnJobs((*view)->jobs, who));
  } else if (!StandsBy(view.status())) {
    AddClusterIsDown(out);
  }
  out.Add("cairn_coordinator_leader",
          "1 if this coordinator leads and its core answered; 0 if it stands by, or its core hangs", {}, view.ok());
  AddCertificateMetrics(out);
  AddProcessMetrics(out);
  return Page(kMetricsContentType, out.Text());
}

HttpAnswer Dashboard::Health() {
  const absl::Duration silence = questions_.Silence();
  if (silence < kStuckAfter) return TextAnswer(200, "ok");
  return TextAnswer(503, absl::StrFormat("the core has not answered for %s",
                                         absl::FormatDuration(absl::Trunc(silence, absl::Seconds(1)))));
}

HttpAnswer Dashboard::Ready() {
  const absl::Status leads = questions_.Leads();
  if (leads.ok()) return TextAnswer(200, "ok: leads");
  if (StandsBy(leads)) return TextAnswer(200, absl::StrCat("ok: ", leads.message()));
  return TextAnswer(503, leads.message());
}

}  // namespace cairn
