// Goal: links to backups that are slow, stall or are gone: what they hold is bounded, and a lost backup is reported
// within a bounded time.
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/unit/server/replication_test_util.h"

namespace cairn {
namespace {

using testing::HasSubstr;

// A busy asynchronous job must not outrun its backup for ever: after a while, or before the memory is full, it waits.
class BusyLinkTest : public testing::Test {
 protected:
  BusyLinkTest() : link_(PrimaryOf(1, false).backups[0]) {
    link_.Up(1);
    link_.ImageSent(1, Generation(1), 10, 100);
    Frame ack;
    ack.kind = v1::ExchangeFrame::ACK;
    ack.request_id = 1;
    link_.Answer(ack, Generation(1), 2, kNow);
    EXPECT_EQ(link_.stage(), BackupLink::Stage::kFollowing);
  }
  BackupLink link_;
};

TEST_F(BusyLinkTest, ABackupThatIsFarBehindIsWaitedForAfterAWhile) {
  EXPECT_FALSE(link_.CatchUp(1000, kNow));
  EXPECT_FALSE(link_.required());
  EXPECT_FALSE(link_.CatchUp(5000, kNow + kLinkJoinAfter));
  EXPECT_TRUE(link_.required());
  EXPECT_TRUE(link_.CatchUp(10, kNow + kLinkJoinAfter));  // it has everything: reported once
  EXPECT_FALSE(link_.CatchUp(10, kNow + kLinkJoinAfter));
}

TEST_F(BusyLinkTest, AFullLinkIsWaitedForOrStartsAgain) {
  link_.Overflow(kNow);
  EXPECT_TRUE(link_.required());
  EXPECT_EQ(link_.stage(), BackupLink::Stage::kFollowing);

  link_.ImageSent(2, Generation(1), 20, 100);  // not confirmed
  link_.Overflow(kNow);
  EXPECT_EQ(link_.stage(), BackupLink::Stage::kNeedsImage);
  EXPECT_FALSE(link_.wants_image(kNow));
}

// ---- generations that a primary has missed ----

// The coordinator's information on a copy, and how the link changes with it.
TEST_F(BusyLinkTest, AMissedGenerationMayHaveBegunTheCopyAnew) {
  const auto after = [&](bool in_sync, bool newer, bool dropped) {
    BackupLink link = link_;
    link.UpdateSent(2, Generation(1), 11, 100);
    link.Assign(PrimaryOf(3, in_sync).backups[0], newer, dropped);
    return link;
  };
  EXPECT_EQ(after(false, true, false).stage(), BackupLink::Stage::kFollowing)
      << "the next generation: it is the same copy";
  EXPECT_EQ(after(true, true, true).stage(), BackupLink::Stage::kFollowing)
      << "in sync: the coordinator knows that it lived on";
  EXPECT_EQ(after(false, false, true).stage(), BackupLink::Stage::kFollowing) << "this generation once more";
  BackupLink anew = after(false, true, true);
  EXPECT_EQ(anew.stage(), BackupLink::Stage::kNeedsImage);
  EXPECT_FALSE(anew.required());
  EXPECT_FALSE(anew.has_confirmed(1)) << "that was the copy before";
  EXPECT_EQ(anew.unconfirmed_bytes(), 0u);
  EXPECT_FALSE(anew.wants_image(kNow)) << "an answer is on its way";
  Frame late;
  late.kind = v1::ExchangeFrame::ACK;
  late.request_id = 2;
  EXPECT_EQ(anew.Answer(late, Generation(3), 3, kNow), BackupLink::Verdict::kNothing);
  EXPECT_FALSE(anew.has_confirmed(1));
  EXPECT_TRUE(anew.wants_image(kNow));
}

TEST_F(BusyLinkTest, ACopyThatRefusedBeginsAnewAfterAMissedGenerationToo) {
  link_.UpdateSent(2, Generation(1), 11, 100);
  Frame refused;
  refused.kind = v1::ExchangeFrame::ERROR;
  refused.request_id = 2;
  refused.generation = Generation(3);
  refused.status = absl::FailedPreconditionError("generation 1 is over");
  EXPECT_EQ(link_.Answer(refused, Generation(1), 3, kNow), BackupLink::Verdict::kFenced);
  ASSERT_EQ(link_.stage(), BackupLink::Stage::kRefused);
  link_.Assign(PrimaryOf(3, false).backups[0], /*newer=*/true, /*dropped=*/true);
  EXPECT_EQ(link_.stage(), BackupLink::Stage::kNeedsImage);
  EXPECT_TRUE(link_.wants_image(kNow)) << "the pause was for the old generation";
}

// The backup may have confirmed the image, and then dropped the copy.
TEST_F(BusyLinkTest, AnImageOnItsWayIsNotConfirmedWhereTheCopyMayHaveBeenDropped) {
  for (const bool dropped : {false, true}) {
    SCOPED_TRACE(dropped);
    BackupLink link = link_;
    link.ImageSent(2, Generation(1), 20, 100);
    link.Assign(PrimaryOf(2, false).backups[0], /*newer=*/true, dropped);
    Frame late;
    late.kind = v1::ExchangeFrame::ACK;
    late.request_id = 2;
    EXPECT_EQ(link.Answer(late, Generation(2), 3, kNow),
              dropped ? BackupLink::Verdict::kNothing : BackupLink::Verdict::kConfirmed);
    EXPECT_EQ(link.has_confirmed(20), !dropped);
    EXPECT_EQ(link.wants_image(kNow), dropped);
  }
}

// The same in a partition: what the former copy confirmed does not count for the new one.
class MissedGenerationTest : public PairTest {};

INSTANTIATE_TEST_SUITE_P(Durabilities, MissedGenerationTest,
                         testing::Values(v1::REPLICATED, v1::LOGGED_AND_REPLICATED));

TEST_P(MissedGenerationTest, ACopyThatIsNotInSyncIsNotReportedBeforeItHasAnImage) {
  Sync();
  Answer(Pass(Push(1)));
  ASSERT_TRUE(primary_.core.links()[0].has_confirmed(1));
  EXPECT_TRUE(primary_.Run(PrimaryOf(7, false)).reports.empty());
  EXPECT_EQ(primary_.core.links()[0].stage(), BackupLink::Stage::kNeedsImage);
  EXPECT_TRUE(primary_.core.image_to_send(kNow));
  EXPECT_TRUE(primary_.Run(TickEvent{}).reports.empty());
  Copy anew(Config(GetParam(), true), AssignEvent{Generation(7), true, {}});
  for (const PeerSend& send : primary_.Run(SendImageEvent{}).sends) {
    for (Frame f : send.frames) {
      for (PartitionReply& r : anew.Run(FrameEvent{kStream, std::move(f)}).replies) {
        EXPECT_EQ(Answer({r.frame}).reports.size(), 1u);
      }
    }
  }
  EXPECT_EQ(anew.core.version(), 1u);
}

// When the job falls back, the next generation is enough: a backup that is not at its version starts again.
TEST_P(MissedGenerationTest, ACopyThatIsNotInSyncIsNotReportedAfterAFallBackEither) {
  Sync();
  Answer(Pass(Push(1)));
  AssignEvent back = PrimaryOf(6, false);
  back.goes_back = true;
  EXPECT_TRUE(primary_.Run(std::move(back)).reports.empty());
  EXPECT_EQ(primary_.core.links()[0].stage(), BackupLink::Stage::kNeedsImage);
  EXPECT_TRUE(primary_.Run(TickEvent{}).reports.empty());
}

// ---- a backup that stalls ----

// The backup reads nothing, so that nothing sent to it is released, and an asynchronous job goes on pushing. What the
// primary holds for it stays below the sum of its limits, whether it is waited for or not.
TEST(StandingBackupTest, HoldsABoundedNumberOfBytes) {
  for (const bool confirms_image : {false, true}) {
    SCOPED_TRACE(confirms_image);
    constexpr int64_t kNumbers = 1 << 18;  // 1 MiB: several of them reach the limits
    PartitionConfig config = TestConfig(UpdateMode::kAsynchronous, 8, kNumbers);
    config.durability = v1::REPLICATED;
    Copy primary(config, PrimaryOf(5, false));
    primary.Run(LinkUpEvent{"b:1", 1});
    const PartitionEffects image = primary.Run(SendImageEvent{});
    size_t held = 0;  // bytes handed to the stream and not answered yet
    if (confirms_image) {
      Frame ack;
      ack.kind = v1::ExchangeFrame::ACK;
      ack.request_id = image.sends[0].frames[0].request_id;
      primary.Run(PeerFrameEvent{"b:1", 1, ack});
    } else {
      for (const Frame& f : image.sends[0].frames) held += f.payload.size();
    }
    const size_t gradient = kNumbers * sizeof(float);
    const size_t bound = std::max(kLinkBytesMax(gradient) + held, kUpdatesInFlightMax * gradient) + gradient;
    std::vector<uint64_t> sequence(8, 0);
    int refused = 0;
    for (int i = 0; i < 200; ++i) {
      const uint32_t replica = i % 8;
      Frame f = PushFrame(config, replica, 1, sequence[replica] + 1, Filled(config, 0.01f));
      const absl::Time now = kNow + absl::Milliseconds(i);
      const PartitionEffects e = primary.Run(FrameEvent{1, std::move(f)}, now);
      const bool no = !e.replies.empty() && absl::IsResourceExhausted(e.replies[0].frame.status);
      refused += no;
      sequence[replica] += !no;
      for (const PeerSend& send : e.sends) {
        for (const Frame& frame : send.frames) held += frame.payload.size();
      }
      ASSERT_LE(held, bound) << "after " << i << " pushes";
      ASSERT_LE(primary.core.links()[0].unconfirmed_bytes(), bound);
    }
    if (confirms_image) {
      EXPECT_GT(refused, 100) << "one that is waited for holds the pushes back";
    } else {
      EXPECT_EQ(refused, 0) << "one that is not holds nobody back";
      EXPECT_FALSE(primary.core.image_to_send(kNow + absl::Hours(1)))
          << "and gets no second image while the first one lies there";
    }
  }
}

// ---- lost links ----

class LostLinkTest : public PairTest {};

INSTANTIATE_TEST_SUITE_P(Durabilities, LostLinkTest, testing::Values(v1::REPLICATED, v1::LOGGED_AND_REPLICATED));

// Ticks once a second, as a ps does. Holds what the last tick reported as lost.
struct Ticker {
  Copy& primary;
  absl::Time now = kNow;
  std::vector<v1::BackupReport> Pass(int seconds, absl::Duration heard_ago = absl::InfiniteDuration(),
                                     bool connected = false) {
    std::vector<v1::BackupReport> lost;
    for (int i = 0; i < seconds; ++i) {
      now += absl::Seconds(1);
      TickEvent tick;
      tick.peers["b:1"] = {now - heard_ago, connected};
      lost.clear();
      for (auto& r : primary.Run(std::move(tick), now).reports) {
        if (!r.lost().empty()) lost.push_back(std::move(r));
      }
    }
    return lost;
  }
};

TEST_P(LostLinkTest, ABackupThatDoesNotAnswerIsLostAfterALeaseAndWaitedForAllTheSame) {
  Sync();
  Ticker time{primary_};
  EXPECT_TRUE(time.Pass(60).empty()) << "there is nothing to answer";
  const PartitionEffects pushed =
      primary_.Run(FrameEvent{1, PushFrame(primary_.core.config(), 0, 1, 1, 1.0f)}, time.now);
  ASSERT_EQ(pushed.sends.size(), 1u);
  EXPECT_TRUE(time.Pass(2).empty());
  std::vector<v1::BackupReport> lost = time.Pass(2);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].node(), "ps-b");
  EXPECT_EQ(lost[0].generation(), 5u);
  EXPECT_EQ(lost[0].partition(), 7u);
  EXPECT_THAT(lost[0].lost(), HasSubstr("no answer for"));
  EXPECT_EQ(primary_.core.version(), 0u) << "it is waited for";
  EXPECT_EQ(time.Pass(1).size(), 1u) << "said again";
  // The answer comes late.
  Answer(Pass(pushed), 1, time.now);
  EXPECT_EQ(primary_.core.version(), 1u);
  EXPECT_TRUE(time.Pass(10).empty());
  // Or the coordinator takes the backup away: waiting requests are answered.
  Frame next = PushFrame(primary_.core.config(), 0, 1, 2, 1.0f);
  EXPECT_TRUE(primary_.Run(FrameEvent{1, std::move(next)}, time.now).replies.empty());
  EXPECT_EQ(time.Pass(4).size(), 1u);
  EXPECT_EQ(primary_.Run(AssignEvent{Generation(6), false, {}}, time.now).replies.size(), 1u);
  EXPECT_TRUE(time.Pass(10).empty());
}

