// Goal: the parts of an Exchange stream by themselves: what it may start, what it sends, when it reads, and how fast
// snapshots go.
#include <gtest/gtest.h>

#include "server/node/outgoing_frames.h"
#include "server/node/snapshot_pacer.h"
#include "server/node/stream_flow.h"
#include "server/node/stream_life.h"

namespace cairn {
namespace {

TEST(StreamFlowTest, ReadsPauseWhileRequestsWaitForPartitions) {
  StreamFlow flow;
  EXPECT_FALSE(flow.MayResume()) << "nothing had paused";
  flow.Received(kStreamHandlingBytesMax);
  EXPECT_TRUE(flow.MayRead());
  flow.Received(1);
  EXPECT_FALSE(flow.MayRead());
  EXPECT_FALSE(flow.MayResume());
  flow.Handled(1);
  EXPECT_TRUE(flow.MayResume());
  EXPECT_FALSE(flow.MayResume()) << "once";
}

TEST(StreamFlowTest, ReadsGoOnWhenHalfOfTheAnswersAreGone) {
  StreamFlow flow;
  flow.Queued(/*snapshot=*/false, kStreamQueueBytesMax + 1);
  EXPECT_FALSE(flow.MayRead());
  flow.Sent(false, kStreamQueueBytesMax / 2);
  EXPECT_FALSE(flow.MayResume());
  flow.Sent(false, 1);
  EXPECT_TRUE(flow.MayResume());
}

TEST(StreamFlowTest, SnapshotsHaveABoundOfTheirOwn) {
  StreamFlow flow;
  flow.Queued(/*snapshot=*/true, kStreamQueueBytesMax + 1);
  EXPECT_TRUE(flow.MayRead());
  flow.Queued(true, kStreamBulkBytesMax);
  EXPECT_FALSE(flow.MayRead());
}

TEST(StreamFlowTest, AClosedSideGetsTheAnswersToAllThatItAsked) {
  StreamFlow flow;
  flow.Asked();
  flow.Asked();
  flow.HalfClose();
  flow.Answered();
  EXPECT_FALSE(flow.all_answered());
  flow.Answered();
  EXPECT_TRUE(flow.all_answered());
  flow.Answered();  // one that nobody asked for
  EXPECT_TRUE(flow.all_answered());
}

TEST(StreamLifeTest, ThereIsOneWriter) {
  StreamLife life;
  EXPECT_TRUE(life.TakeWriting());
  EXPECT_FALSE(life.TakeWriting());
  life.StopWriting();
  EXPECT_TRUE(life.TakeWriting());
}

TEST(StreamLifeTest, FinishIsCalledOnceAndWithTheFirstStatus) {
  StreamLife life;
  life.ReadStarted();
  ASSERT_TRUE(life.TakeWriting());
  EXPECT_FALSE(life.TakeFinish().has_value()) << "nothing has ended it";
  EXPECT_TRUE(life.End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the client is gone")));
  EXPECT_FALSE(life.End(grpc::Status::OK));
  EXPECT_TRUE(life.ending());
  EXPECT_FALSE(life.finishing());
  const std::optional<grpc::Status> finish = life.TakeFinish();
  ASSERT_TRUE(finish.has_value());
  EXPECT_EQ(finish->error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(life.finishing());
  EXPECT_FALSE(life.TakeFinish().has_value());
  life.StopWriting();
  EXPECT_FALSE(life.TakeWriting()) << "nothing is started after Finish";
}

TEST(StreamLifeTest, FinishWaitsForReadsThatAreBeingStarted) {
  StreamLife life;  // the first read is being started
  ASSERT_TRUE(life.TakeWriting());
  ASSERT_TRUE(life.End(grpc::Status::OK));
  EXPECT_FALSE(life.TakeFinish().has_value());
  life.BeginRead();
  life.ReadStarted();
  EXPECT_FALSE(life.TakeFinish().has_value());
  life.ReadStarted();
  EXPECT_TRUE(life.TakeFinish().has_value());
}

TEST(OutgoingFramesTest, SnapshotsGoWhenNothingElseIsThere) {
  const auto frame = [](v1::ExchangeFrame::Kind kind, uint64_t id, size_t bytes) {
    Frame f;
    f.kind = kind;
    f.request_id = id;
    f.payload = Buffer::Allocate(bytes);
    f.payload_total = bytes;
    return f;
  };
  OutgoingFrames frames;
  EXPECT_TRUE(frames.empty());
  const size_t large = kFramePayloadBytesMax + 100;
  frames.Add(frame(v1::ExchangeFrame::IMAGE, 1, large));
  ASSERT_TRUE(frames.next_is_snapshot());
  EXPECT_EQ(frames.NextBytes(), kFramePayloadBytesMax + StreamFlow::kFrameOverheadBytes);
  OutgoingFrames::Chunk chunk = frames.TakeNext();
  EXPECT_EQ(chunk.bytes, kFramePayloadBytesMax) << "the overhead comes back with its last chunk";
  frames.Add(frame(v1::ExchangeFrame::VALUES, 2, 8), /*queued_ns=*/77);
  chunk = frames.TakeNext();
  EXPECT_EQ(chunk.frame.request_id, 2u) << "between two chunks of the snapshot";
  EXPECT_EQ(chunk.queued_ns, 77);
  EXPECT_FALSE(chunk.snapshot);
  EXPECT_EQ(chunk.bytes, 8 + StreamFlow::kFrameOverheadBytes);
  chunk = frames.TakeNext();
  EXPECT_TRUE(chunk.snapshot);
  EXPECT_EQ(chunk.queued_ns, 0);
  EXPECT_EQ(chunk.bytes, 100 + StreamFlow::kFrameOverheadBytes);
  EXPECT_TRUE(frames.empty());
}

TEST(SnapshotPacerTest, BesideTrafficSnapshotsEarnTheirShare) {
  SnapshotPace pace;
  pace.free_bytes = 1000;
  pace.share = 0.5;
  pace.bytes_per_second_min = 1000;
  SnapshotPacer pacer(pace);
  absl::Time now = absl::FromUnixSeconds(1000);
  EXPECT_EQ(pacer.WaitFor(1 << 20, now), absl::ZeroDuration()) << "there is no traffic";
  pacer.NoteTraffic(10, now);
  now += absl::Seconds(2);
  pacer.NoteTraffic(10, now);  // no demand for a while: the first bytes are free
  EXPECT_EQ(pacer.WaitFor(1000, now), absl::ZeroDuration());
  EXPECT_EQ(pacer.WaitFor(1000, now), SnapshotPacer::kPoll);
  pacer.NoteTraffic(2000, now);
  EXPECT_EQ(pacer.WaitFor(1000, now), absl::ZeroDuration()) << "earned";
  EXPECT_EQ(pacer.WaitFor(1000, now), SnapshotPacer::kPoll);
  now += absl::Seconds(1);
  pacer.NoteTraffic(0, now);
  EXPECT_EQ(pacer.WaitFor(1000, now), absl::ZeroDuration()) << "bytes_per_second_min, however little else there is";
}

}  // namespace
}  // namespace cairn
