// Goal: a copy that ends (it is moved away, or its store failed) answers everybody who waits at it, once. One whose job ends has its last version
// on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/storage/kv_store.h"
#include "server/partition_core.h"
#include "server/persistence.h"
#include "tests/unit/server/server_test_util.h"

namespace cairn {
namespace {

TEST(PartitionCoreEnd, AnswersThoseWhoWait) {
  const PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 2);
  PartitionCore core(config, PartitionState::Initial(config));
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  core.Step(AssignEvent{Generation(5), false, {}}, now);
  Frame push = PushFrame(config, 0, 1, 1, 1.0f);  // one of two replicas: it waits for the other
  push.generation = Generation(5);
  push.request_id = 11;
  EXPECT_TRUE(core.Step(FrameEvent{1, std::move(push)}, now).replies.empty());
  Frame snapshot;
  snapshot.kind = v1::ExchangeFrame::SNAPSHOT;
  snapshot.request_id = 12;
  snapshot.job = config.job;
  snapshot.partition = config.partition;
  snapshot.generation = Generation(5);
  snapshot.want_version = 3;
  EXPECT_TRUE(core.Step(FrameEvent{2, std::move(snapshot)}, now).replies.empty());

  std::set<std::pair<uint64_t, uint64_t>> answered;
  for (const PartitionReply& reply : core.End(absl::NotFoundError("moved away"))) {
    EXPECT_EQ(reply.frame.kind, v1::ExchangeFrame::ERROR);
    EXPECT_TRUE(absl::IsNotFound(reply.frame.status)) << reply.frame.status;
    answered.insert({reply.client, reply.frame.request_id});
  }
  EXPECT_THAT(answered, testing::ElementsAre(std::pair(1u, 11u), std::pair(2u, 12u)));
}

// Without a log an image is taken at multiples of snapshot_every alone, until the job trains no more.
TEST(PartitionCoreEnd, WhatAJobEndsWithIsKept) {
  PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 1);
  config.durability = v1::SNAPSHOT;
  const std::unique_ptr<KvStore> store = NewMemoryKvStore();
  Persistence persistence(*store);
  PartitionCore core(config, PartitionState::Initial(config));
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  core.Step(AssignEvent{Generation(5), false, {}, /*keep=*/true}, now);
  EXPECT_FALSE(core.image_due()) << "the initial values are a function of the seed";
  core.Step(AssignEvent{Generation(6), false, {}}, now);
  for (uint64_t step = 1; step <= 3; ++step) {
    Frame push = PushFrame(config, 0, 1, step, 1.0f);
    push.generation = Generation(6);
    core.Step(FrameEvent{1, std::move(push)}, now);
  }
  ASSERT_EQ(core.version(), 3u);
  EXPECT_TRUE(core.in_memory());
  EXPECT_FALSE(core.image_due());
  core.Step(AssignEvent{Generation(7), false, {}, /*keep=*/true}, now);
  ASSERT_TRUE(core.image_due());
  std::optional<Image> image = core.Step(TakeImageEvent{}, now).image;
  ASSERT_TRUE(image.has_value());
  core.Step(ImageWrittenEvent{3, /*ok=*/false}, now);
  EXPECT_TRUE(core.in_memory());
  EXPECT_FALSE(core.image_due()) << "it is tried again later";
  core.Step(TickEvent{}, now + absl::Seconds(1));
  ASSERT_TRUE(core.image_due());
  image = core.Step(TakeImageEvent{}, now).image;
  ASSERT_TRUE(image.has_value());
  ASSERT_TRUE(persistence.WriteImage(core.config(), *image).ok());
  core.Step(ImageWrittenEvent{3, /*ok=*/true}, now);
  EXPECT_FALSE(core.in_memory());
  EXPECT_FALSE(core.image_due());
  const auto recovered = persistence.Recover(config);
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_EQ(recovered->version, 3u);
}

}  // namespace
}  // namespace cairn
