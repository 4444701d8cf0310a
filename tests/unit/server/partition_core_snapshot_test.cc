// Goal: checkpoints at one partition. What is sent is one whole version, and does not change while training goes on; a
// request is answered or refused within bounds; what is restored replaces everything, at the backups too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/partition_core.h"
#include "tests/unit/server/server_test_util.h"

namespace cairn {
namespace {

using testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);
constexpr uint64_t kChief = 9;

class SnapshotTest : public testing::Test {
 protected:
  SnapshotTest()
      : config_(Config()),
        store_(NewMemoryKvStore()),
        persistence_(*store_),
        core_(config_, PartitionState::Initial(config_)) {
    Run(AssignEvent{Generation(5), false, {}});
  }
  static PartitionConfig Config() {
    PartitionConfig c = TestConfig(UpdateMode::kSynchronous, 2);
    v1::Optimizer adam;
    adam.mutable_adam();
    Dense(c).optimizer = OptimizerRule::From(adam);
    return c;
  }
  PartitionEffects Run(PartitionEvent event, absl::Time now = kNow) {
    auto effects = RunEvent(core_, persistence_, std::move(event), now);
    EXPECT_TRUE(effects.ok()) << effects.status();
    return *std::move(effects);
  }
  PartitionEffects Step(uint64_t sequence) {
    Frame f = PushFrame(config_, 0, 2, sequence, static_cast<float>(sequence));
    f.generation = core_.generation();
    return Run(FrameEvent{1, std::move(f)});
  }
  PartitionEffects Ask(uint64_t request_id, std::optional<uint64_t> version = std::nullopt, uint64_t generation = 5) {
    Frame f;
    f.kind = v1::ExchangeFrame::SNAPSHOT;
    f.request_id = request_id;
    f.job = config_.job;
    f.partition = config_.partition;
    f.generation = Generation(generation);
    f.want_version = version;
    return Run(FrameEvent{kChief, std::move(f)});
  }
  // Frames as a chief sends them: copies, each requested once.
  std::vector<Frame> Restored(float value, uint64_t version, uint64_t generation) {
    PartitionState state = PartitionState::Initial(config_);
    state.version = version;
    state.contents = std::make_unique<DenseContents>(std::make_shared<const DenseConfig>(Dense(config_)),
                                                     Filled(config_, value), Dense(state).slots());
    state.sequences.assign(2, version);
    std::vector<Frame> frames = ImageFrames(config_, MakeImage(config_, state, {}), 77);
    for (Frame& f : frames) f.generation = Generation(generation);
    return frames;
  }

  const PartitionConfig config_;
  std::unique_ptr<KvStore> store_;
  Persistence persistence_;
  PartitionCore core_;
};

TEST_F(SnapshotTest, IsWholeAndStaysAsItWas) {
  Step(1);
  const PartitionEffects asked = Ask(3);
  ASSERT_EQ(asked.replies.size(), 3u) << "values and two slots";
  std::vector<Buffer> before;
  for (uint32_t i = 0; i < 3; ++i) {
    const Frame& f = asked.replies[i].frame;
    EXPECT_EQ(asked.replies[i].client, kChief);
    EXPECT_EQ(f.kind, v1::ExchangeFrame::IMAGE);
    EXPECT_EQ(f.request_id, 3u);
    EXPECT_EQ(f.version, 1u);
    EXPECT_EQ(f.tensor, i);
    EXPECT_EQ(f.tensors, 3u);
    EXPECT_TRUE(SameBits(f.payload, i == 0 ? Dense(core_.state()).values() : Dense(core_.state()).slots()[i - 1]));
    before.push_back(Buffer::CopyOf(f.payload.data(), f.payload.size()));
  }
  EXPECT_EQ(asked.replies[0].frame.payload.data(), Dense(core_.state()).values().data()) << "nothing is copied";
  Step(2);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(SameBits(asked.replies[i].frame.payload, before[i])) << "training goes on beside it";
    EXPECT_FALSE(SameBits(before[i], i == 0 ? Dense(core_.state()).values() : Dense(core_.state()).slots()[i - 1]));
  }
}

TEST_F(SnapshotTest, WaitsForItsVersionAndNoLonger) {
  Step(1);
  EXPECT_TRUE(Ask(3, 2).replies.empty());
  const PartitionEffects reached = Step(2);
  int images = 0;
  for (const PartitionReply& r : reached.replies) {
    if (r.client != kChief) continue;
    ++images;
    EXPECT_EQ(r.frame.version, 2u);
  }
  EXPECT_EQ(images, 3);
  const PartitionEffects gone = Ask(4, 1);
  ASSERT_EQ(gone.replies.size(), 1u);
  EXPECT_THAT(gone.replies[0].frame.status.message(),
              HasSubstr("want_version 1 is gone: job 3 partition 7 is at version 2"));
  EXPECT_TRUE(Ask(5, 9).replies.empty());
  EXPECT_TRUE(Run(TickEvent{}, kNow + kPullWaitMax - absl::Seconds(1)).replies.empty());
  const PartitionEffects late = Run(TickEvent{}, kNow + kPullWaitMax);
  ASSERT_EQ(late.replies.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(late.replies[0].frame.status));
}

TEST_F(SnapshotTest, FewMayWait) {
  for (int64_t i = 0; i < kSnapshotsWaitingMax; ++i) EXPECT_TRUE(Ask(10 + i, 5).replies.empty());
  const PartitionEffects refused = Ask(20, 5);
  ASSERT_EQ(refused.replies.size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.replies[0].frame.status));
  Run(ClientGoneEvent{kChief});
  EXPECT_EQ(core_.waiting(), 0u);
  EXPECT_TRUE(Ask(21, 5).replies.empty()) << "there is room again";
}

