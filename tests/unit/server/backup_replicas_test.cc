// Goal: with backup_replicas a step closes without the slowest replicas; a late push is answered and changes nothing.
#include "tests/unit/server/replication_test_util.h"

namespace cairn {
namespace {

TEST(BackupReplicasTest, AStepClosesWithoutTheSlowest) {
  PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 3);
  config.backup_replicas = 1;
  Copy copy(config, {Generation(5), false, {}});
  EXPECT_TRUE(copy.Run(FrameEvent{1, PushFrame(config, 2, 1, 1, Filled(config, 8), 4)}).replies.empty());
  EXPECT_TRUE(copy.Run(FrameEvent{1, PushFrame(config, 2, 1, 1, Filled(config, 8), 4)}).replies.empty())
      << "a repetition is not a second replica";
  const PartitionEffects closed = copy.Run(FrameEvent{1, PushFrame(config, 0, 1, 1, Filled(config, 16), 4)});
  EXPECT_EQ(closed.replies.size(), 3u);
  EXPECT_EQ(copy.core.version(), 1u);
  EXPECT_EQ(Dense(copy.core.state()).values().floats()[0], -0.5f * 24 / 8) << "the mean of those that came";
  EXPECT_THAT(copy.core.state().sequences, testing::Each(1u));
  const PartitionEffects late = copy.Run(FrameEvent{1, PushFrame(config, 1, 1, 1, Filled(config, 99), 4)});
  ASSERT_EQ(late.replies.size(), 1u);
  EXPECT_EQ(late.replies[0].frame.kind, v1::ExchangeFrame::VALUES);
  EXPECT_EQ(late.replies[0].frame.sequence, 1u);
  EXPECT_TRUE(SameBits(late.replies[0].frame.payload, Dense(copy.core.state()).values()));
  EXPECT_EQ(copy.core.version(), 1u);
}

}  // namespace
}  // namespace cairn
