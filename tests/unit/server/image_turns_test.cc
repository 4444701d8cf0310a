// Goal: images are written one at a time and sent to backups by a few partitions at a time, those of ended jobs last.
#include "server/node/image_turns.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/base/limits.h"

namespace cairn {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000);

std::vector<PartitionSlotPtr> Slots(int count) {
  std::vector<PartitionSlotPtr> slots;
  for (int i = 0; i < count; ++i) slots.push_back(std::make_shared<PartitionSlot>());
  return slots;
}

TEST(StoreImageTurnsTest, OneAfterTheOther) {
  const auto slots = Slots(3);
  StoreImageTurns turns;
  EXPECT_TRUE(turns.Queue(slots[0])) << "nobody has the turn";
  EXPECT_EQ(turns.Next(), slots[0]);
  EXPECT_FALSE(turns.Queue(slots[1]));
  EXPECT_FALSE(turns.Queue(slots[2]));
  EXPECT_EQ(turns.Next(), slots[1]);
  EXPECT_EQ(turns.Next(), slots[2]);
  EXPECT_EQ(turns.Next(), std::nullopt);
  EXPECT_TRUE(turns.Queue(slots[0]));
}

TEST(BackupImageTurnsTest, AFewAtATimeInTheOrderInWhichTheyAsked) {
  const auto slots = Slots(kBackupImagesMax + 2);
  BackupImageTurns turns;
  for (const PartitionSlotPtr& slot : slots) {
    EXPECT_TRUE(turns.Tend(slot, /*wants=*/true, /*sending=*/false, /*ended=*/false, kNow).any);
    EXPECT_FALSE(turns.Tend(slot, true, false, false, kNow).any) << "it asks once";
  }
  const auto granted = turns.Grant(kNow);
  ASSERT_EQ(granted.size(), static_cast<size_t>(kBackupImagesMax));
  EXPECT_EQ(granted[0], slots[0]);
  EXPECT_TRUE(turns.Grant(kNow).empty());
  EXPECT_FALSE(turns.Tend(slots[0], false, /*sending=*/false, false, kNow).any) << "it has not begun";
  turns.Begin(slots[0]);
  EXPECT_FALSE(turns.Tend(slots[0], false, /*sending=*/true, false, kNow).any);
  EXPECT_TRUE(turns.Tend(slots[0], false, /*sending=*/false, false, kNow).any);
  const auto next = turns.Grant(kNow);
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0], slots[kBackupImagesMax]);
}

TEST(BackupImageTurnsTest, ThoseOfEndedJobsComeLastAndTakeAQuarterOfTheTime) {
  const auto slots = Slots(3);
  BackupImageTurns turns;
  turns.Tend(slots[0], true, false, /*ended=*/true, kNow);
  turns.Tend(slots[1], true, false, /*ended=*/true, kNow);
  turns.Tend(slots[2], true, false, /*ended=*/false, kNow);
  const auto granted = turns.Grant(kNow);
  ASSERT_EQ(granted.size(), 2u) << "one of an ended job at a time";
  EXPECT_EQ(granted[0], slots[2]);
  EXPECT_EQ(granted[1], slots[0]);
  turns.Begin(slots[0]);
  const absl::Time done = kNow + absl::Seconds(2);
  const BackupImageTurns::Change change = turns.Tend(slots[0], false, false, true, done);
  EXPECT_EQ(change.pause, absl::Seconds(6));
  EXPECT_TRUE(turns.Grant(done).empty());
  const auto later = turns.Grant(done + change.pause);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0], slots[1]);
}

}  // namespace
}  // namespace cairn
