// Goal: Traces: one trace of a job at a time, for who may use the job; each read has one answer, with the times of the
// way to the node and back; a trace that nobody reads ends, and its nodes are told.
#include "coordinator/core/traces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "coordinator/core/limits.h"
#include "tests/unit/coordinator/core_parts.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TracesTest : public ::testing::Test {
 protected:
  TracesTest() {
    for (const char* node : {"ps-0", "ps-1", "worker-0"}) parts_.nodes.Find(node)->machine.serves_trace = true;
    job_ = &parts_.AddRunning(2, 0);
    parts_.TakeEffects();
  }
  Reply Start(uint64_t job, int32_t steps = 5, Requester who = {}) {
    StartTrace event{ReplyToken(++token_), {}, std::move(who)};
    event.request.set_job_id(job);
    event.request.set_steps(steps);
    traces_.OnStart(event);
    return TakeReply();
  }
  // Its number.
  uint64_t Started() {
    const Reply reply = Start(job_->id());
    EXPECT_TRUE(reply.status.ok()) << reply.status;
    return reply.status.ok() ? std::get<v1::StartTraceResponse>(reply.body).trace_id() : 0;
  }
  void Read(uint64_t trace, const std::string& node, Requester who = {}) {
    ReadTrace event{ReplyToken(++token_), {}, std::move(who)};
    event.request.set_trace_id(trace);
    event.request.set_node(node);
    event.request.set_after(3);
    traces_.OnRead(event);
  }
  Reply End(uint64_t trace, Requester who = {}) {
    EndTrace event{ReplyToken(++token_), {}, std::move(who)};
    event.request.set_trace_id(trace);
    traces_.OnEnd(event);
    effects_ = parts_.TakeEffects();
    const std::vector<Reply> replies = Only<Reply>(effects_);
    return replies.empty() ? Reply{} : replies[0];
  }
  Reply TakeReply() {
    const std::vector<Reply> replies = Only<Reply>(parts_.TakeEffects());
    EXPECT_EQ(replies.size(), 1u);
    return replies.empty() ? Reply{} : replies[0];
  }
  std::string Refusal() { return std::string(TakeReply().status.message()); }
  v1::FetchTrace TakeFetch() {
    const auto sent = Only<SendCommand>(parts_.TakeEffects());
    EXPECT_EQ(sent.size(), 1u);
    return sent.empty() ? v1::FetchTrace() : sent[0].message.fetch_trace();
  }

  uint64_t token_ = 0;
  Effects effects_;
  CoreParts parts_{2, 1};
  Traces traces_{parts_.ground};
  Job* job_ = nullptr;
};

TEST_F(TracesTest, NamesTheNodesOfTheJob) {
  parts_.nodes.Find("ps-1")->machine.serves_trace = false;
  parts_.nodes.Find("ps-1")->machine.version = "0.9";
  const Reply reply = Start(job_->id());
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  const auto& response = std::get<v1::StartTraceResponse>(reply.body);
  ASSERT_EQ(response.nodes_size(), 3);
  EXPECT_TRUE(response.synchronous());
  EXPECT_EQ(response.nodes(0).name(), "ps-0");
  EXPECT_EQ(response.nodes(0).lacks(), "");
  EXPECT_EQ(response.nodes(1).name(), "ps-1");
  EXPECT_THAT(response.nodes(1).lacks(), HasSubstr("0.9"));
  EXPECT_THAT(response.nodes(1).lacks(), HasSubstr("records no traces; upgrade it"));
  EXPECT_EQ(response.nodes(2).role(), v1::WORKER);
  Read(response.trace_id(), "ps-1");
  EXPECT_THAT(Refusal(), HasSubstr("is not a part of the trace"));
}

