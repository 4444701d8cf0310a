// Goal: the seam between PartitionCore and the contents of a partition is sufficient. A second kind (row_kind.h), whose
// gradients, values and images have nothing in common with a range of numbers, has order, the barrier, exactly-once,
// replication, promotion, log, images, roll back, checkpoints and rest without any code for it in the core.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/replication_test_util.h"
#include "tests/unit/server/row_kind.h"

namespace cairn {
namespace {

using testing::HasSubstr;

PartitionConfig RowConfig(uint32_t replicas, bool backup = false) {
  PartitionConfig c = TestConfig(UpdateMode::kSynchronous, replicas);
  c.kind = std::make_shared<RowKind>();
  c.durability = v1::LOGGED_AND_REPLICATED;
  c.backup = backup;
  return c;
}

Frame RowPush(const PartitionConfig& c, uint32_t replica, uint64_t sequence, const Rows& gradient) {
  return PushFrame(c, replica, 1, sequence, EncodeRows(gradient), /*examples=*/4, /*learning_rate=*/0.5f);
}

AssignEvent Alone(uint64_t generation) { return AssignEvent{Generation(generation), false, {}}; }

class RowKindTest : public testing::Test {
 protected:
  static constexpr uint64_t kStream = 7;

  // Gives the backup what the primary sent, and the primary the backup's answers.
  PartitionEffects Pass(const PartitionEffects& e) {
    PartitionEffects all;
    for (const PeerSend& send : e.sends) {
      for (const Frame& f : send.frames) {
        for (const PartitionReply& r : backup_.Run(FrameEvent{kStream, f}).replies) {
          EXPECT_EQ(r.frame.kind, v1::ExchangeFrame::ACK) << r.frame.status;
          for (PartitionReply& done : primary_.Run(PeerFrameEvent{"b:1", 1, r.frame}).replies) {
            all.replies.push_back(std::move(done));
          }
        }
      }
    }
    return all;
  }
  void Sync() {
    primary_.Run(LinkUpEvent{"b:1", 1});
    ASSERT_TRUE(primary_.core.image_to_send(kNow));
    Pass(primary_.Run(SendImageEvent{}));
    ASSERT_EQ(primary_.core.links()[0].stage(), BackupLink::Stage::kFollowing);
  }
  // A step of both replicas at the primary. Returns the answers.
  std::vector<PartitionReply> Step(uint64_t sequence, const Rows& first, const Rows& second) {
    const PartitionConfig& c = primary_.core.config();
    PartitionEffects e = primary_.Run(FrameEvent{1, RowPush(c, 0, sequence, first)});
    EXPECT_TRUE(e.replies.empty() && e.sends.empty()) << "the barrier";
    e = primary_.Run(FrameEvent{2, RowPush(c, 1, sequence, second)});
    EXPECT_TRUE(e.replies.empty()) << "the backup has not got it";
    return Pass(e).replies;
  }
  static void ExpectSame(const PartitionState& a, const PartitionState& b) {
    EXPECT_EQ(a.version, b.version);
    EXPECT_EQ(a.sequences, b.sequences);
    EXPECT_EQ(RowContents::Of(a).rows(), RowContents::Of(b).rows());
    EXPECT_EQ(RowContents::Of(a).touched(), RowContents::Of(b).touched());
  }
  static PartitionState Recovered(Copy& copy) {
    auto state = copy.persistence.Recover(copy.core.config());
    EXPECT_TRUE(state.ok()) << state.status();
    return *std::move(state);
  }
  static void WriteImage(Copy& copy) {
    const PartitionEffects e = copy.Run(TakeImageEvent{});
    ASSERT_TRUE(e.image.has_value());
    ASSERT_TRUE(copy.persistence.WriteImage(copy.core.config(), *e.image).ok());
    copy.Run(ImageWrittenEvent{e.image->header.version(), true});
  }

