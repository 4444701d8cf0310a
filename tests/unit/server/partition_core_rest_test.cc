// Goal: a partition of an ended job keeps only its values, and only on disk: everything else of it is gone from the
// store, nothing is in memory, and a client or a new backup that asks for values gets the same bits from the disk.
#include <gmock/gmock.h>

#include <set>

#include "tests/unit/server/replication_test_util.h"

namespace cairn {
namespace {

AssignEvent Ended(uint64_t generation, bool backup = false) {
  return AssignEvent{Generation(generation), backup, {}, /*keep=*/true, /*ended=*/true};
}

// The kinds of keys that the store has of partitions: 'h' headers, 'i' tensors, 'l' log entries.
std::multiset<char> KeysOf(KvStore& store) {
  std::multiset<char> kinds;
  EXPECT_TRUE(store
                  .Scan("p",
                        [&](std::string_view key, std::string_view) {
                          kinds.insert(key[1 + 8 + 4]);
                          return true;
                        })
                  .ok());
  return kinds;
}

class RestTest : public testing::TestWithParam<v1::Durability> {
 protected:
  void Train(uint64_t steps) {
    for (uint64_t s = 1; s <= steps; ++s) {
      copy_.Run(FrameEvent{1, PushFrame(copy_.core.config(), 0, 1, s, static_cast<float>(s))});
    }
    ASSERT_EQ(copy_.core.version(), steps);
    values_ = Dense(copy_.core.state()).values();
  }
  // Writes the image that is due to the store, as the driver does.
  static void WriteImage(Copy& copy) {
    ASSERT_TRUE(copy.core.image_due());
    const PartitionEffects e = copy.Run(TakeImageEvent{});
    ASSERT_TRUE(e.image.has_value());
    ASSERT_TRUE(copy.persistence.WriteImage(copy.core.config(), *e.image).ok());
    copy.Run(ImageWrittenEvent{e.image->header.version(), true});
  }
  void End() {
    copy_.Run(Ended(6));
    WriteImage(copy_);
  }
  static PartitionEffects Load(Copy& copy) {
    auto state = copy.persistence.Recover(copy.core.config());
    EXPECT_TRUE(state.ok()) << state.status();
    return copy.Run(LoadedEvent{*std::move(state)});
  }
  Frame Pull(uint64_t id) { return PullFrame(copy_.core.config(), id); }

  Copy copy_{Config(GetParam()), AssignEvent{Generation(5), false, {}}};
  Buffer values_;
};

TEST_P(RestTest, NothingButTheValuesIsKeptAndNothingInMemory) {
  Train(3);
  copy_.Run(AssignEvent{Generation(6), false, {}, /*keep=*/true});
  if (copy_.core.image_due()) WriteImage(copy_);  // FINALIZING
  copy_.Run(Ended(6));
  WriteImage(copy_);
  EXPECT_TRUE(copy_.core.at_rest());
  EXPECT_TRUE(Dense(copy_.core.state()).slots().empty());
  EXPECT_TRUE(Dense(copy_.core.state()).previous().empty());
  EXPECT_FALSE(copy_.core.image_due());
  EXPECT_FALSE(copy_.core.in_memory());
  EXPECT_EQ(KeysOf(*copy_.store), (std::multiset<char>{'h', 'i'}));
  const auto state = copy_.persistence.Recover(copy_.core.config());
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->version, 3u);
  EXPECT_TRUE(SameBits(Dense(*state).values(), values_));
}

// Another partition of the job may be a version behind: both are exported at that version.
TEST_P(RestTest, AJobThatEndedWithinAStepKeepsTheVersionBefore) {
  Train(2);
  const Buffer before = values_;
  copy_.Run(FrameEvent{1, PushFrame(copy_.core.config(), 0, 1, 3, 3.0f)});
  End();
  ASSERT_TRUE(copy_.core.at_rest());
  EXPECT_EQ(KeysOf(*copy_.store), (std::multiset<char>{'h', 'i', 'i'}));
  Frame pull = Pull(1);
  pull.want_version = 2;
  EXPECT_TRUE(copy_.Run(FrameEvent{1, pull}).load);
  const PartitionEffects e = Load(copy_);
  ASSERT_EQ(e.replies.size(), 1u);
  EXPECT_EQ(e.replies[0].frame.version, 2u);
  EXPECT_TRUE(SameBits(e.replies[0].frame.payload, before));
}

TEST_P(RestTest, PullsAreAnsweredFromTheDiskAndTheMemoryIsGivenBack) {
  Train(3);
  End();
  PartitionEffects e = copy_.Run(FrameEvent{1, Pull(1)});
  EXPECT_TRUE(e.load);
  EXPECT_TRUE(e.replies.empty());
  EXPECT_FALSE(copy_.Run(FrameEvent{2, Pull(2)}).load) << "it is on its way";
  copy_.Run(FrameEvent{3, Pull(3)});
  copy_.Run(ClientGoneEvent{3});
  e = Load(copy_);
  ASSERT_EQ(e.replies.size(), 2u);
  for (const PartitionReply& r : e.replies) {
    EXPECT_EQ(r.frame.kind, v1::ExchangeFrame::VALUES);
    EXPECT_EQ(r.frame.version, 3u);
    EXPECT_TRUE(SameBits(r.frame.payload, values_));
  }
  EXPECT_TRUE(copy_.core.at_rest());
  EXPECT_TRUE(copy_.Run(FrameEvent{1, Pull(4)}).load) << "and once more";
  EXPECT_EQ(Load(copy_).replies.size(), 1u);
}

TEST_P(RestTest, PullsOfACopyThatEndsAreAnswered) {
  Train(1);
  End();
  copy_.Run(FrameEvent{1, Pull(1)});
  const std::vector<PartitionReply> replies = copy_.core.End(absl::UnavailableError("gone"));
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].frame.request_id, 1u);
}

