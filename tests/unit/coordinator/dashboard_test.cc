// Goal: what the coordinator answers over HTTP: the same JSON and metrics as the command line; probes that distinguish
// a leader, a standby and a core that hangs; a standby that redirects readers; pages that contain none of a user's
// words. Runs on a driver without gRPC; the last test uses real sockets.
#include "coordinator/dashboard/dashboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/notification.h"
#include "common/base/log.h"
#include "common/report/json.h"
#include "common/report/metrics_text.h"
#include "coordinator/dashboard/dashboard_pages.h"
#include "coordinator/dashboard/overview.h"
#include "coordinator/node/coordinator_node.h"
#include "tests/unit/coordinator/fake_cluster.h"

namespace cairn {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

// A name that a node may have, and the same name in JSON.
constexpr char kEvil[] = "<script>alert(1)</script>\"&'";

class NoSession : public SessionSink {
 public:
  void Send(v1::CoordinatorMessage) override {}
  void Close(const absl::Status&) override {}
};

class DashboardTest : public testing::Test {
 protected:
  ~DashboardTest() override { driver_.Stop(); }

  void Lead() {
    driver_.Lead([] {
      StateStore store(NewMemoryKvStore());
      StoredState state = *store.Load();
      return absl::StatusOr<Leadership>(Leadership{std::move(store), std::move(state), 1, nullptr, nullptr});
    });
  }
  void StandBy(const std::string& leader, const std::string& http) {
    absl::Status why = absl::UnavailableError("this coordinator stands by; the leader is \"b\"");
    why.SetPayload(kLeaderPayload, absl::Cord(leader));
    if (!http.empty()) why.SetPayload(kLeaderHttpPayload, absl::Cord(http));
    driver_.StandBy(why);
  }
  void AddNode(const std::string& name, v1::Role role) {
    v1::Hello hello;
    hello.set_name(name);
    hello.set_role(role);
    hello.set_address("127.0.0.1:1,unix:/s");
    hello.set_device(kEvil);
    hello.set_slots(2);
    hello.set_incarnation(1);
    absl::Notification done;
    driver_.SessionOpened(std::make_shared<NoSession>(), hello, [&](SessionToken) { done.Notify(); });
    done.WaitForNotification();
  }
  uint64_t Submit(const std::string& name) {
    v1::JobSpec spec = FakeCluster::Spec(2);
    spec.set_name(name);
    spec.mutable_data()->set_path(absl::StrCat("/", kEvil));
    const auto job = std::make_shared<const CheckedJob>(*CheckJob(spec));
    absl::Notification done;
    uint64_t id = 0;
    driver_.Call(
        "",
        [&](ReplyToken token) {
          return SubmitJob{token, job, ""};
        },
        [&](const absl::Status& status, const ReplyBody& body) {
          EXPECT_TRUE(status.ok()) << status;
          if (const auto* response = std::get_if<v1::SubmitResponse>(&body)) id = response->job().job_id();
          done.Notify();
        });
    done.WaitForNotification();
    return id;
  }
  HttpAnswer Get(const std::string& path, std::map<std::string, std::string> query = {}) {
    return dashboard_.Answer({path, path + (query.empty() ? "" : "?q=1"), std::move(query)});
  }
  Json GetJson(const std::string& path, std::map<std::string, std::string> query = {}) {
    const HttpAnswer answer = Get(path, std::move(query));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.content_type, "application/json");
    return Json::parse(answer.body);
  }
  static std::string Header(const HttpAnswer& answer, const std::string& name) {
    for (const auto& [is, value] : answer.headers) {
      if (is == name) return value;
    }
    return "";
  }

  static CoordinatorOptions Patient() {
    CoordinatorOptions options;
    options.lease = absl::Minutes(10);  // nodes of these tests send no heartbeats
    return options;
  }

