// Goal: ShardTable hands every shard to a worker, to another one if that one is lost, fails or is slow, and counts it
// once; PredictionBlocks delivers in order, one block at a time. A random run is compared with counting.
#include "coordinator/core/shard_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "coordinator/core/prediction_blocks.h"

namespace cairn {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kStart = absl::FromUnixSeconds(100);

class ShardTableTest : public testing::Test {
 protected:
  // The worker that is told to compute each shard; "": none.
  std::map<uint32_t, NodeName> HandOut(const std::vector<NodeName>& workers, absl::Time now = kStart) {
    std::map<uint32_t, NodeName> told;
    for (const ShardTable::Handout& handout : table_.HandOut(workers, now)) told[handout.number] = handout.worker;
    return told;
  }

  ShardTable table_;
};

TEST_F(ShardTableTest, ShardsGoToTheWorkersWithTheFewest) {
  EXPECT_FALSE(table_.cut());
  table_.Cut(4);
  EXPECT_TRUE(table_.cut());
  EXPECT_THAT(HandOut({"a", "b"}), IsEmpty()) << "none is open";
  table_.Open(3);
  const auto told = HandOut({"a", "b"});
  EXPECT_EQ(told.at(0), "a");
  EXPECT_EQ(told.at(1), "b");
  EXPECT_EQ(told.at(2), "a");
  EXPECT_THAT(HandOut({"a", "b"}), IsEmpty()) << "all are at it";
  table_.Open(100);
  EXPECT_THAT(HandOut({"a", "b"}), testing::ElementsAre(testing::Pair(3u, "b"))) << "there are four";
}

TEST_F(ShardTableTest, WithoutWorkersNothingIsHandedOut) {
  table_.Cut(2);
  table_.Open(2);
  EXPECT_THAT(HandOut({}), IsEmpty());
  EXPECT_THAT(HandOut({"a"}), SizeIs(2));
}

TEST_F(ShardTableTest, OnlyWhoWasAskedMayAnswer) {
  table_.Cut(2);
  table_.Open(1);
  HandOut({"a"});
  EXPECT_NE(table_.AskedOf(0, "a"), nullptr);
  EXPECT_EQ(table_.AskedOf(0, "b"), nullptr);
  EXPECT_EQ(table_.AskedOf(1, "a"), nullptr) << "not open";
  EXPECT_EQ(table_.AskedOf(77, "a"), nullptr) << "there is no such shard";
  table_.Finish(0);
  EXPECT_EQ(table_.AskedOf(0, "a"), nullptr) << "it counts once";
  EXPECT_EQ(table_.done(), 1u);
  EXPECT_FALSE(table_.AllDone());
}

TEST_F(ShardTableTest, WhatALostWorkerHadGoesToAnother) {
  table_.Cut(2);
  table_.Open(2);
  HandOut({"a", "b"});
  table_.AskedOf(0, "a")->block.emplace();
  EXPECT_TRUE(table_.Release("a"));
  EXPECT_FALSE(table_.Release("a"));
  EXPECT_EQ(table_.AskedOf(0, "a"), nullptr);
  EXPECT_EQ(HandOut({"b"}).at(0), "b");
  EXPECT_FALSE(table_.AskedOf(0, "b")->block) << "the outputs of the lost one do not count";
}

TEST_F(ShardTableTest, ASlowWorkerIsHelpedByAnIdleOneAndMayStillAnswer) {
  table_.Cut(2);
  table_.Open(2);
  HandOut({"a", "b"});
  EXPECT_THAT(HandOut({"a", "b"}, kStart + absl::Minutes(5)), IsEmpty()) << "all have something to do";
  table_.Finish(1);
  EXPECT_THAT(HandOut({"a", "b"}, kStart + absl::Seconds(59)), IsEmpty()) << "its time is not over";
  EXPECT_EQ(HandOut({"a", "b"}, kStart + absl::Minutes(1)).at(0), "b");
  EXPECT_NE(table_.AskedOf(0, "a"), nullptr);
  EXPECT_NE(table_.AskedOf(0, "b"), nullptr);
  // The second try has twice the time, and each worker is asked once.
  EXPECT_THAT(HandOut({"a", "b", "c"}, kStart + absl::Minutes(3) - absl::Seconds(1)), IsEmpty());
  EXPECT_EQ(HandOut({"a", "b", "c"}, kStart + absl::Minutes(3)).at(0), "c");
  EXPECT_THAT(HandOut({"a", "b", "c"}, kStart + absl::Hours(9)), IsEmpty());
}

TEST_F(ShardTableTest, AFailureOfASlowOneLeavesItToTheOther) {
  table_.Cut(1);
  table_.Open(1);
  HandOut({"a"});
  HandOut({"a", "b"}, kStart + absl::Minutes(1));
  EXPECT_FALSE(ShardTable::Fail(*table_.AskedOf(0, "a"), "a"));
  EXPECT_EQ(table_.AskedOf(0, "a"), nullptr);
  EXPECT_EQ(table_.At(0).failures, 1);
  EXPECT_TRUE(ShardTable::Fail(*table_.AskedOf(0, "b"), "b"));
}

TEST_F(ShardTableTest, OneThatFailedAtItIsAskedAgainOnlyWhereThereIsNoOther) {
  table_.Cut(1);
  table_.Open(1);
  HandOut({"a"});
  ShardTable::Shard& shard = *table_.AskedOf(0, "a");
  EXPECT_TRUE(ShardTable::Fail(shard, "a"));
  shard.failed_on.insert("a");
  EXPECT_EQ(HandOut({"a", "b"}).at(0), "b");
  EXPECT_TRUE(ShardTable::Fail(shard, "b"));
  shard.failed_on.insert("b");
  EXPECT_EQ(HandOut({"a"}).at(0), "a");
}

// Workers come, go, fail and are slow: every shard is counted once, and no shard stays with a worker that is gone.
TEST_F(ShardTableTest, EveryShardIsDoneOnceWhateverBecomesOfTheWorkers) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    ShardTable table;
    const auto shards = static_cast<uint32_t>(1 + random() % 12);
    table.Cut(shards);
    std::vector<NodeName> alive = {"a", "b", "c"};
    std::vector<int> counted(shards, 0);
    absl::Time now = kStart;
    for (int i = 0; !table.AllDone(); ++i) {
      ASSERT_LT(i, 10'000) << "it does not end";
      now += absl::Seconds(static_cast<int64_t>(random() % 40));
      table.Open(table.done() + 4);
      table.HandOut(alive, now);
      const NodeName worker(1, static_cast<char>('a' + random() % 3));
      const auto number = static_cast<uint32_t>(random() % shards);
      const auto there = std::find(alive.begin(), alive.end(), worker);
      switch (random() % 8) {
        case 0:
          if (there == alive.end()) {
            alive.push_back(worker);
          } else {
            alive.erase(there);
            table.Release(worker);
            for (uint32_t s = 0; s < shards; ++s) EXPECT_EQ(table.AskedOf(s, worker), nullptr);
          }
          break;
        case 1:
          if (ShardTable::Shard* shard = table.AskedOf(number, worker)) ShardTable::Fail(*shard, worker);
          break;
        default:
          if (table.AskedOf(number, worker) == nullptr) break;
          table.Finish(number);
          ++counted[number];
      }
    }
    EXPECT_THAT(counted, testing::Each(1));
  }
}

TEST(PredictionBlocksTest, GoOutInOrderOneAtATime) {
  PredictionBlocks blocks;
  EXPECT_FALSE(blocks.Next());
  const auto block = [](uint64_t first) {
    v1::PredictResponse response;
    response.set_first_example(first);
    return response;
  };
  blocks.Add(1, block(10));
  EXPECT_FALSE(blocks.Next()) << "the first is missing";
  blocks.Add(0, block(0));
  EXPECT_EQ(blocks.Next()->first_example(), 0u);
  EXPECT_TRUE(blocks.writing());
  EXPECT_FALSE(blocks.Next()) << "the reader has not taken it";
  blocks.Taken();
  EXPECT_EQ(blocks.Next()->first_example(), 10u);
  EXPECT_EQ(blocks.delivered(), 2u);
  blocks.Taken();
  EXPECT_FALSE(blocks.Next());
}

}  // namespace
}  // namespace cairn
