// Goal: a copy that ends (it is moved away, or its store failed) answers everybody who waits at it, once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "server/partition_core.h"
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

}  // namespace
}  // namespace cairn
