// Goal: the parts of BackupLink. UnconfirmedUpdates finds what the present attempt has sent and nothing else; LinkWatch
// reports a link as lost after the bound of its case, and never while nothing is waited for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/limits.h"
#include "server/core/link_watch.h"
#include "server/core/unconfirmed_updates.h"

namespace cairn {
namespace {

using testing::HasSubstr;

// ---- UnconfirmedUpdates ----

UnconfirmedUpdates Three() {
  UnconfirmedUpdates updates;
  updates.Begin(5);
  for (uint64_t i = 5; i < 8; ++i) updates.Add({i, Generation(1), 10 + i, 100});
  return updates;
}

TEST(UnconfirmedUpdatesTest, AConfirmationIsOfAllBeforeItToo) {
  UnconfirmedUpdates updates = Three();
  EXPECT_EQ(updates.bytes(), 300u);
  EXPECT_TRUE(updates.IsFirst(5));
  ASSERT_TRUE(updates.Find(6));
  EXPECT_EQ(updates.Find(6)->version, 16u);
  updates.Confirm(6);
  EXPECT_EQ(updates.bytes(), 100u);
  EXPECT_FALSE(updates.Find(5));
  EXPECT_FALSE(updates.Find(6)) << "confirmed once";
  EXPECT_TRUE(updates.IsFirst(7));
  updates.Confirm(7);
  EXPECT_TRUE(updates.empty());
  EXPECT_FALSE(updates.IsFirst(7));
}

TEST(UnconfirmedUpdatesTest, NumbersThatWereNeverSentConfirmNothing) {
  UnconfirmedUpdates updates = Three();
  for (uint64_t request : {0u, 4u, 8u, 1000u}) {
    EXPECT_FALSE(updates.Find(request)) << request;
    updates.Confirm(request);
    EXPECT_EQ(updates.bytes(), 300u) << request;
  }
}

TEST(UnconfirmedUpdatesTest, AnotherAttemptFindsNothingOfTheLast) {
  UnconfirmedUpdates updates = Three();
  updates.Begin(8);
  EXPECT_TRUE(updates.empty());
  EXPECT_EQ(updates.bytes(), 0u);
  updates.Add({8, Generation(1), 15, 1});
  EXPECT_FALSE(updates.Find(7));
  EXPECT_TRUE(updates.Find(8));
}

TEST(UnconfirmedUpdatesTest, AfterTheEndNotEvenTheNumbersThatWereUnderWay) {
  UnconfirmedUpdates updates = Three();
  updates.End();
  updates.Add({7, Generation(2), 17, 1});  // a number that is older than the attempt
  EXPECT_FALSE(updates.Find(7));
  updates.Add({8, Generation(2), 18, 1});
  EXPECT_TRUE(updates.Find(8));
  UnconfirmedUpdates none;
  none.End();
  none.Add({0, Generation(1), 1, 1});
  EXPECT_TRUE(none.Find(0));
}

// ---- LinkWatch ----

const absl::Time kStart = absl::FromUnixSeconds(1000);

class LinkWatchTest : public testing::Test {
 protected:
  // Whether the link is lost so long after kStart.
  bool LostAfter(absl::Duration time) const { return watch_.Lost(kStart + time, link_, peer_).has_value(); }
  // Sends something at kStart.
  void Send() {
    watch_.Tried();
    watch_.Watch(kStart, /*idle=*/false);
  }