  Copy primary_{RowConfig(2), PrimaryOf(5, true)};
  Copy backup_{RowConfig(2, /*backup=*/true), AssignEvent{Generation(5), true, {}}};
};

TEST_F(RowKindTest, AStepIsTheSumOfItsPushesByIdAndCountsOnce) {
  Sync();
  const PartitionConfig& c = primary_.core.config();
  std::vector<PartitionReply> replies = Step(1, {{8, 16}, {40, 8}}, {{8, 32}, {9'000'000'000'001, 8}});
  ASSERT_EQ(replies.size(), 2u);
  const Rows expected = {{8, 1 - 0.5 * 48 / 8}, {40, 5 - 0.5}, {9'000'000'000'001, 0.125 - 0.5}};
  for (const PartitionReply& r : replies) {
    EXPECT_EQ(r.frame.version, 1u);
    EXPECT_EQ(DecodeRows(r.frame.payload), expected);
  }
  // A repetition is answered, and changes nothing.
  const PartitionEffects again = primary_.Run(FrameEvent{1, RowPush(c, 0, 1, {{8, 16}, {40, 8}})});
  ASSERT_EQ(again.replies.size(), 1u);
  EXPECT_TRUE(again.persists.empty() && again.sends.empty());
  EXPECT_EQ(DecodeRows(again.replies[0].frame.payload), expected);
  EXPECT_EQ(RowContents::Of(primary_.core.state()).touched(), (Rows{{8, 1}, {40, 1}, {9'000'000'000'001, 1}}));
}

TEST_F(RowKindTest, RequestsAreCheckedByTheKind) {
  Sync();
  const PartitionConfig& c = primary_.core.config();
  const auto refused = [&](Frame frame) {
    const PartitionEffects e = primary_.Run(FrameEvent{1, std::move(frame)});
    EXPECT_EQ(e.replies.size(), 1u);
    return std::string(e.replies.at(0).frame.status.message());
  };
  Frame odd = RowPush(c, 0, 1, {{1, 1}});
  odd.payload = odd.payload.Slice(0, 15);
  EXPECT_THAT(refused(odd), HasSubstr("15 bytes are no rows"));
  Frame pull = PullFrame(c, 1);
  pull.payload = Buffer::Zeros(7);
  EXPECT_THAT(refused(pull), HasSubstr("7 bytes are no ids"));
  Frame average = RowPush(c, 0, 1, {{1, 1}});
  average.ema_overwrite = true;
  EXPECT_THAT(refused(average), HasSubstr("no moving average"));
  Frame old = RowPush(c, 0, 1, {{1, 1}});
  old.generation = Generation(4);
  EXPECT_THAT(refused(old), HasSubstr("is fenced"));
  EXPECT_EQ(primary_.core.version(), 0u);
}

TEST_F(RowKindTest, APullIsForTheIdsThatItNamesAtTheVersionThatItWants) {
  Sync();
  Step(1, {{1, 8}}, {{2, 8}});
  Frame pull = PullFrame(primary_.core.config(), 9);
  pull.payload = EncodeIds({2, 77});
  PartitionEffects e = primary_.Run(FrameEvent{1, pull});
  ASSERT_EQ(e.replies.size(), 1u);
  EXPECT_EQ(DecodeRows(e.replies[0].frame.payload), (Rows{{2, 0.25 - 0.5}, {77, InitialRow(77)}}));
  pull.want_version = 0;
  e = primary_.Run(FrameEvent{1, pull});
  ASSERT_EQ(e.replies.size(), 1u);
  EXPECT_EQ(DecodeRows(e.replies[0].frame.payload), (Rows{{2, 0.25}, {77, InitialRow(77)}}));
  // A pull that has to wait keeps what it asked for.
  pull.want_version = 2;
  EXPECT_TRUE(primary_.Run(FrameEvent{3, pull}).replies.empty());
  for (const PartitionReply& r : Step(2, {{2, 8}}, {})) {
    if (r.client != 3) continue;
    EXPECT_EQ(DecodeRows(r.frame.payload), (Rows{{2, 0.25 - 1}, {77, InitialRow(77)}}));
  }
}

TEST_F(RowKindTest, ABackupFollowsAndGoesOnAsPrimary) {
  Sync();
  Step(1, {{1, 8}}, {{2, 8}});
  Step(2, {{3, 8}}, {{1, 8}});
  ExpectSame(primary_.core.state(), backup_.core.state());
  backup_.Run(Alone(6));
  const PartitionConfig& c = backup_.core.config();
  // A client that was not answered pushes again: the update is known; the next one is made here.
  ASSERT_EQ(backup_.Run(FrameEvent{1, RowPush(c, 0, 2, {{3, 8}})}).replies.size(), 1u);
  backup_.Run(FrameEvent{1, RowPush(c, 0, 3, {{1, 8}})});
  EXPECT_EQ(backup_.Run(FrameEvent{2, RowPush(c, 1, 3, {{4, 8}})}).replies.size(), 2u);
  EXPECT_EQ(backup_.core.version(), 3u);
  EXPECT_EQ(RowContents::Of(backup_.core.state()).touched(), (Rows{{1, 3}, {2, 1}, {3, 1}, {4, 1}}));
}

TEST_F(RowKindTest, LogAndImagesGiveTheStateBack) {
  Sync();
  for (uint64_t s = 1; s <= 3; ++s) Step(s, {{s, 8}}, {{100, 8}});
  WriteImage(primary_);
  const PartitionState at_three = Recovered(primary_);
  for (uint64_t s = 4; s <= 6; ++s) Step(s, {{s, 8}}, {{100, 8}});
  for (Copy* copy : {&primary_, &backup_}) {
    const PartitionState state = Recovered(*copy);
    ExpectSame(state, primary_.core.state());
    EXPECT_TRUE(state.contents->has_previous());
    EXPECT_EQ(state.log_bytes, copy->core.state().log_bytes);
  }
  ASSERT_TRUE(primary_.persistence.RollBack(primary_.core.config(), 3).ok());
  ExpectSame(Recovered(primary_), at_three);
}

TEST_F(RowKindTest, ACheckpointIsTakenAndRestored) {
  Sync();
  Step(1, {{1, 8}}, {{2, 8}});
  Frame ask = PullFrame(primary_.core.config(), 5);
  ask.kind = v1::ExchangeFrame::SNAPSHOT;
  const PartitionEffects snapshot = primary_.Run(FrameEvent{3, ask});
  ASSERT_EQ(snapshot.replies.size(), 2u) << "rows, and what an update needs beside them";
  Copy other(RowConfig(2), Alone(5));
  for (const PartitionReply& r : snapshot.replies) {
    const PartitionEffects e = other.Run(FrameEvent{4, r.frame});
    for (const PartitionReply& answer : e.replies) {
      EXPECT_EQ(answer.frame.kind, v1::ExchangeFrame::ACK) << answer.frame.status;
    }
  }
  ExpectSame(other.core.state(), primary_.core.state());
  ExpectSame(Recovered(other), primary_.core.state());
  // A frame of another kind.
  Frame foreign = snapshot.replies[0].frame;
  v1::PartitionImage header;
  ASSERT_TRUE(header.ParseFromString(foreign.image));
  header.set_slots(2);
  foreign.image = header.SerializeAsString();
  const PartitionEffects refused = other.Run(FrameEvent{4, foreign});
  ASSERT_EQ(refused.replies.size(), 1u);
  EXPECT_THAT(std::string(refused.replies[0].frame.status.message()), HasSubstr("image: slots: 2 with 2 tensors"));
}

TEST_F(RowKindTest, AnEndedJobKeepsItsRowsAloneOnTheDisk) {
  Sync();
  Step(1, {{1, 8}}, {{2, 8}});
  const Rows rows = RowContents::Of(primary_.core.state()).rows();
  primary_.Run(AssignEvent{Generation(5), false, {}, /*keep=*/true});
  primary_.Run(AssignEvent{Generation(6), false, {}, /*keep=*/true, /*ended=*/true});
  ASSERT_TRUE(primary_.core.image_due());
  WriteImage(primary_);
  ASSERT_TRUE(primary_.core.at_rest());
  const auto opened = primary_.persistence.Open(primary_.core.config());
  ASSERT_TRUE(opened.ok() && opened->at_rest());
  Frame pull = PullFrame(primary_.core.config(), 9);
  pull.payload = EncodeIds({1});
  EXPECT_TRUE(primary_.Run(FrameEvent{1, pull}).load);
  const PartitionEffects e = primary_.Run(LoadedEvent{Recovered(primary_)});
  ASSERT_EQ(e.replies.size(), 1u);
  EXPECT_EQ(DecodeRows(e.replies[0].frame.payload), (Rows{{1, rows.at(1)}}));
  EXPECT_TRUE(primary_.core.at_rest());
}

TEST(RowKindClipTest, TheSumIsClippedByItsNorm) {
  PartitionConfig c = RowConfig(1);
  c.clip_norm = 1;
  c.clip_scopes = {{1, 64, 64, {}}};
  Copy copy(c, Alone(5));
  copy.Run(FrameEvent{1, RowPush(c, 0, 1, {{0, 12}, {8, 16}})});  // the mean's norm is 5
  const Rows& rows = RowContents::Of(copy.core.state()).rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NEAR(rows.at(0), -0.5 * 0.6, 1e-6);
  EXPECT_NEAR(rows.at(8), 1 - 0.5 * 0.8, 1e-6);
}

}  // namespace
}  // namespace cairn