TEST_F(SnapshotTest, OnlyAServingPrimaryOfTheGenerationAnswers) {
  const PartitionEffects stale = Ask(3, std::nullopt, 4);
  ASSERT_EQ(stale.replies.size(), 1u);
  EXPECT_EQ(stale.replies[0].frame.kind, v1::ExchangeFrame::ERROR);
  EXPECT_EQ(Ask(4, std::nullopt, 0).replies.size(), 3u) << "0: whatever generation it is";
  EXPECT_TRUE(Ask(5, 7).replies.empty());
  const PartitionEffects demoted = Run(AssignEvent{Generation(6), true, {}});
  ASSERT_EQ(demoted.replies.size(), 1u) << "who waits is told";
  EXPECT_TRUE(absl::IsNotFound(demoted.replies[0].frame.status));
  const PartitionEffects backup = Ask(6, std::nullopt, 6);
  ASSERT_EQ(backup.replies.size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(backup.replies[0].frame.status));
}

TEST_F(SnapshotTest, ARestoreTakesThePlaceOfEverything) {
  Step(1);
  Frame half = PushFrame(config_, 0, 1, 2, 1.0f);
  EXPECT_TRUE(Run(FrameEvent{1, std::move(half)}).replies.empty()) << "one of two replicas";
  const std::vector<Frame> frames = Restored(2.5f, 40, 5);
  EXPECT_TRUE(Run(FrameEvent{kChief, frames[0]}).replies.empty());
  EXPECT_TRUE(Run(FrameEvent{kChief, frames[1]}).replies.empty());
  EXPECT_EQ(core_.version(), 1u) << "not before it is whole";
  // Step by step: the answer waits for the store.
  PartitionEffects last = core_.Step(FrameEvent{kChief, frames[2]}, kNow);
  ASSERT_TRUE(last.reset.has_value());
  ASSERT_EQ(last.replies.size(), 1u) << "who waited begins anew";
  EXPECT_EQ(last.replies[0].client, 1u);
  EXPECT_TRUE(absl::IsUnavailable(last.replies[0].frame.status));
  ASSERT_TRUE(persistence_.ResetTo(config_, *last.reset).ok());
  const PartitionEffects stored = core_.Step(ResetEvent{40}, kNow);
  ASSERT_EQ(stored.replies.size(), 1u);
  EXPECT_EQ(stored.replies[0].client, kChief);
  EXPECT_EQ(stored.replies[0].frame.kind, v1::ExchangeFrame::ACK);
  EXPECT_EQ(stored.replies[0].frame.version, 40u);
  EXPECT_EQ(core_.version(), 40u);
  EXPECT_TRUE(SameBits(Dense(core_.state()).values(), Filled(config_, 2.5f)));
  auto recovered = persistence_.Recover(config_);
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_EQ(recovered->version, 40u);
  EXPECT_EQ(Step(41).replies.size(), 1u) << "training goes on from there";
  EXPECT_EQ(core_.version(), 41u);
}

TEST_F(SnapshotTest, ARestoreIsRefusedWhereItDoesNotFit) {
  std::vector<Frame> frames = Restored(1, 40, 4);
  PartitionEffects e = Run(FrameEvent{kChief, frames[0]});
  ASSERT_EQ(e.replies.size(), 1u) << "an earlier attempt's generation";
  frames = Restored(1, 40, 5);
  frames[0].payload = Buffer::Allocate(8);
  frames[0].payload_total = 8;
  e = Run(FrameEvent{kChief, frames[0]});
  ASSERT_EQ(e.replies.size(), 1u);
  EXPECT_TRUE(absl::IsInvalidArgument(e.replies[0].frame.status));
  frames = Restored(1, 40, 5);
  e = Run(FrameEvent{kChief, frames[1]});
  ASSERT_EQ(e.replies.size(), 1u) << "not the first tensor";
  // A chief that disconnects in the middle leaves nothing behind.
  Run(FrameEvent{kChief, frames[0]});
  Run(ClientGoneEvent{kChief});
  e = Run(FrameEvent{kChief, frames[1]});
  ASSERT_EQ(e.replies.size(), 1u);
  EXPECT_EQ(core_.version(), 0u);
}

TEST_F(SnapshotTest, ARestoreStartsTheBackupsAnew) {
  AssignEvent assign{Generation(6), false, {}};
  v1::BackupRoute& route = assign.backups.emplace_back();
  route.set_node("ps-b");
  route.set_address("b:1");
  Run(std::move(assign));
  Run(LinkUpEvent{"b:1", 1});
  const PartitionEffects image = Run(SendImageEvent{});
  ASSERT_EQ(image.sends.size(), 1u);
  Frame ack;
  ack.kind = v1::ExchangeFrame::ACK;
  ack.request_id = image.sends[0].frames[0].request_id;
  ack.generation = Generation(6);
  Run(PeerFrameEvent{"b:1", 1, ack});
  ASSERT_EQ(core_.links()[0].stage(), BackupLink::Stage::kFollowing);
  for (Frame& f : Restored(2.5f, 40, 6)) Run(FrameEvent{kChief, std::move(f)});
  EXPECT_EQ(core_.links()[0].stage(), BackupLink::Stage::kNeedsImage);
  ASSERT_TRUE(core_.image_to_send(kNow));
  const PartitionEffects again = Run(SendImageEvent{});
  ASSERT_EQ(again.sends.size(), 1u);
  EXPECT_EQ(again.sends[0].frames[0].version, 40u);
}

}  // namespace
}  // namespace cairn
