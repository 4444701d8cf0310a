// Goal: what a page changes is what the same caller may change by gRPC: each kind of caller is tried with each action;
// errors are those of the coordinator, as JSON, with a status that fits; a standby says who leads; pages that are
// read-only change nothing; the audit log has the same lines. On a driver without gRPC and without sockets.
#include "coordinator/dashboard/actions.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "coordinator/dashboard/limits.h"
#include "tests/unit/coordinator/fake_cluster.h"

namespace cairn {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;

class NoSession : public SessionSink {
 public:
  void Send(v1::CoordinatorMessage) override {}
  void Close(const absl::Status&) override {}
};

const Caller kAnybody = {.unrestricted = true};
const Caller kAlice = {.names = {{CallerRole::kUser, "alice"}}};
const Caller kBob = {.names = {{CallerRole::kUser, "bob"}}};
const Caller kRoot = {.names = {{CallerRole::kAdmin, "root"}}};
const Caller kNode = {.names = {{CallerRole::kWorker, "worker-0"}}};
const Caller kMonitor = {};

class ActionsTest : public testing::Test {
 protected:
  ActionsTest() {
    std::string pattern = testing::TempDir() + "cairn-actions-XXXXXX";
    dir_ = mkdtemp(pattern.data());
    audit_ = AuditLog::Open(path()).value();
    calls_ = std::make_unique<UserCalls>(&driver_, CallGuard{.audit = audit_.get()}, nullptr);
    actions_ = std::make_unique<Actions>(calls_.get());
    driver_.Lead([] {
      StateStore store(NewMemoryKvStore());
      StoredState state = *store.Load();
      return absl::StatusOr<Leadership>(Leadership{std::move(store), std::move(state), 1, nullptr, nullptr});
    });
  }
  ~ActionsTest() override {
    driver_.Stop();
    std::filesystem::remove_all(dir_);
  }