TEST_P(RestTest, PullsThatWaitForTheDiskAreBounded) {
  Train(1);
  End();
  const size_t most = kWaitersPerReplicaMax + kWaitersExtraMax;
  for (size_t i = 0; i < most; ++i) EXPECT_TRUE(copy_.Run(FrameEvent{1, Pull(i)}).replies.empty());
  const PartitionEffects e = copy_.Run(FrameEvent{1, Pull(most)});
  ASSERT_EQ(e.replies.size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(e.replies[0].frame.status)) << e.replies[0].frame.status;
  EXPECT_EQ(Load(copy_).replies.size(), most);
}

TEST_P(RestTest, NobodyTrainsIt) {
  const auto refused = [&](Frame f) {
    f.generation = copy_.core.generation();
    const PartitionEffects e = copy_.Run(FrameEvent{1, std::move(f)});
    EXPECT_FALSE(e.load);
    return e.replies.size() == 1 && absl::IsFailedPrecondition(e.replies[0].frame.status);
  };
  Train(2);
  End();
  EXPECT_TRUE(refused(PushFrame(copy_.core.config(), 0, 1, 3, 1.0f)));
  Frame snapshot = Pull(9);
  snapshot.kind = v1::ExchangeFrame::SNAPSHOT;
  EXPECT_TRUE(refused(snapshot));
}

TEST_P(RestTest, APushThatWaitsForOthersIsTold) {
  PartitionConfig config = Config(GetParam());
  config.replicas = 2;
  Copy copy{config, AssignEvent{Generation(5), false, {}}};
  EXPECT_TRUE(copy.Run(FrameEvent{1, PushFrame(config, 0, 1, 1, 1.0f)}).replies.empty());
  const PartitionEffects e = copy.Run(Ended(6));
  ASSERT_EQ(e.replies.size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(e.replies[0].frame.status)) << e.replies[0].frame.status;
}

TEST_P(RestTest, AProcessThatIsStartedAnewLoadsNothing) {
  Train(3);
  End();
  PartitionConfig config = Config(GetParam());
  config.ended = config.keep = true;
  auto state = copy_.persistence.Open(config);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(state->at_rest());
  copy_.Restart(config, *std::move(state));
  EXPECT_EQ(copy_.core.version(), 3u);
  copy_.Run(Ended(7));
  EXPECT_FALSE(copy_.core.image_due());
  EXPECT_TRUE(copy_.Run(FrameEvent{1, Pull(1)}).load);
  const PartitionEffects e = Load(copy_);
  ASSERT_EQ(e.replies.size(), 1u);
  EXPECT_TRUE(SameBits(e.replies[0].frame.payload, values_));
}

// Killed before its last image was written.
TEST_P(RestTest, WhatTheStoreHasBesidesIsLoadedAndTidiedThen) {
  if (GetParam() == v1::SNAPSHOT) GTEST_SKIP() << "it has no log";
  Train(3);
  PartitionConfig config = Config(GetParam());
  config.ended = config.keep = true;
  auto state = copy_.persistence.Open(config);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_FALSE(state->at_rest());
  copy_.Restart(config, *std::move(state));
  End();
  EXPECT_TRUE(copy_.core.at_rest());
}

TEST_P(RestTest, SlotsThatAreGoneAreMissedByAJobThatGoesOn) {
  Train(3);
  End();
  const auto state = copy_.persistence.Open(Config(GetParam()));
  EXPECT_TRUE(absl::IsFailedPrecondition(state.status())) << state.status();
}