TEST_P(LostLinkTest, ABackupWithoutAConnectionIsLostAlsoWhereNothingIsSent) {
  Sync();
  Ticker time{primary_};
  time.Pass(1);
  primary_.Run(LinkDownEvent{"b:1", 1}, time.now);
  EXPECT_TRUE(time.Pass(2).empty());
  std::vector<v1::BackupReport> lost = time.Pass(2);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_THAT(lost[0].lost(), HasSubstr("no connection for"));
  // Streams that open and carry nothing change nothing.
  for (uint64_t epoch = 2; epoch < 5; ++epoch) {
    primary_.Run(LinkUpEvent{"b:1", epoch}, time.now);
    ASSERT_TRUE(primary_.core.image_to_send(time.now));
    primary_.Run(SendImageEvent{}, time.now);
    EXPECT_EQ(time.Pass(1).size(), 1u);
    primary_.Run(LinkDownEvent{"b:1", epoch}, time.now);
  }
  // A newer assignment starts the time again.
  primary_.Run(PrimaryOf(6, true), time.now);
  EXPECT_TRUE(time.Pass(2).empty());
  EXPECT_EQ(time.Pass(2).size(), 1u);
}

TEST_P(LostLinkTest, ACopyThatWaitsForItsTurnIsNotLost) {
  primary_.Run(LinkUpEvent{"b:1", 1});
  Ticker time{primary_};
  EXPECT_TRUE(time.Pass(100).empty()) << "no image was sent yet";
  const PartitionEffects image = primary_.Run(SendImageEvent{}, time.now);
  EXPECT_TRUE(time.Pass(2).empty());
  EXPECT_EQ(time.Pass(2).size(), 1u);
  EXPECT_TRUE(time.Pass(20, absl::Seconds(1)).empty()) << "its ps takes other partitions meanwhile";
  std::vector<v1::BackupReport> lost = time.Pass(10, absl::Seconds(1));
  ASSERT_EQ(lost.size(), 1u) << "but not for ever";
  EXPECT_THAT(lost[0].lost(), HasSubstr("it answers, but"));
  Answer(Pass(image), 1, time.now);
  EXPECT_TRUE(time.Pass(1).empty());
}