TEST_F(TracesTest, ANodesAnswerIsTheReply) {
  const uint64_t trace = Started();
  const absl::Time asked = parts_.step.now();
  Read(trace, "worker-0");
  const v1::FetchTrace fetch = TakeFetch();
  EXPECT_EQ(fetch.job_id(), job_->id());
  EXPECT_EQ(fetch.steps(), 5);
  EXPECT_EQ(fetch.seconds(), 60);
  EXPECT_EQ(fetch.request().after(), 3u);
  EXPECT_FALSE(fetch.forget());
  parts_.step.Begin(asked + absl::Milliseconds(2));
  v1::TraceRead answer;
  answer.set_request_id(fetch.request_id());
  answer.mutable_trace()->set_last(9);
  traces_.OnTraceRead(*parts_.nodes.Find("ps-0"), answer);
  EXPECT_THAT(parts_.TakeEffects(), IsEmpty()) << "it was not asked";
  traces_.OnTraceRead(*parts_.nodes.Find("worker-0"), answer);
  const Reply reply = TakeReply();
  const auto& read = std::get<v1::ReadTraceResponse>(reply.body);
  EXPECT_EQ(read.last(), 9u);
  EXPECT_EQ(read.asked_ns(), absl::ToUnixNanos(asked));
  EXPECT_EQ(read.answered_ns(), absl::ToUnixNanos(asked) + 2'000'000);
  EXPECT_FALSE(read.job_ended());
  traces_.OnTraceRead(*parts_.nodes.Find("worker-0"), answer);
  EXPECT_THAT(parts_.TakeEffects(), IsEmpty()) << "it was answered";

  Read(trace, "ps-0");
  answer.set_request_id(TakeFetch().request_id());
  answer.set_error("it is recording 4 other jobs");
  traces_.OnTraceRead(*parts_.nodes.Find("ps-0"), answer);
  EXPECT_EQ(Refusal(), "ps \"ps-0\": it is recording 4 other jobs");
}