  RealClock clock_;
  ClusterDriver driver_{Patient(), {&clock_, std::make_unique<SerialExecutor>("cluster")}};
  ManualClock dashboard_clock_;
  Dashboard dashboard_{&driver_, &dashboard_clock_, "here:7070", nullptr, absl::Milliseconds(100)};
};

TEST_F(DashboardTest, NodesAndJobsAreThoseOfTheCommandLine) {
  Lead();
  AddNode("ps-0", v1::PS);
  const uint64_t id = Submit("first");
  const Json nodes = GetJson("/api/v1/nodes")["nodes"];
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0]["role"], "PS");
  EXPECT_EQ(nodes[0]["device"], kEvil);
  const Json jobs = GetJson("/api/v1/jobs")["jobs"];
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0]["spec"]["name"], "first");
  for (const std::string& which : {absl::StrCat(id), std::string("first")}) {
    const Json job = GetJson("/api/v1/jobs/" + which);
    EXPECT_EQ(job["job_id"], id);
    EXPECT_GT(job["spec"]["model"]["layers"].size(), 0u) << "the whole job, with its layers";
  }
  EXPECT_EQ(Get("/api/v1/jobs/99").status, 404);
  EXPECT_EQ(Get("/api/v1/jobs/99").body, "there is no job 99\n");
  EXPECT_EQ(Get("/api/v1/jobs/%00\xff").status, 404);
  for (const char* none :
       {"/api/v1/", "/api/v1/jobs/", "/api/v2/jobs", "/index.html", "//", "/dashboard.cs", "/../etc/passwd"}) {
    EXPECT_EQ(Get(none).status, 404) << none;
  }
}

TEST_F(DashboardTest, TheOverviewIsPagedAndActiveJobsComeFirst) {
  Lead();
  std::vector<uint64_t> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(Submit(absl::StrCat("job-", i)));
  absl::Notification cancelled;
  v1::GetJobRequest newest;
  newest.set_job_id(ids.back());
  driver_.Call(
      "",
      [&](ReplyToken token) {
        return CancelJob{token, newest};
      },
      [&](const absl::Status&, const ReplyBody&) { cancelled.Notify(); });
  cancelled.WaitForNotification();
  AddNode("worker-0", v1::WORKER);  // after them: it would be asked for their data
  const Json all = GetJson("/api/v1/overview");
  ASSERT_EQ(all["jobs_total"], 5);
  ASSERT_EQ(all["nodes"].size(), 1u);
  EXPECT_EQ(all["jobs"][0]["id"], ids[3]) << "the newest one has ended";
  EXPECT_EQ(all["jobs"][4]["id"], ids[4]);
  EXPECT_EQ(all["jobs_in_state"]["QUEUED"], 4);
  EXPECT_EQ(all["coordinator"], "here:7070");
  EXPECT_EQ(all["nodes"][0]["address"], "127.0.0.1:1");
  EXPECT_EQ(all["nodes"][0]["state"], "alive");
  const Json part = GetJson("/api/v1/overview", {{"jobs", "active"}, {"offset", "1"}, {"limit", "2"}});
  EXPECT_EQ(part["jobs_total"], 4);
  ASSERT_EQ(part["jobs"].size(), 2u);
  EXPECT_EQ(part["jobs"][0]["id"], ids[2]);
  EXPECT_EQ(GetJson("/api/v1/overview", {{"jobs", "ended"}})["jobs"].size(), 1u);
  EXPECT_EQ(GetJson("/api/v1/overview", {{"offset", "1000"}})["jobs"].size(), 0u);
  EXPECT_EQ(Get("/api/v1/overview", {{"offset", "-1"}}).body, "offset: a number is expected\n");
  EXPECT_EQ(Get("/api/v1/overview", {{"jobs", "none"}}).status, 400);
}

