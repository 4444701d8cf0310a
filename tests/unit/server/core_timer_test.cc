// Goal: RunEvent tells a trace what it does with a gradient: a sum while the step is open, then the log and the update.
#include "server/storage/core_timer.h"

#include <gtest/gtest.h>

#include "server/storage/persistence.h"
#include "tests/unit/server/server_test_util.h"

namespace cairn {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

class CoreTimerTest : public testing::Test {
 protected:
  TraceRecorder::Answer Read() {
    TraceRecorder::Request request;
    request.trace = 1;
    request.job = config_.job;
    request.seconds = 60;
    absl::StatusOr<TraceRecorder::Answer> answer = recorder_.Read(request);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? *std::move(answer) : TraceRecorder::Answer();
  }
  void Push(uint32_t replica, uint64_t sequence) {
    const auto nothing = [](PartitionEffects&) {};
    FrameEvent push{1, PushFrame(config_, replica, 1, sequence, 1.0f)};
    ASSERT_TRUE(RunEvent(core_, persistence_, std::move(push), kNow, nothing, &recorder_).ok());
  }

  const PartitionConfig config_ = [] {
    PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 2);
    config.job = JobId(7);
    config.partition = PartitionId(3);
    return config;
  }();
  std::unique_ptr<KvStore> store_ = NewMemoryKvStore();
  Persistence persistence_{*store_};
  PartitionCore core_{config_, PartitionState::Initial(config_)};
  TraceRecorder recorder_;
};

TEST_F(CoreTimerTest, TellsSumLogAndUpdate) {
  Push(0, 1);
  Push(1, 1);
  ASSERT_EQ(core_.version(), 1u);
  EXPECT_TRUE(Read().spans.empty()) << "it was not traced";
  Push(0, 2);
  Push(1, 2);
  ASSERT_EQ(core_.version(), 2u);
  const TraceRecorder::Answer answer = Read();
  std::vector<TraceKind> kinds;
  int64_t end = 0;
  for (const TraceSpan& span : answer.spans) {
    kinds.push_back(span.kind);
    EXPECT_EQ(span.step, 1);
    EXPECT_EQ(span.partition, 3);
    EXPECT_EQ(span.track, TraceTrack::kPartition);
    EXPECT_EQ(span.bytes, config_.size() * sizeof(float));
    EXPECT_GE(span.begin_ns, end) << "one after the other";
    end = span.end_ns;
  }
  EXPECT_EQ(kinds, (std::vector<TraceKind>{TraceKind::kSum, TraceKind::kSum, TraceKind::kLog, TraceKind::kApply}));
  EXPECT_EQ(answer.spans.at(0).replica, 0);
  EXPECT_EQ(answer.spans.at(1).replica, 1);
  EXPECT_EQ(answer.spans.at(3).replica, TraceSpan::kNone);
}

TEST_F(CoreTimerTest, OtherEventsAreNoWork) {
  Read();
  const auto nothing = [](PartitionEffects&) {};
  ASSERT_TRUE(RunEvent(core_, persistence_, TickEvent{}, kNow, nothing, &recorder_).ok());
  ASSERT_TRUE(RunEvent(core_, persistence_, ClientGoneEvent{1}, kNow, nothing, &recorder_).ok());
  EXPECT_TRUE(Read().spans.empty());
}

}  // namespace
}  // namespace cairn
