// Goal: how a new assignment changes what a ps holds: what leaves its memory, what goes back on disk, and that going
// back is done once.
#include "server/node/assignment_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kNumbers = 16;

v1::HostPartitions Assignment(uint64_t generation, std::vector<uint32_t> partitions) {
  v1::HostPartitions host;
  host.set_job_id(7);
  host.set_generation(generation);
  for (const uint32_t partition : partitions) {
    v1::PartitionRange& range = *host.add_partitions();
    range.set_partition(partition);
    range.set_begin(kNumbers * partition);
    range.set_end(kNumbers * (partition + 1));
  }
  return host;
}

PartitionInMemory At(uint32_t partition, uint64_t version, bool failed = false) {
  return {static_cast<int64_t>(kNumbers * partition), static_cast<int64_t>(kNumbers * (partition + 1)), version,
          failed};
}

std::vector<uint32_t> BackOnDisk(const AssignmentPlan& plan) {
  std::vector<uint32_t> partitions;
  for (const v1::PartitionRange& range : plan.back_on_disk) partitions.push_back(range.partition());
  return partitions;
}

TEST(AssignmentPlan, WhatIsNotNamedGoes) {
  v1::HostPartitions host = Assignment(3, {0, 1, 2});
  host.mutable_partitions(1)->set_end(kNumbers * 2 + 4);  // cut in another way
  const auto plan = PlanAssignment(host, Generation(2), {{0, At(0, 5)}, {1, At(1, 5)}, {3, At(3, 5)}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->gone, ElementsAre(1, 3));
  EXPECT_THAT(plan->ahead, IsEmpty());
  EXPECT_FALSE(plan->back_to.has_value());
  EXPECT_THAT(BackOnDisk(*plan), IsEmpty());
}

TEST(AssignmentPlan, WhatIsAtAnotherVersionGoesBack) {
  v1::HostPartitions host = Assignment(3, {0, 1, 2, 3});
  host.set_rollback_to(5);
  const auto plan =
      PlanAssignment(host, Generation(2), {{0, At(0, 5)}, {1, At(1, 6)}, {2, At(2, 5, true)}, {4, At(4, 6)}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->gone, ElementsAre(4));
  EXPECT_THAT(plan->ahead, ElementsAre(1, 2))
      << "what is at the version may be in memory alone; what failed is not there";
  EXPECT_EQ(plan->back_to, 5u);
  EXPECT_THAT(BackOnDisk(*plan), ElementsAre(1, 2, 3)) << "also what is on disk alone";
  EXPECT_FALSE(plan->stored.has_rollback_to()) << "a ps that is started again goes on from there";
}

TEST(AssignmentPlan, GoingBackIsDoneOnce) {
  v1::HostPartitions host = Assignment(3, {0});
  host.set_rollback_to(5);
  const auto again = PlanAssignment(host, Generation(3), {{0, At(0, 8)}});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->back_to.has_value()) << "the workers push in this generation";
  EXPECT_THAT(again->ahead, IsEmpty());
  EXPECT_THAT(BackOnDisk(*again), IsEmpty());
  const auto first = PlanAssignment(host, std::nullopt, {});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->back_to, 5u) << "a ps that has nothing in memory";
}

TEST(AssignmentPlan, AnOlderGenerationIsRefused) {
  const auto plan = PlanAssignment(Assignment(2, {0}), Generation(3), {{0, At(0, 5)}});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(plan.status().message(), "job 7: generation 2 is older than 3");
}

}  // namespace
}  // namespace cairn