// Refused once (it did not know its role yet), it waits behind the images of many others, and is sent again.
TEST_P(LostLinkTest, ACopyThatIsTriedAgainLaterIsNotLost) {
  primary_.Run(LinkUpEvent{"b:1", 1});
  Ticker time{primary_};
  const PartitionEffects image = primary_.Run(SendImageEvent{}, time.now);
  Frame no;
  no.kind = v1::ExchangeFrame::ERROR;
  no.request_id = image.sends[0].frames[0].request_id;
  no.status = absl::UnavailableError("waits for the coordinator");
  Answer({no}, 1, time.now);
  EXPECT_TRUE(time.Pass(300, absl::Seconds(1)).empty()) << "others are answered meanwhile";
  ASSERT_TRUE(primary_.core.image_to_send(time.now));
  primary_.Run(SendImageEvent{}, time.now);
  EXPECT_TRUE(time.Pass(25, absl::Seconds(1)).empty());
  EXPECT_EQ(time.Pass(10, absl::Seconds(1)).size(), 1u) << "this attempt hangs";
}

// Its ps answers nobody for a while, but its connection answers keepalives.
TEST_P(LostLinkTest, ABusyBackupIsNotTakenForOneThatCannotBeReached) {
  Sync();
  Ticker time{primary_};
  time.Pass(1);
  const PartitionEffects pushed =
      primary_.Run(FrameEvent{1, PushFrame(primary_.core.config(), 0, 1, 1, 1.0f)}, time.now);
  EXPECT_TRUE(time.Pass(9, absl::InfiniteDuration(), /*connected=*/true).empty()) << "it is given more time";
  std::vector<v1::BackupReport> lost = time.Pass(3, absl::InfiniteDuration(), /*connected=*/true);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_TRUE(lost[0].busy());
  EXPECT_THAT(lost[0].lost(), HasSubstr("its connection is alive"));
  lost = time.Pass(1);  // the connection breaks
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_FALSE(lost[0].busy());
  EXPECT_THAT(lost[0].lost(), testing::Not(HasSubstr("alive")));
  Answer(Pass(pushed), 1, time.now);
  EXPECT_TRUE(time.Pass(1).empty());
  // Other partitions are answered, this one is not: that is no fault of the network either.
  primary_.Run(FrameEvent{1, PushFrame(primary_.core.config(), 0, 1, 2, 1.0f)}, time.now);
  lost = time.Pass(35, absl::Seconds(1), /*connected=*/true);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_TRUE(lost[0].busy());
}

TEST_P(LostLinkTest, APauseOfThePrimaryIsNotTheBackupsFault) {
  Sync();
  Ticker time{primary_};
  time.Pass(1);
  primary_.Run(FrameEvent{1, PushFrame(primary_.core.config(), 0, 1, 1, 1.0f)}, time.now);
  time.now += absl::Seconds(20);
  EXPECT_TRUE(time.Pass(2).empty());
  EXPECT_EQ(time.Pass(3).size(), 1u);
}

TEST_P(LostLinkTest, AFencedPrimarySaysNothingOfItsBackups) {
  Sync();
  Ticker time{primary_};
  time.Pass(1);
  const PartitionEffects pushed =
      primary_.Run(FrameEvent{1, PushFrame(primary_.core.config(), 0, 1, 1, 1.0f)}, time.now);
  backup_.Run(AssignEvent{Generation(6), false, {}});
  Answer(Pass(pushed), 1, time.now);
  ASSERT_TRUE(primary_.core.fenced());
  EXPECT_TRUE(time.Pass(10).empty());
}

}  // namespace
}  // namespace cairn
