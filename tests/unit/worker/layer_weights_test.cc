// Goal: a layer computes with values that were granted to it, not with a late grant of the layer before; nobody waits
// when the work is stopped.
#include "worker/train/layer_weights.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"

namespace cairn {
namespace {

std::vector<v1::PartitionRange> TwoPartitions() {
  std::vector<v1::PartitionRange> ranges(2);
  ranges[0].set_end(64);
  ranges[1].set_partition(1);
  ranges[1].set_begin(64);
  ranges[1].set_end(128);
  return ranges;
}

TEST(LayerWeights, WishesForThePartitionsOfARangeAndLetsGoOfThem) {
  const std::vector<v1::PartitionRange> ranges = TwoPartitions();
  std::vector<replica::Event> events;
  LayerWeights weights(7, ranges, [&](replica::Event event) { events.push_back(std::move(event)); });
  weights.Prefetch(16, 80);
  ASSERT_EQ(events.size(), 1u);
  const auto& wanted = std::get<replica::WeightsWanted>(events[0]);
  EXPECT_EQ(wanted.work, 7u);
  EXPECT_EQ(wanted.partition_begin, 0u);
  EXPECT_EQ(wanted.partition_end, 2u);
  weights.Here(0);
  weights.Here(1);
  EXPECT_TRUE(weights.Acquire(16, 80).ok());
  EXPECT_EQ(events.size(), 1u) << "it was wished for already";
  weights.Release(16, 80);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(std::get<replica::WeightsDone>(events[1]).partition_end, 2u);
}

// Two ranges in one partition; the second one's grant comes late. Were the first one's enough, that grant would count
// for the third range, whose values may have gone.
TEST(LayerWeights, ARangeWaitsForItsOwnGrant) {
  const std::vector<v1::PartitionRange> ranges = TwoPartitions();
  LayerWeights weights(7, ranges, [](const replica::Event&) {});
  weights.Prefetch(0, 16);
  weights.Here(0);
  ASSERT_TRUE(weights.Acquire(0, 16).ok());
  weights.Prefetch(16, 32);
  weights.Release(0, 16);
  absl::Notification about_to_wait;
  std::atomic<bool> granted = false;
  std::thread core([&] {
    about_to_wait.WaitForNotification();
    granted = true;
    weights.Here(0);
  });
  about_to_wait.Notify();
  EXPECT_TRUE(weights.Acquire(16, 32).ok());
  EXPECT_TRUE(granted);
  core.join();
}

TEST(LayerWeights, StopEndsTheWaiting) {
  const std::vector<v1::PartitionRange> ranges = TwoPartitions();
  LayerWeights weights(7, ranges, [](const replica::Event&) {});
  std::thread core([&] { weights.Stop(); });
  EXPECT_TRUE(absl::IsCancelled(weights.Acquire(0, 16)));
  core.join();
}

}  // namespace
}  // namespace cairn