  LinkWatch watch_;
  LinkWatch::Link link_{/*has_stream=*/true, /*wants_image=*/false, /*unconfirmed_bytes=*/0};
  PeerState peer_;
};

TEST_F(LinkWatchTest, IsNotLostBeforeItsFirstWatch) {
  EXPECT_FALSE(LostAfter(absl::Hours(1)));
  watch_.Tried();
  EXPECT_FALSE(LostAfter(absl::Hours(1)));
}

TEST_F(LinkWatchTest, ASilentPeerIsLostAfterTheFirstBound) {
  Send();
  EXPECT_FALSE(LostAfter(kLinkSilentMax - absl::Milliseconds(1)));
  EXPECT_TRUE(LostAfter(kLinkSilentMax));
  const auto loss = watch_.Lost(kStart + kLinkSilentMax, link_, peer_);
  EXPECT_THAT(loss->why, HasSubstr("no answer for 3 s"));
  EXPECT_FALSE(loss->busy);
}

TEST_F(LinkWatchTest, WithoutAStreamNeitherAConnectionHelps) {
  peer_.connected = true;
  link_.has_stream = false;
  Send();
  const auto loss = watch_.Lost(kStart + kLinkSilentMax, link_, peer_);
  ASSERT_TRUE(loss);
  EXPECT_THAT(loss->why, HasSubstr("no connection for 3 s"));
}

TEST_F(LinkWatchTest, ASilentPeerWhoseConnectionLivesIsBusyAndGivenMoreTime) {
  peer_.connected = true;
  Send();
  EXPECT_FALSE(LostAfter(kLinkBusyMax - absl::Milliseconds(1)));
  const auto loss = watch_.Lost(kStart + kLinkBusyMax, link_, peer_);
  ASSERT_TRUE(loss);
  EXPECT_TRUE(loss->busy);
}

TEST_F(LinkWatchTest, OneThatAnswersOthersIsGivenTheMost) {
  peer_.connected = true;
  Send();
  peer_.heard = kStart + kLinkStalledMax - absl::Seconds(1);
  EXPECT_FALSE(LostAfter(kLinkStalledMax - absl::Milliseconds(1)));
  const auto loss = watch_.Lost(kStart + kLinkStalledMax, link_, peer_);
  ASSERT_TRUE(loss);
  EXPECT_TRUE(loss->busy);
  EXPECT_THAT(loss->why, HasSubstr("it answers, but has not kept anything of this partition for 30 s"));
}

TEST_F(LinkWatchTest, BytesOnTheirWayGiveItTime) {
  link_.unconfirmed_bytes = 2 * kLinkBytesPerSecond;
  Send();
  EXPECT_FALSE(LostAfter(kLinkSilentMax + absl::Milliseconds(1999)));
  EXPECT_TRUE(LostAfter(kLinkSilentMax + absl::Seconds(2)));
}

TEST_F(LinkWatchTest, WhatWaitsForItsTurnIsNotLost) {
  link_.wants_image = true;
  watch_.Watch(kStart, /*idle=*/false);
  EXPECT_FALSE(LostAfter(absl::Hours(1)));
  watch_.Tried();  // it had its turn, or its stream broke
  EXPECT_TRUE(LostAfter(kLinkSilentMax));
}

TEST_F(LinkWatchTest, TheClocksStandWhileThereIsNothingToConfirm) {
  Send();
  watch_.Watch(kStart + kLinkStalledMax, /*idle=*/true);
  EXPECT_FALSE(LostAfter(kLinkStalledMax + kLinkSilentMax / 2));
}

TEST_F(LinkWatchTest, AConfirmationAndAPauseOfThisProcessMoveTheClocks) {
  Send();
  watch_.Confirmed(kStart + absl::Seconds(2));
  watch_.Tried();
  EXPECT_FALSE(LostAfter(absl::Seconds(4)));
  EXPECT_TRUE(LostAfter(absl::Seconds(2) + kLinkSilentMax));
  watch_.Paused(absl::Seconds(5));
  EXPECT_FALSE(LostAfter(absl::Seconds(2) + kLinkSilentMax));
  EXPECT_TRUE(LostAfter(absl::Seconds(7) + kLinkSilentMax));
}

TEST_F(LinkWatchTest, AnAnswerThatConfirmsNothingIsASignOfLifeOnly) {
  Send();
  watch_.Answered(kStart + absl::Seconds(2));
  EXPECT_FALSE(LostAfter(kLinkSilentMax));
  EXPECT_TRUE(LostAfter(absl::Seconds(2) + kLinkSilentMax));
}

TEST_F(LinkWatchTest, AnotherGenerationBeginsWithoutThePast) {
  Send();
  watch_.Restart();
  EXPECT_FALSE(LostAfter(absl::Hours(1)));
  watch_.Watch(kStart + absl::Hours(1), /*idle=*/false);
  watch_.Tried();
  EXPECT_FALSE(LostAfter(absl::Hours(1) + kLinkSilentMax / 2));
  EXPECT_TRUE(LostAfter(absl::Hours(1) + kLinkSilentMax));
}

TEST_F(LinkWatchTest, ANewImageGivesTheAttemptItsTimeAgainButNotTheSilence) {
  peer_.connected = true;
  Send();
  const absl::Time later = kStart + kLinkStalledMax;
  peer_.heard = later;
  watch_.ImageSent();
  watch_.Watch(later, /*idle=*/false);
  EXPECT_FALSE(watch_.Lost(later + absl::Seconds(1), link_, peer_)) << "the attempt is new";
  peer_.connected = false;
  peer_.heard = kStart;
  EXPECT_TRUE(watch_.Lost(later, link_, peer_)) << "nothing was heard since";
}

}  // namespace
}  // namespace cairn