TEST_F(TracesTest, RefusesWhatCannotBeTraced) {
  EXPECT_EQ(std::string(Start(job_->id(), 0).status.message()), "steps: 0; use 1 to 1000");
  EXPECT_EQ(std::string(Start(job_->id(), 1001).status.message()), "steps: 1001; use 1 to 1000");
  EXPECT_EQ(Start(99).status.code(), absl::StatusCode::kNotFound);
  Job& waiting = parts_.jobs.Add();
  parts_.jobs.Transition(waiting, v1::QUEUED);
  parts_.TakeEffects();
  const Reply queued = Start(waiting.id());
  EXPECT_EQ(queued.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(queued.status.message()), HasSubstr("only the steps of a running job can be traced"));

  const Requester alice{.everything = false, .user = "alice"}, bob{.everything = false, .user = "bob"};
  job_->status.set_owner("alice");
  EXPECT_EQ(Start(job_->id(), 5, bob).status.code(), absl::StatusCode::kPermissionDenied);
  const Reply first = Start(job_->id(), 5, alice);
  ASSERT_TRUE(first.status.ok()) << first.status;
  const uint64_t trace = std::get<v1::StartTraceResponse>(first.body).trace_id();
  parts_.step.Begin(parts_.step.now() + absl::Seconds(3));
  const Reply second = Start(job_->id());
  EXPECT_EQ(second.status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(
      std::string(second.status.message()),
      "job 1 is being traced by alice since 3s; a job has one trace at a time: try again when it has ended, at most "
      "60 s after its beginning");
  Read(trace, "ps-0", bob);
  EXPECT_EQ(TakeReply().status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(End(trace, bob).status.code(), absl::StatusCode::kPermissionDenied);
  job_->status.set_owner("bob");  // as where it is deleted: the trace stays the former owner's
  EXPECT_EQ(End(trace, bob).status.code(), absl::StatusCode::kPermissionDenied);
  job_->status.set_owner("alice");
  Read(trace, "ps-0", alice);
  EXPECT_THAT(Only<Reply>(parts_.TakeEffects()), IsEmpty());
  Read(trace + 100, "ps-0");
  EXPECT_EQ(TakeReply().status.code(), absl::StatusCode::kNotFound);

  for (size_t i = 1; i < kTracesMax; ++i) ASSERT_TRUE(Start(parts_.AddRunning(1, 0).id()).status.ok());
  EXPECT_EQ(Start(parts_.AddRunning(1, 0).id()).status.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(TracesTest, EachReadEnds) {
  const uint64_t trace = Started();
  for (int i = 0; i < kTraceReadsOfNodeMax; ++i) Read(trace, "ps-0");
  EXPECT_THAT(Only<Reply>(parts_.TakeEffects()), IsEmpty());
  Read(trace, "ps-0");
  EXPECT_EQ(TakeReply().status.code(), absl::StatusCode::kResourceExhausted);
  traces_.ReleaseNode("ps-1");
  EXPECT_THAT(parts_.TakeEffects(), IsEmpty());
  traces_.ReleaseNode("ps-0");
  EXPECT_EQ(Only<Reply>(parts_.TakeEffects()).size(), static_cast<size_t>(kTraceReadsOfNodeMax));

  Read(trace, "ps-0");
  parts_.TakeEffects();
  const absl::Time now = parts_.step.now();
  parts_.step.Begin(now + kTraceReadTimeout - absl::Milliseconds(1));
  traces_.Tick();
  EXPECT_THAT(parts_.TakeEffects(), IsEmpty());
  parts_.step.Begin(now + kTraceReadTimeout);
  traces_.Tick();
  EXPECT_EQ(Refusal(), "\"ps-0\" did not answer within 5s");

  parts_.nodes.Closed(parts_.nodes.Find("ps-0")->lease.session());
  Read(trace, "ps-0");
  EXPECT_EQ(Refusal(), "ps \"ps-0\" is not connected");
}

TEST_F(TracesTest, ItsEndIsToldToTheNodes) {
  const uint64_t trace = Started();
  EXPECT_TRUE(End(trace).status.ok());
  const auto sent = Only<SendCommand>(effects_);
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_TRUE(sent[0].message.fetch_trace().forget());
  EXPECT_EQ(sent[0].message.fetch_trace().request().trace_id(), trace);
  EXPECT_TRUE(End(trace).status.ok()) << "again";
  EXPECT_THAT(Only<SendCommand>(effects_), IsEmpty());

  const uint64_t unread = Started();
  const absl::Time now = parts_.step.now();
  parts_.step.Begin(now + kTraceUnreadMax - absl::Milliseconds(1));
  traces_.Tick();
  EXPECT_THAT(parts_.TakeEffects(), IsEmpty());
  Read(unread, "ps-0");
  parts_.TakeEffects();
  parts_.step.Begin(now + kTraceUnreadMax);
  traces_.Tick();
  EXPECT_THAT(Only<SendCommand>(parts_.TakeEffects()), IsEmpty()) << "it was read";
  parts_.step.Begin(now + 2 * kTraceUnreadMax);
  traces_.Tick();
  EXPECT_EQ(Only<SendCommand>(parts_.TakeEffects()).size(), 3u);
  Read(unread, "ps-0");
  EXPECT_THAT(Refusal(), HasSubstr("it has ended, was not read for 10s, or another coordinator leads now"));
  Started();
}

TEST_F(TracesTest, SpansThatMakeNoSenseAreNotPassedOn) {
  const uint64_t trace = Started();
  const auto answered = [&](const std::function<void(v1::ReadTraceResponse&)>& change) {
    Read(trace, "ps-0");
    v1::TraceRead answer;
    answer.set_request_id(TakeFetch().request_id());
    answer.mutable_trace()->set_first(1);
    v1::TraceSpan& span = *answer.mutable_trace()->add_spans();
    span.set_begin_ns(1'000);
    span.set_step(3);
    change(*answer.mutable_trace());
    traces_.OnTraceRead(*parts_.nodes.Find("ps-0"), answer);
    return TakeReply().status;
  };
  EXPECT_TRUE(answered([](auto&) {}).ok());
  const std::function<void(v1::ReadTraceResponse&)> wrong[] = {
      [](auto& t) { t.set_first(0); },
      [](auto& t) { t.set_node_ns(-1); },
      [](auto& t) { t.set_node_ns(INT64_MAX); },
      [](auto& t) { t.set_first(UINT64_MAX); },
      [](auto& t) { t.mutable_spans(0)->set_begin_ns(INT64_MAX); },
      [](auto& t) { t.mutable_spans(0)->set_duration_ns(-1); },
      [](auto& t) { t.mutable_spans(0)->set_step(-1); },
      [](auto& t) { t.mutable_spans(0)->set_step(INT64_MAX); },
      [](auto& t) { t.mutable_spans(0)->set_replica(kReplicasMax); },
      [](auto& t) { t.mutable_spans(0)->set_partition(-1); },
      [](auto& t) { t.mutable_spans(0)->set_text(std::string(kTraceTextBytesMax + 1, 'x')); },
      [](auto& t) {
        for (size_t i = 0; i < kTraceAnswerSpansMax; ++i) t.add_spans();
      },
  };
  for (const auto& change : wrong) {
    EXPECT_THAT(std::string(answered(change).message()), HasSubstr("sent spans that make no sense"));
  }
}

TEST_F(TracesTest, SaysThatTheJobHasEnded) {
  const uint64_t trace = Started();
  parts_.jobs.Transition(*job_, v1::FINALIZING);
  parts_.TakeEffects();
  Read(trace, "ps-0");
  v1::TraceRead answer;
  answer.set_request_id(TakeFetch().request_id());
  traces_.OnTraceRead(*parts_.nodes.Find("ps-0"), answer);
  const Reply reply = TakeReply();
  EXPECT_TRUE(std::get<v1::ReadTraceResponse>(reply.body).job_ended());
}

}  // namespace
}  // namespace cairn
