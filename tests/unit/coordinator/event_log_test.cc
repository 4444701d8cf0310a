// EventLog: what is kept and listed, and for whom. LogReads: each question to a node has one answer.
#include "coordinator/core/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "coordinator/core/limits.h"
#include "coordinator/core/log_reads.h"
#include "tests/unit/coordinator/core_parts.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const absl::Time kBegan = absl::FromUnixSeconds(1000);

class EventLogTest : public ::testing::Test {
 protected:
  v1::ListEventsResponse List(const v1::ListEventsRequest& request = {}) const {
    return log_.List(
        request, [&](uint64_t job) { return hidden_.count(job) == 0; },
        [](uint64_t job) { return job == 3 ? "digits" : ""; });
  }
  static std::vector<std::string> Texts(const v1::ListEventsResponse& events) {
    std::vector<std::string> texts;
    for (const v1::ClusterEvent& event : events.events()) texts.push_back(event.text());
    return texts;
  }

  EventLog log_{kBegan, 77};
  std::set<uint64_t> hidden_;
};

TEST_F(EventLogTest, ListsWhatIsAskedFor) {
  log_.Add(kBegan, {false, {.role = v1::PS, .node = "ps-0"}, "joined"});
  log_.Add(kBegan + absl::Seconds(1), {false, OfJob(3), "queued"});
  log_.Add(kBegan + absl::Seconds(2), {true, OfJob(3), "waits"});
  log_.Add(kBegan + absl::Seconds(3), {true, OfJob(4), "fails"});
  const v1::ListEventsResponse all = List();
  EXPECT_THAT(Texts(all), ElementsAre("joined", "queued", "waits", "fails"));
  EXPECT_EQ(all.last(), 4u);
  EXPECT_EQ(all.term(), 77u);
  EXPECT_EQ(all.since_unix_ms(), 1000'000);
  EXPECT_EQ(all.events(0).node(), "ps-0");
  EXPECT_EQ(all.events(0).role(), v1::PS);
  EXPECT_EQ(all.events(1).unix_ms(), 1001'000);
  EXPECT_EQ(all.events(1).job_name(), "digits");
  EXPECT_EQ(all.events(3).job_name(), "") << "the job is deleted";

  v1::ListEventsRequest request;
  request.set_job_id(3);
  EXPECT_THAT(Texts(List(request)), ElementsAre("queued", "waits"));
  request.set_warnings_only(true);
  EXPECT_THAT(Texts(List(request)), ElementsAre("waits"));
  request = {};
  request.set_node("ps-0");
  EXPECT_THAT(Texts(List(request)), ElementsAre("joined"));
  request = {};
  request.set_limit(2);
  EXPECT_THAT(Texts(List(request)), ElementsAre("waits", "fails"));
  request = {};
  request.set_after(3);
  EXPECT_THAT(Texts(List(request)), ElementsAre("joined", "queued", "waits", "fails")) << "the number is of no term";
  request.set_term(77);
  EXPECT_THAT(Texts(List(request)), ElementsAre("fails"));
}

TEST_F(EventLogTest, LeavesOutJobsThatTheCallerMayNotSee) {
  log_.Add(kBegan, {false, OfJob(3), "queued"});
  log_.Add(kBegan, {false, OfJob(4), "queued too"});
  hidden_ = {4};
  EXPECT_THAT(Texts(List()), ElementsAre("queued"));
  v1::ListEventsRequest request;
  request.set_limit(1);
  EXPECT_THAT(Texts(List(request)), ElementsAre("queued")) << "the newest one that is seen";
}

// About neither a job nor a node: such as whose token was made.
TEST_F(EventLogTest, WhatIsOfTheWholeClusterIsForThoseWhoMaySeeEverything) {
  log_.Add(kBegan, {false, {.role = v1::PS, .node = "ps-0"}, "joined"});
  log_.Add(kBegan, {false, {}, "token 1 is made"});
  EXPECT_THAT(Texts(List()), ElementsAre("joined", "token 1 is made"));
  hidden_ = {0};
  EXPECT_THAT(Texts(List()), ElementsAre("joined"));
}

TEST_F(EventLogTest, IsBoundedAndSaysWhatIsGone) {
  for (size_t i = 0; i < kClusterEventsKept + 3; ++i) log_.Add(kBegan, {false, {}, "x"});
  const v1::ListEventsResponse all = List();
  EXPECT_EQ(all.events_size(), static_cast<int>(kClusterEventsKept));
  EXPECT_EQ(all.dropped(), 3u);
  EXPECT_EQ(all.events(0).number(), 4u);
  for (size_t i = 0; i < kClusterEventsKept; ++i) log_.Add(kBegan, {false, {}, std::string(2 * kErrorTextMax, 'y')});
  EXPECT_LE(List().ByteSizeLong(), kClusterEventsBytesKept + 40 * kClusterEventsKept);
}

TEST(LogText, NamesTheSubject) {
  EXPECT_EQ(LogText({false, OfJob(3), "waits"}), "job 3: waits");
  EXPECT_EQ(LogText({false, {.role = v1::WORKER, .node = "w"}, "is lost"}), "worker \"w\" is lost");
  EXPECT_EQ(LogText({false, {}, "a node was refused"}), "a node was refused");
}

class LogReadsTest : public ::testing::Test {
 protected:
  LogReadsTest() { parts_.nodes.Find("ps-0")->machine.serves_log = true; }
  void Ask(uint64_t token, const std::string& node, uint64_t job = 0, Requester who = {}) {
    ReadLog event{ReplyToken(token), {}, std::move(who)};
    event.request.set_node(node);
    event.request.set_job_id(job);
    event.request.set_limit(5);
    reads_.OnReadLog(event);
  }
  // The only reply.
  Reply TakeReply() {
    const std::vector<Reply> replies = Only<Reply>(parts_.TakeEffects());
    EXPECT_EQ(replies.size(), 1u);
    return replies.empty() ? Reply{} : replies[0];
  }

  CoreParts parts_{2, 1};
  LogReads reads_{parts_.ground};
};

TEST_F(LogReadsTest, ANodesAnswerIsTheReply) {
  Ask(1, "ps-0");
  const auto sent = Only<SendCommand>(parts_.TakeEffects());
  ASSERT_EQ(sent.size(), 1u);
  const v1::FetchLog& fetch = sent[0].message.fetch_log();
  EXPECT_EQ(fetch.request().limit(), 5);
  v1::LogRead answer;
  answer.set_request_id(fetch.request_id());
  answer.mutable_log()->add_lines()->set_text("hello");
  reads_.OnLogRead(*parts_.nodes.Find("ps-1"), answer);
  EXPECT_THAT(parts_.TakeEffects(), IsEmpty()) << "it was not asked";
  reads_.OnLogRead(*parts_.nodes.Find("ps-0"), answer);
  const Reply reply = TakeReply();
  EXPECT_TRUE(reply.status.ok());
  EXPECT_EQ(std::get<v1::ReadLogResponse>(reply.body).lines(0).text(), "hello");
  reads_.OnLogRead(*parts_.nodes.Find("ps-0"), answer);
  EXPECT_THAT(parts_.TakeEffects(), IsEmpty()) << "it was answered";
}

TEST_F(LogReadsTest, WhatCannotBeReadIsRefused) {
  Ask(1, "nobody");
  EXPECT_THAT(std::string(TakeReply().status.message()), HasSubstr("there is no node \"nobody\""));
  Ask(2, "ps-1");
  Reply reply = TakeReply();
  EXPECT_EQ(reply.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(reply.status.message()), HasSubstr("which cannot send its log"));
  Ask(3, "ps-0", 99);
  EXPECT_EQ(TakeReply().status.code(), absl::StatusCode::kNotFound);
  const Requester alice{.everything = false, .user = "alice"};
  Ask(4, "ps-0", 0, alice);
  EXPECT_EQ(TakeReply().status.code(), absl::StatusCode::kPermissionDenied);
  Job& job = parts_.AddRunning(1, 0);
  job.status.set_owner("bob");
  parts_.TakeEffects();
  Ask(5, "ps-0", job.id(), alice);
  EXPECT_EQ(TakeReply().status.code(), absl::StatusCode::kPermissionDenied);
  job.status.set_owner("alice");
  Ask(6, "ps-0", job.id(), alice);
  EXPECT_THAT(Only<Reply>(parts_.TakeEffects()), IsEmpty()) << "her own job's lines are fetched";
  parts_.nodes.Closed(parts_.nodes.Find("ps-0")->lease.session());
  Ask(7, "ps-0");
  EXPECT_EQ(TakeReply().status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(LogReadsTest, EachQuestionEnds) {
  for (int i = 1; i <= kLogReadsOfNodeMax; ++i) Ask(static_cast<uint64_t>(i), "ps-0");
  EXPECT_THAT(Only<Reply>(parts_.TakeEffects()), IsEmpty());
  Ask(100, "ps-0");
  EXPECT_EQ(TakeReply().status.code(), absl::StatusCode::kResourceExhausted);
  reads_.ReleaseNode("ps-1");
  EXPECT_THAT(parts_.TakeEffects(), IsEmpty());
  reads_.ReleaseNode("ps-0");
  EXPECT_EQ(Only<Reply>(parts_.TakeEffects()).size(), static_cast<size_t>(kLogReadsOfNodeMax));

  Ask(101, "ps-0");
  parts_.TakeEffects();
  const absl::Time now = parts_.step.now();
  parts_.step.Begin(now + kLogReadTimeout - absl::Milliseconds(1));
  reads_.Tick();
  EXPECT_THAT(parts_.TakeEffects(), IsEmpty());
  parts_.step.Begin(now + kLogReadTimeout);
  reads_.Tick();
  EXPECT_EQ(TakeReply().status.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cairn