TEST_F(DashboardTest, MetricsAreThoseOfTheCommandLineAndOfTheProcess) {
  Lead();
  AddNode("ps-0", v1::PS);
  const HttpAnswer answer = Get("/metrics");
  EXPECT_EQ(answer.content_type, "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line :
       {"cairn_coordinator_up 1\n", "cairn_coordinator_leader 1\n",
        "cairn_node_up{node=\"ps-0\",role=\"ps\",host=\"\"} 1\n", "# TYPE process_cpu_seconds_total counter\n",
        "cairn_jobs{state=\"queued\"} 0\n", "cairn_build_info{version=\""}) {
    EXPECT_THAT(answer.body, HasSubstr(line));
  }
  for (const char* positive : {"process_cpu_seconds_total ", "process_resident_memory_bytes ",
                               "process_start_time_seconds ", "process_open_fds ", "process_max_fds "}) {
    const std::vector<std::string> around = absl::StrSplit(answer.body, absl::StrCat("\n", positive));
    ASSERT_EQ(around.size(), 2u) << positive;
    EXPECT_GT(std::stod(around[1]), 0) << positive;
  }
}

TEST_F(DashboardTest, AStandbySendsReadersToTheLeaderAndShowsItsOwnFigures) {
  StandBy("b:7070", "http://b:7080");
  const HttpAnswer page = Get("/"), api = Get("/api/v1/overview", {{"jobs", "all"}});
  EXPECT_EQ(page.status, 307);
  EXPECT_EQ(Header(page, "Location"), "http://b:7080/");
  EXPECT_EQ(Header(api, "Location"), "http://b:7080/api/v1/overview?q=1") << "with its query";
  const Json leader = GetJson("/api/v1/leader");
  EXPECT_EQ(leader["leads"], false);
  EXPECT_EQ(leader["pages"], "http://b:7080");
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/readyz").status, 200);
  EXPECT_THAT(Get("/readyz").body, HasSubstr("stands by; the leader is \"b\""));
  EXPECT_EQ(Get("/metrics").status, 200);
  EXPECT_THAT(Get("/metrics").body, HasSubstr("cairn_coordinator_leader 0\n"));
  EXPECT_THAT(Get("/metrics").body, Not(HasSubstr("cairn_coordinator_up")));
  for (const char* script : {"/elements.js", "/actions.js", "/chart.js", "/job.js", "/compare.js", "/log.js",
                             "/submit.js", "/dashboard.js"}) {
    EXPECT_EQ(Get(script).status, 200);
    EXPECT_THAT(std::string(kDashboardHtml), HasSubstr(absl::StrCat("<script src=\"", script, "\"></script>")));
  }
}

TEST_F(DashboardTest, ShowsWhatHappenedAndFindsJobsByName) {
  Lead();
  AddNode("ps-0", v1::PS);
  Submit("digits");
  Submit("texts");
  const auto events = GetJson("/api/v1/events")["events"];
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["node"], "ps-0");
  EXPECT_EQ(events[0]["role"], "ps");
  EXPECT_EQ(events[1]["job_name"], "digits");
  const auto of = [&](const std::string& key, const std::string& value) {
    return nlohmann::json::parse(Get("/api/v1/overview", {{key, value}}).body);
  };
  EXPECT_EQ(of("events", "2")["events"].size(), 2u);
  EXPECT_EQ(of("events", "2")["events"][0]["job_name"], "texts") << "the newest first";
  EXPECT_EQ(of("events", "0")["events"].size(), 0u);
  EXPECT_EQ(of("name", "IGIT")["jobs_total"], 1);
  EXPECT_EQ(of("name", "IGIT")["jobs"][0]["name"], "digits");
  EXPECT_EQ(of("name", "nothing")["jobs_total"], 0);
  EXPECT_EQ(Get("/api/v1/overview", {{"events", "x"}}).status, 400);
}

