// Goal: RequestTrace tells push, wait and pull of a worker's request one after the other, replicate of a primary's, and
// nothing of requests that belong to no step or to a job that is not traced.
#include "client/request_trace.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

namespace cairn {
namespace {

int64_t g_now = 0;
int64_t FakeNow() { return g_now; }

class RequestTraceTest : public ::testing::Test {
 protected:
  RequestTraceTest() {
    g_now = 100;
    Read();
  }
  std::vector<TraceSpan> Read() {
    TraceRecorder::Request request;
    request.trace = 1;
    request.job = JobId(7);
    request.seconds = 60;
    const absl::StatusOr<TraceRecorder::Answer> answer = recorder_.Read(request);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? answer->spans : std::vector<TraceSpan>();
  }
  static Frame Make(v1::ExchangeFrame::Kind kind, size_t bytes = 0) {
    Frame frame;
    frame.kind = kind;
    frame.job = JobId(7);
    frame.partition = PartitionId(3);
    frame.replica_first = ReplicaId(2);
    if (bytes > 0) frame.payload = Buffer::Allocate(bytes);
    return frame;
  }
  using Told = std::vector<std::tuple<TraceKind, int64_t, int64_t, uint64_t>>;  // kind, begin, end, bytes
  Told ReadTold() {
    Told told;
    for (const TraceSpan& span : Read()) {
      told.emplace_back(span.kind, span.begin_ns, span.end_ns, span.bytes);
      EXPECT_EQ(span.step, 9);
      EXPECT_EQ(span.partition, 3);
      EXPECT_EQ(span.track, TraceTrack::kPartition);
      EXPECT_EQ(span.track_number, 3);
    }
    return told;
  }

  TraceRecorder recorder_{FakeNow};
};

TEST_F(RequestTraceTest, APushIsSentAwaitedAndItsAnswerTakenIn) {
  Frame push = Make(v1::ExchangeFrame::PUSH, 64);
  push.sequence = 10;
  const auto trace = RequestTrace::Of(&recorder_, push);
  ASSERT_NE(trace, nullptr);
  g_now = 110;
  trace->Sent();
  g_now = 150;
  trace->Answered(Make(v1::ExchangeFrame::VALUES, 32), 140);
  g_now = 155;
  trace->TakenIn();
  EXPECT_EQ(
      ReadTold(),
      (Told{{TraceKind::kPush, 100, 110, 64}, {TraceKind::kWait, 110, 140, 0}, {TraceKind::kPull, 140, 155, 32}}));
  EXPECT_EQ(Read().at(0).replica, 2);
}

TEST_F(RequestTraceTest, AnAnswerWithoutValuesIsNoPull) {
  Frame push = Make(v1::ExchangeFrame::PUSH, 64);
  push.sequence = 10;
  const auto trace = RequestTrace::Of(&recorder_, push);
  trace->Sent();
  g_now = 120;
  trace->Answered(Make(v1::ExchangeFrame::ERROR), 120);
  trace->TakenIn();
  EXPECT_EQ(ReadTold(), (Told{{TraceKind::kPush, 100, 100, 64}, {TraceKind::kWait, 100, 120, 0}}));
}

TEST_F(RequestTraceTest, APullWaitsAtOnce) {
  Frame pull = Make(v1::ExchangeFrame::PULL);
  pull.want_version = 9;
  const auto trace = RequestTrace::Of(&recorder_, pull);
  g_now = 105;
  trace->Sent();
  g_now = 120;
  trace->Answered(Make(v1::ExchangeFrame::VALUES, 32), 118);
  trace->TakenIn();
  EXPECT_EQ(ReadTold(), (Told{{TraceKind::kWait, 100, 118, 0}, {TraceKind::kPull, 118, 120, 32}}));
}

TEST_F(RequestTraceTest, AnUpdateIsReplicatedUntilTheBackupHasIt) {
  Frame update = Make(v1::ExchangeFrame::REPLICATE, 64);
  update.version = 10;
  const auto trace = RequestTrace::Of(&recorder_, update);
  g_now = 130;
  trace->Answered(Make(v1::ExchangeFrame::ACK), 130);
  trace->TakenIn();
  EXPECT_EQ(ReadTold(), (Told{{TraceKind::kReplicate, 100, 130, 64}}));
}

TEST_F(RequestTraceTest, OtherRequestsAreNotTraced) {
  EXPECT_EQ(RequestTrace::Of(&recorder_, Make(v1::ExchangeFrame::PULL)), nullptr) << "of no step";
  EXPECT_EQ(RequestTrace::Of(&recorder_, Make(v1::ExchangeFrame::PUSH)), nullptr) << "a bad one";
  EXPECT_EQ(RequestTrace::Of(&recorder_, Make(v1::ExchangeFrame::SNAPSHOT)), nullptr);
  Frame push = Make(v1::ExchangeFrame::PUSH, 64);
  push.sequence = 10;
  EXPECT_EQ(RequestTrace::Of(nullptr, push), nullptr);
  push.job = JobId(8);
  EXPECT_EQ(RequestTrace::Of(&recorder_, push), nullptr);
}

}  // namespace
}  // namespace cairn
