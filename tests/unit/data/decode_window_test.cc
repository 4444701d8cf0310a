// Goal: which batches are decoded ahead of a replica, and in which order; memory of batches is used again, and never
// while somebody holds it.
#include "common/data/decode_window.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "common/data/block_pool.h"

namespace cairn {
namespace {

constexpr int64_t kMany = 1000;

TEST(DecodeWindowTest, NothingIsDecodedBeforeSomebodyAsks) {
  DecodeWindow window(/*ahead=*/4, kMany, /*end=*/100);
  EXPECT_FALSE(window.Next().has_value());
  const DecodeWindow::Asked asked = window.Ask(ReplicaId(0), 10);
  EXPECT_EQ(asked.slot, nullptr);
  EXPECT_TRUE(asked.hungry);
  for (int64_t piece = 11; piece <= 14; ++piece) EXPECT_EQ(window.Next()->piece, piece);
  EXPECT_FALSE(window.Next().has_value()) << "the window is full";
}

TEST(DecodeWindowTest, WithoutPrefetchNothingIsDecodedAhead) {
  DecodeWindow window(/*ahead=*/0, kMany, /*end=*/100);
  EXPECT_FALSE(window.Ask(ReplicaId(0), 0).hungry);
  EXPECT_FALSE(window.Next().has_value());
}

TEST(DecodeWindowTest, TheReplicaThatNeedsOneSoonestComesFirst) {
  DecodeWindow window(/*ahead=*/2, kMany, /*end=*/100);
  window.Ask(ReplicaId(3), 50);
  EXPECT_EQ(window.Next()->piece, 51);
  window.Ask(ReplicaId(7), 20);
  const std::optional<DecodeWindow::Task> task = window.Next();
  EXPECT_EQ(task->replica, ReplicaId(7));
  EXPECT_EQ(task->piece, 21);
  EXPECT_EQ(window.Next()->piece, 52) << "equally soon: the lower replica";
}

TEST(DecodeWindowTest, DecodingGoesOnWhenHalfOfTheWindowIsUsed) {
  DecodeWindow window(/*ahead=*/4, kMany, /*end=*/100);
  window.Ask(ReplicaId(0), 0);
  while (window.Next().has_value()) {
  }
  EXPECT_FALSE(window.Ask(ReplicaId(0), 1).hungry);
  EXPECT_FALSE(window.Next().has_value());
  EXPECT_TRUE(window.Ask(ReplicaId(0), 2).hungry);
  EXPECT_EQ(window.Next()->piece, 5);
}

TEST(DecodeWindowTest, ASlotIsHandedOutOnceAndMayOutliveItsWindow) {
  DecodeWindow window(/*ahead=*/2, kMany, /*end=*/100);
  window.Ask(ReplicaId(0), 0);
  const DecodeWindow::Task task = *window.Next();
  EXPECT_EQ(window.Find(ReplicaId(0), 1), task.slot);
  EXPECT_EQ(window.Find(ReplicaId(1), 1), nullptr);
  EXPECT_EQ(window.Ask(ReplicaId(0), 1).slot, task.slot);
  EXPECT_EQ(window.Find(ReplicaId(0), 1), nullptr);
  EXPECT_EQ(window.Ask(ReplicaId(0), 1).slot, nullptr) << "asked for again";
  task.slot->ready = true;  // who decodes fills it all the same
}

TEST(DecodeWindowTest, AJumpDropsWhatWasDecoded) {
  DecodeWindow window(/*ahead=*/2, /*slots_max=*/2, /*end=*/100);
  window.Ask(ReplicaId(0), 0);
  EXPECT_EQ(window.Next()->piece, 1);
  EXPECT_EQ(window.Next()->piece, 2);
  window.Ask(ReplicaId(0), 60);
  EXPECT_EQ(window.Find(ReplicaId(0), 1), nullptr);
  EXPECT_EQ(window.Next()->piece, 61) << "the slots of dropped pieces are free again";
}

TEST(DecodeWindowTest, AllReplicasTogetherHaveALimit) {
  DecodeWindow window(/*ahead=*/2, /*slots_max=*/3, /*end=*/100);
  window.Ask(ReplicaId(0), 0);
  window.Ask(ReplicaId(1), 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(window.Next().has_value());
  EXPECT_FALSE(window.Next().has_value());
  window.Forget(ReplicaId(0));
  window.Forget(ReplicaId(5));  // one that never asked
  EXPECT_EQ(window.Next()->replica, ReplicaId(1));
  EXPECT_FALSE(window.Next().has_value());
}

TEST(DecodeWindowTest, NothingIsDecodedBeyondTheEnd) {
  DecodeWindow window(/*ahead=*/4, kMany, /*end=*/12);
  EXPECT_TRUE(window.Ask(ReplicaId(0), 9).hungry);
  EXPECT_EQ(window.Next()->piece, 10);
  EXPECT_EQ(window.Next()->piece, 11);
  EXPECT_FALSE(window.Next().has_value());
  EXPECT_FALSE(window.Ask(ReplicaId(0), 11).hungry);
}

TEST(BlockPoolTest, ABlockIsUsedAgainWhenItsLastReferenceIsGone) {
  const auto pool = std::make_shared<BlockPool>(256, /*kept_max=*/1);
  Buffer first = pool->Take();
  const uint8_t* const place = first.data();
  const Buffer part = first.Slice(64, 64);
  first = Buffer();
  EXPECT_NE(pool->Take().data(), place) << "a part of it is still held";
}

TEST(BlockPoolTest, BlocksOutliveThePoolsOwner) {
  auto pool = std::make_shared<BlockPool>(256, /*kept_max=*/1);
  Buffer block = pool->Take();
  const uint8_t* const place = block.data();
  block = Buffer();
  block = pool->Take();
  EXPECT_EQ(block.data(), place);
  pool.reset();
  block.mutable_data()[255] = 1;
}

}  // namespace
}  // namespace cairn