TEST_F(DashboardTest, ShowsLinesOfLogs) {
  Lead();
  AddNode("ps-0", v1::PS);
  LogWarning("a line with %s in it", kEvil);
  const Json all = GetJson("/api/v1/logs");
  EXPECT_EQ(all["node"], "coordinator");
  ASSERT_FALSE(all["lines"].empty());
  const Json warnings = GetJson("/api/v1/logs", {{"level", "warning"}, {"limit", "1"}});
  ASSERT_EQ(warnings["lines"].size(), 1u);
  EXPECT_EQ(warnings["lines"][0]["level"], "warning");
  EXPECT_THAT(warnings["lines"][0]["text"].get<std::string>(), HasSubstr(kEvil));
  const std::pair<std::map<std::string, std::string>, int> wrong[] = {
      {{{"level", "loud"}}, 400}, {{{"limit", "0"}}, 400}, {{{"limit", "1001"}}, 400}, {{{"job", "x"}}, 400},
      {{{"node", "ps-9"}}, 404},  {{{"job", "77"}}, 404},  {{{"node", "ps-0"}}, 503},  // it is too old to serve its log
  };
  for (const auto& [query, status] : wrong) {
    const HttpAnswer answer = Get("/api/v1/logs", query);
    EXPECT_EQ(answer.status, status) << query.begin()->first << "=" << query.begin()->second << ": " << answer.body;
  }
}

TEST_F(DashboardTest, AStandbyOfALeaderWithoutPagesSaysWhoLeads) {
  StandBy("b:7070", "");
  EXPECT_EQ(Get("/").status, 503);
  EXPECT_THAT(Get("/").body, HasSubstr("the leader is \"b\""));
  EXPECT_EQ(Header(Get("/"), "Location"), "");
  EXPECT_EQ(Get("/readyz").status, 200);
}

TEST_F(DashboardTest, WithoutALeaderItIsAliveAndNotReady) {
  StandBy("", "");
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_THAT(Get("/metrics").body, HasSubstr("cairn_coordinator_up 0\n"));
  EXPECT_EQ(Header(Get("/api/v1/jobs"), "Retry-After"), "1");
}