  std::string path() const { return dir_ + "/audit.log"; }
  std::vector<Json> AuditLines() const {
    std::vector<Json> lines;
    std::ifstream file(path());
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  void AddNode(const std::string& name, v1::Role role) {
    v1::Hello hello;
    hello.set_name(name);
    hello.set_role(role);
    hello.set_address("127.0.0.1:1");
    hello.set_slots(2);
    hello.set_incarnation(1);
    absl::Notification done;
    driver_.SessionOpened(std::make_shared<NoSession>(), hello, [&](SessionToken) { done.Notify(); });
    done.WaitForNotification();
  }

  // The core does nothing until then; returns when it has begun with that.
  void Hang(absl::Notification* until) {
    absl::Notification inside;
    driver_.Query(
        "",
        [&inside, until](const ClusterCore&, absl::Time) {
          inside.Notify();
          until->WaitForNotification();
        },
        nullptr);
    inside.WaitForNotification();
  }
  // As the server has it: refused before the body is read, or answered.
  HttpAnswer Post(const Caller& who, const std::string& where, const std::string& body) {
    HttpRequest request = {where, where, {}, who, "POST", "ipv4:10.0.0.7:4711", ""};
    if (std::optional<HttpAnswer> refused = actions_->BeforePost(request)) return *std::move(refused);
    request.body = body;
    return actions_->Answer(request);
  }
  static std::string Submission(const std::string& name, const std::string& key = "") {
    v1::JobSpec spec = FakeCluster::Spec(2);
    spec.set_name(name);
    std::string text;
    google::protobuf::TextFormat::PrintToString(spec, &text);
    return Json{{"text", text}, {"request_key", key}}.dump();
  }
  uint64_t Submit(const Caller& who, const std::string& name) {
    const HttpAnswer answer = Post(who, "/api/v1/jobs", Submission(name));
    EXPECT_EQ(answer.status, 200) << answer.body;
    const Json job = Json::parse(answer.body);
    EXPECT_EQ(job["name"], name);
    return job["job_id"].get<uint64_t>();
  }
  static std::string ErrorOf(const HttpAnswer& answer) {
    EXPECT_EQ(answer.content_type, "application/json") << answer.body;
    return Json::parse(answer.body)["error"].get<std::string>();
  }
  static std::string Path(uint64_t job, const char* what) { return absl::StrCat("/api/v1/jobs/", job, "/", what); }

  std::string dir_;
  RealClock clock_;
  ClusterDriver driver_{[] {
                          CoordinatorOptions options;
                          options.lease = absl::Minutes(10);  // nodes of these tests send no heartbeats
                          return options;
                        }(),
                        {&clock_, std::make_unique<SerialExecutor>("cluster")}};
  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<UserCalls> calls_;
  std::unique_ptr<Actions> actions_;
};

TEST_F(ActionsTest, AJobIsSubmittedCancelledAndDeleted) {
  const uint64_t id = Submit(kAnybody, "first");
  EXPECT_EQ(Post(kAnybody, Path(id, "delete"), "{}").status, 409) << "it has not ended";
  const HttpAnswer cancelled = Post(kAnybody, Path(id, "cancel"), "{}");
  ASSERT_EQ(cancelled.status, 200) << cancelled.body;
  EXPECT_EQ(Json::parse(cancelled.body)["state"], "CANCELLED");
  EXPECT_EQ(Post(kAnybody, Path(id, "cancel"), "{}").status, 200) << "an ended job stays as it is";
  const HttpAnswer deleted = Post(kAnybody, Path(id, "delete"), "{}");
  ASSERT_EQ(deleted.status, 200) << deleted.body;
  EXPECT_EQ(Json::parse(deleted.body)["job_id"], id);
  EXPECT_EQ(Post(kAnybody, Path(id, "cancel"), "{}").status, 404);
  Submit(kAnybody, "second");
  EXPECT_EQ(Post(kAnybody, "/api/v1/jobs/second/cancel", "{}").status, 200) << "by its name";
}

TEST_F(ActionsTest, ASubmissionThatIsMadeAgainIsOneJob) {
  const Json first = Json::parse(Post(kAlice, "/api/v1/jobs", Submission("one", "key")).body);
  const Json again = Json::parse(Post(kAlice, "/api/v1/jobs", Submission("one", "key")).body);
  EXPECT_EQ(first["job_id"], again["job_id"]);
}

TEST_F(ActionsTest, ErrorsNameTheField) {
  const auto error = [&](const Json& body) {
    const HttpAnswer answer = Post(kAnybody, "/api/v1/jobs", body.dump());
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(Json::parse(answer.body)["code"], "INVALID_ARGUMENT");
    return ErrorOf(answer);
  };
  EXPECT_THAT(error({{"text", "epocs: 3"}}),
              HasSubstr("job:1:6: Message type \"cairn.v1.JobSpec\" has no field named"));
  EXPECT_THAT(error({{"text", "name: \"\\xff\""}}), HasSubstr("not UTF-8"));
  EXPECT_THAT(error({{"text", "name: \"x\""}}), HasSubstr("model"));
  EXPECT_THAT(error({{"text", " "}}), HasSubstr("text: the job is missing"));
  EXPECT_THAT(error({{"text", 3}}), HasSubstr("text: a text is expected"));
  EXPECT_THAT(error({{"txt", "x"}}), HasSubstr("no field \"txt\""));
  EXPECT_THAT(error(Json::array()), HasSubstr("not a JSON object"));
  EXPECT_THAT(error({{"text", Json::array({1})}}), HasSubstr("not a JSON object of texts"));
  for (const std::string& body : {std::string(), std::string("{"), std::string("{}x"), std::string("{\"a\":\"\xff\"}"),
                                  std::string(100'000, '['), "{\"a\":" + std::string(100'000, '{')}) {
    EXPECT_EQ(Post(kAnybody, "/api/v1/jobs", body).status, 400) << body.substr(0, 20);
  }
  EXPECT_EQ(Post(kAnybody, "/api/v1/jobs/1/cancel", "{\"x\":1}").status, 400);
  EXPECT_EQ(Post(kAnybody, "/api/v1/nodes/worker-0/drain", "{\"undo\":1}").status, 400);
  EXPECT_EQ(Post(kAnybody, absl::StrCat("/api/v1/jobs/", std::string(5000, 'x'), "/cancel"), "{}").status, 400);
  EXPECT_EQ(Post(kAnybody, "/api/v1/nodes/nobody/drain", "{}").status, 404);
}

TEST_F(ActionsTest, WhereNothingIsChangedThereIsNoPost) {
  for (const char* where : {"/", "/api/v1/nodes", "/api/v1/jobs/", "/api/v1/jobs/1", "/api/v1/jobs//cancel", "/metrics",
                            "/api/v1/nodes//drain", "/api/v1/nodes/x/cancel", "/api/v1/jobs/1/drain", "/healthz"}) {
    EXPECT_EQ(Post(kAnybody, where, "{}").status, 405) << where;
  }
}

// The table of docs/security.md, as far as pages go.
TEST_F(ActionsTest, EachCallerMayWhatItMayByGrpc) {
  struct Row {
    const char* name;
    const Caller* who;
    int submit, cancel_alices, delete_alices, drain;
  };
  const Row rows[] = {
      {"anybody, without TLS", &kAnybody, 200, 200, 200, 200},
      {"alice", &kAlice, 200, 200, 200, 403},
      {"bob", &kBob, 200, 403, 403, 403},
      {"an admin", &kRoot, 200, 200, 200, 200},
      {"the node itself", &kNode, 403, 403, 403, 200},
      {"a certificate without a role", &kMonitor, 403, 403, 403, 403},
  };
  std::vector<uint64_t> running, ended;
  for (size_t i = 0; i < std::size(rows); ++i) {
    running.push_back(Submit(kAlice, absl::StrCat("running-", i)));
    ended.push_back(Submit(kAlice, absl::StrCat("ended-", i)));
    ASSERT_EQ(Post(kAlice, Path(ended.back(), "cancel"), "{}").status, 200);
  }
  for (size_t i = 0; i < std::size(rows); ++i) {
    const Row& row = rows[i];
    EXPECT_EQ(Post(*row.who, "/api/v1/jobs", Submission(absl::StrCat("by-", i))).status, row.submit) << row.name;
    EXPECT_EQ(Post(*row.who, Path(running[i], "cancel"), "{}").status, row.cancel_alices) << row.name;
    EXPECT_EQ(Post(*row.who, Path(ended[i], "delete"), "{}").status, row.delete_alices) << row.name;
    const Json rights = Json::parse(actions_->RightsJson(*row.who));
    EXPECT_EQ(rights["submit"], row.submit == 200) << row.name;
    EXPECT_EQ(rights["cancel"], row.submit == 200) << row.name << ": of jobs that are shown to it";
    EXPECT_EQ(rights["read_only"], false);
  }
  AddNode("worker-0", v1::WORKER);  // after them: it would be asked for their data
  v1::NodeStatus node;
  node.set_name("worker-0");
  node.set_role(v1::WORKER);
  for (const Row& row : rows) {
    for (const char* body : {"{}", "{\"undo\":true}"}) {
      EXPECT_EQ(Post(*row.who, "/api/v1/nodes/worker-0/drain", body).status, row.drain) << row.name << body;
    }
    EXPECT_EQ(actions_->MayDrain(*row.who, node), row.drain == 200) << row.name;
  }
  node.set_name("worker-9");
  EXPECT_FALSE(actions_->MayDrain(kNode, node)) << "another node";
  EXPECT_EQ(Post(kNode, "/api/v1/nodes/worker-9/drain", "{}").status, 403);
}

TEST_F(ActionsTest, TheAuditLogHasTheLinesOfTheSameCalls) {
  const uint64_t id = Submit(kAlice, "hers");
  const HttpAnswer refused = Post(kBob, Path(id, "cancel"), "{}");
  EXPECT_THAT(ErrorOf(refused), HasSubstr(absl::StrCat("job ", id, " is alice's")));
  Post(kMonitor, Path(id, "cancel"), "{}");
  const std::vector<Json> lines = AuditLines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["call"], "Submit");
  EXPECT_EQ(lines[0]["who"], "user alice");
  EXPECT_EQ(lines[0]["from"], "ipv4:10.0.0.7:4711");
  EXPECT_EQ(lines[0]["job_id"], id);
  EXPECT_EQ(lines[1]["call"], "CancelJob");
  EXPECT_EQ(lines[1]["who"], "user bob");
  EXPECT_EQ(lines[1]["outcome"], "PERMISSION_DENIED");
  EXPECT_EQ(lines[2]["call"], "/cairn.v1.JobService/CancelJob") << "a role forbids it";
}

TEST_F(ActionsTest, AStandbySaysWhoLeads) {
  absl::Status why = absl::UnavailableError("this coordinator stands by; the leader is \"b\"");
  why.SetPayload(kLeaderPayload, absl::Cord("b:7070"));
  driver_.StandBy(why);
  const HttpAnswer alone = Post(kAnybody, "/api/v1/jobs/1/cancel", "{}");
  EXPECT_EQ(alone.status, 503);
  EXPECT_THAT(ErrorOf(alone), HasSubstr("the leader is \"b\""));
  why.SetPayload(kLeaderHttpPayload, absl::Cord("http://b:7080"));
  driver_.StandBy(why);
  const HttpAnswer sent = Post(kAnybody, "/api/v1/jobs/1/cancel", "{}");
  EXPECT_EQ(sent.status, 307);
  ASSERT_EQ(sent.headers.size(), 1u);
  EXPECT_EQ(sent.headers[0].second, "http://b:7080/api/v1/jobs/1/cancel");
}

TEST_F(ActionsTest, PagesThatAreReadOnlyChangeNothing) {
  const uint64_t id = Submit(kAnybody, "kept");
  actions_ = std::make_unique<Actions>(nullptr);
  for (const std::string& where :
       {std::string("/api/v1/jobs"), Path(id, "cancel"), std::string("/api/v1/nodes/x/drain")}) {
    const HttpAnswer answer = Post(kAnybody, where, "{}");
    EXPECT_EQ(answer.status, 403) << where;
    EXPECT_THAT(answer.body, HasSubstr("--http-read-only"));
  }
  const Json rights = Json::parse(actions_->RightsJson(kAnybody));
  EXPECT_EQ(rights["read_only"], true);
  for (const char* what : {"submit", "cancel", "delete"}) EXPECT_EQ(rights[what], false) << what;
  EXPECT_FALSE(actions_->MayDrain(kAnybody, v1::NodeStatus()));
}

// While the core hangs, no more than so many callers wait, and none for ever; submissions take no place of the others.
TEST_F(ActionsTest, ACoreThatHangsIsWaitedForByFew) {
  absl::Notification go_on;
  Hang(&go_on);
  constexpr int kTooMany = 3;
  std::atomic<int> refused{0}, not_found{0}, submitted{0};
  std::vector<std::thread> callers;
  const auto count = [&](int status, int well, std::atomic<int>* done) {
    *done += status == well;
    if (status == 429 && ++refused == 2 * kTooMany) go_on.Notify();
  };
  for (int i = 0; i < kPageSubmissionsMax + kTooMany; ++i) {
    callers.emplace_back([&, i] {
      count(Post(kAnybody, "/api/v1/jobs", Submission(absl::StrCat("waits-", i))).status, 200, &submitted);
    });
  }
  for (int i = 0; i < kPageActionsMax + kTooMany; ++i) {
    callers.emplace_back([&] { count(Post(kAnybody, "/api/v1/jobs/999/cancel", "{}").status, 404, &not_found); });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(refused, 2 * kTooMany);
  EXPECT_EQ(submitted, kPageSubmissionsMax);
  EXPECT_EQ(not_found, kPageActionsMax);
}

// The one who gives up is told that the change is not undone by that.
TEST_F(ActionsTest, AChangeThatIsLateIsStillMade) {
  const uint64_t id = Submit(kAnybody, "late");
  actions_ = std::make_unique<Actions>(calls_.get(), absl::ZeroDuration());
  absl::Notification go_on;
  Hang(&go_on);
  const HttpAnswer cancelled = Post(kAnybody, Path(id, "cancel"), "{}");
  EXPECT_EQ(cancelled.status, 504);
  EXPECT_THAT(ErrorOf(cancelled), HasSubstr("may still be made: look before you repeat it"));
  const HttpAnswer submitted = Post(kAnybody, "/api/v1/jobs", Submission("also", "key"));
  EXPECT_EQ(submitted.status, 504);
  EXPECT_THAT(ErrorOf(submitted), HasSubstr("may still be submitted: send it again with the same request_key"));
  go_on.Notify();
  actions_ = std::make_unique<Actions>(calls_.get());
  EXPECT_EQ(Post(kAnybody, Path(id, "delete"), "{}").status, 200) << "it is cancelled";
  EXPECT_EQ(Post(kAnybody, "/api/v1/jobs/also/cancel", "{}").status, 200);
}

// As large as by gRPC: the JSON around it may be larger.
TEST_F(ActionsTest, ALargeJobIsTaken) {
  const Json fields = Json::parse(Submission("large"));
  const std::string comments(kPageActionBytesMax - 10'000, '\n');  // each is two bytes of JSON
  const std::string body = Json{{"text", comments + fields["text"].get<std::string>()}}.dump();
  EXPECT_GT(body.size(), kPageActionBytesMax);
  EXPECT_LT(body.size(), kPageBodyBytesMax);
  EXPECT_EQ(Post(kAnybody, "/api/v1/jobs", body).status, 200);
  EXPECT_EQ(Json::parse(actions_->RightsJson(kAnybody))["request_bytes_max"], kPageBodyBytesMax);
}

}  // namespace
}  // namespace cairn