INSTANTIATE_TEST_SUITE_P(Durabilities, RestTest, testing::Values(v1::LOGGED, v1::SNAPSHOT, v1::REPLICATED),
                         [](const auto& info) { return v1::Durability_Name(info.param); });

// ---- with a backup ----

class RestPairTest : public PairTest {
 protected:
  // Returns the answers that become due.
  static std::vector<Frame> WriteImage(Copy& copy) {
    EXPECT_TRUE(copy.core.image_due());
    const PartitionEffects e = copy.Run(TakeImageEvent{});
    EXPECT_TRUE(copy.persistence.WriteImage(copy.core.config(), *e.image).ok());
    std::vector<Frame> answers;
    for (PartitionReply& r : copy.Run(ImageWrittenEvent{e.image->header.version(), true}).replies)
      answers.push_back(std::move(r.frame));
    EXPECT_TRUE(copy.core.at_rest());
    return answers;
  }
  void EndPrimary() {
    AssignEvent ended = PrimaryOf(6, false);
    ended.keep = ended.ended = true;
    primary_.Run(std::move(ended));
    WriteImage(primary_);
  }
};

TEST_P(RestPairTest, ANewBackupHasNothingInMemoryBeforeItsImageComes) {
  PartitionConfig config = Config(GetParam(), /*backup=*/true);
  config.ended = config.keep = true;
  auto state = backup_.persistence.Open(config);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(state->at_rest());
  backup_.Restart(config, *std::move(state));
  backup_.Run(Ended(6, /*backup=*/true));
  Push(1);
  EndPrimary();
  primary_.Run(LinkUpEvent{"b:1", 1});
  primary_.Run(SendImageEvent{});
  auto loaded = primary_.persistence.Recover(primary_.core.config());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  Pass(primary_.Run(LoadedEvent{*std::move(loaded)}));
  EXPECT_EQ(Answer(WriteImage(backup_)).reports.size(), 1u);
  EXPECT_EQ(backup_.core.version(), 1u);
}

TEST_P(RestPairTest, ANewBackupGetsItsImageFromTheDisk) {
  Push(1);
  Push(2);
  const Buffer values = Dense(primary_.core.state()).values();
  EndPrimary();
  backup_.Run(Ended(6, /*backup=*/true));
  primary_.Run(LinkUpEvent{"b:1", 1});
  ASSERT_TRUE(primary_.core.image_to_send(kNow));
  EXPECT_TRUE(primary_.Run(SendImageEvent{}).load);
  EXPECT_TRUE(primary_.core.sending_image()) << "it has its turn";
  EXPECT_FALSE(primary_.core.image_to_send(kNow));
  auto state = primary_.persistence.Recover(primary_.core.config());
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(Pass(primary_.Run(LoadedEvent{*std::move(state)})).empty()) << "it is not on the backup's disk yet";
  EXPECT_TRUE(primary_.core.at_rest());
  const PartitionEffects answered = Answer(WriteImage(backup_));
  ASSERT_EQ(answered.reports.size(), 1u) << "it has caught up";
  EXPECT_TRUE(backup_.core.at_rest());
  EXPECT_EQ(backup_.core.version(), 2u);
  state = backup_.persistence.Recover(backup_.core.config());
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(SameBits(Dense(*state).values(), values));
}

// The primary had accepted an update when the job was cancelled; the backup has its last image already.
TEST_P(RestPairTest, AnUpdateForABackupAtRestComesWithAnImage) {
  Sync();
  Push(1);
  const PartitionEffects sent = Push(2);
  backup_.Run(Ended(6, /*backup=*/true));
  if (backup_.core.version() > 0) WriteImage(backup_);
  for (Frame& f : Pass(sent)) EXPECT_TRUE(absl::IsFailedPrecondition(f.status)) << f.status;  // of an older generation
  for (const PeerSend& send : sent.sends) {
    for (Frame f : send.frames) {
      f.generation = Generation(6);
      const PartitionEffects e = backup_.Run(FrameEvent{kStream, std::move(f)});
      ASSERT_EQ(e.replies.size(), 1u);
      EXPECT_TRUE(absl::IsFailedPrecondition(e.replies[0].frame.status)) << e.replies[0].frame.status;
      EXPECT_FALSE(e.load);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Durabilities, RestPairTest, testing::Values(v1::LOGGED_AND_REPLICATED, v1::REPLICATED),
                         [](const auto& info) { return v1::Durability_Name(info.param); });

}  // namespace
}  // namespace cairn