// Everybody is answered while the core hangs, and what it is asked is bounded.
TEST_F(DashboardTest, ACoreThatHangsHoldsNobodyUp) {
  Lead();
  absl::Notification inside, go_on;
  driver_.Query(
      "",
      [&](const ClusterCore&, absl::Time) {
        inside.Notify();
        go_on.WaitForNotification();
      },
      nullptr);
  inside.WaitForNotification();
  std::vector<std::thread> readers;
  std::atomic<int> refused{0};
  for (int i = 0; i < 100; ++i) {
    readers.emplace_back([&, i] {
      const HttpAnswer answer = Get(i % 2 == 0 ? "/api/v1/nodes" : "/readyz");
      refused += answer.status == 503 && absl::StrContains(answer.body, "the coordinator is busy");
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(refused, 100);
  EXPECT_EQ(Get("/healthz").status, 200) << "not for so long yet";
  EXPECT_THAT(Get("/metrics").body,
              AllOf(HasSubstr("cairn_coordinator_leader 0\n"), HasSubstr("cairn_coordinator_up 0\n")));
  dashboard_clock_.Advance(Dashboard::kStuckAfter);
  EXPECT_EQ(Get("/healthz").status, 503);
  EXPECT_EQ(Get("/healthz").body, "the core has not answered for 30s\n");
  go_on.Notify();
  driver_.Stop();  // the core's thread has left `go_on`
}

TEST_F(DashboardTest, ReadersWithinAMomentShareAnAnswer) {
  Lead();
  AddNode("ps-0", v1::PS);
  EXPECT_EQ(GetJson("/api/v1/nodes")["nodes"].size(), 1u);
  AddNode("ps-1", v1::PS);
  EXPECT_EQ(GetJson("/api/v1/nodes")["nodes"].size(), 1u);
  dashboard_clock_.Advance(Dashboard::kFresh);
  EXPECT_EQ(GetJson("/api/v1/nodes")["nodes"].size(), 2u);
}

TEST_F(DashboardTest, ReadersOfAJobShareItForAMoment) {
  Lead();
  const uint64_t id = Submit("first"), other = Submit("second");
  const std::string path = absl::StrCat("/api/v1/jobs/", id);
  EXPECT_EQ(GetJson(path)["state"], "QUEUED");
  v1::GetJobRequest which;
  which.set_job_id(id);
  absl::Notification cancelled;
  driver_.Call(
      "",
      [&](ReplyToken token) {
        return CancelJob{token, which};
      },
      [&](const absl::Status&, const ReplyBody&) { cancelled.Notify(); });
  cancelled.WaitForNotification();
  EXPECT_EQ(GetJson(path)["state"], "QUEUED");
  dashboard_clock_.Advance(Dashboard::kFresh);
  EXPECT_EQ(GetJson(path)["state"], "CANCELLED");
  EXPECT_EQ(GetJson(absl::StrCat("/api/v1/jobs/", other))["job_id"], other) << "not the one that was asked for last";
}

// The page is fixed text; users' words reach it only as JSON, and its script inserts them as text. Nothing that could
// turn them into HTML is used.
TEST(DashboardPages, NothingBecomesHtml) {
  for (const char* maker : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
                            "srcdoc", "javascript:", "DOMParser", "setTimeout(\""}) {
    for (const std::string_view script : {kElementsJs, kActionsJs, kJobJs, kSubmitJs, kDashboardJs})
      EXPECT_THAT(std::string(script), Not(HasSubstr(maker)));
    EXPECT_THAT(std::string(kDashboardHtml), Not(HasSubstr(maker)));
  }
  // Nor anything that the Content-Security-Policy would refuse, or that comes from elsewhere.
  for (const char* refused : {"style=", "onclick=", "onload=", "<style", "http://", "https://"}) {
    std::string html(kDashboardHtml);
    const std::string icon = "xmlns='http://www.w3.org/2000/svg'";
    if (const size_t at = html.find(icon); at != std::string::npos) html.erase(at, icon.size());
    EXPECT_THAT(html, Not(HasSubstr(refused)));
  }
  EXPECT_THAT(std::string(kDashboardHtml), StartsWith("<!doctype html>"));
  EXPECT_TRUE(absl::EndsWith(std::string(kDashboardJs), "refresh();\n")) << "whole";
}

// A script may not read what another origin answers: the page as a whole follows a standby's redirect.
TEST(DashboardPages, AnOpenPageGoesToTheNewLeader) {
  EXPECT_THAT(std::string(kDashboardJs), HasSubstr("redirect: \"manual\""));
  EXPECT_THAT(std::string(kDashboardJs), HasSubstr("answer.type === \"opaqueredirect\""));
}

TEST(CoordinatorHttp, AddressesAreSaidWithTheirFlagsAndAsOthersReachThem) {
  CoordinatorNodeOptions options;
  options.listen = "127.0.0.1:0";
  options.http = "0";
  auto first = CoordinatorNode::Start(options, NewMemoryKvStore());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT((*first)->http(), StartsWith("http://127.0.0.1:"));
  options.http = std::string(absl::StripPrefix((*first)->http(), "http://"));
  const auto second = CoordinatorNode::Start(options, NewMemoryKvStore());
  EXPECT_EQ(second.status().message(),
            "--http: cannot listen on \"" + options.http + "\": it is in use, or not on this host; choose another");
  options.http = "0";
  options.http_advertise = "pages.example:8443";  // behind a published port
  const auto published = CoordinatorNode::Start(options, NewMemoryKvStore());
  ASSERT_TRUE(published.ok()) << published.status();
  EXPECT_EQ((*published)->http(), "http://pages.example:8443");
  options.http_advertise = "pages.example";
  EXPECT_THAT(std::string(CoordinatorNode::Start(options, NewMemoryKvStore()).status().message()),
              StartsWith("--http-advertise: "));
  options.http = "nonsense";
  EXPECT_EQ(CoordinatorNode::Start(options, NewMemoryKvStore()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
