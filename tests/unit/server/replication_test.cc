// Goal: the rules of backups one by one (who waits for whom, who is refused, what starts anew), images on the wire,
// taking a partition back, and the durabilities: what each stores and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "server/partition_core.h"
#include "server/persistence.h"
#include "tests/unit/server/server_test_util.h"

namespace cairn {
namespace {

using testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

PartitionConfig Config(v1::Durability durability, bool backup = false) {
  PartitionConfig c = TestConfig(UpdateMode::kSynchronous, 1);
  v1::Optimizer adam;
  adam.mutable_adam();
  c.optimizer = OptimizerRule::From(adam);
  c.durability = durability;
  c.backup = backup;
  return c;
}

AssignEvent PrimaryOf(uint64_t generation, bool in_sync) {
  AssignEvent e{Generation(generation), false, {}};
  v1::BackupRoute& route = e.backups.emplace_back();
  route.set_node("ps-b");
  route.set_address("b:1");
  route.set_in_sync(in_sync);
  return e;
}

struct Copy {
  Copy(const PartitionConfig& config, AssignEvent role)
      : store(NewMemoryKvStore()), persistence(*store), core(config, PartitionState::Initial(config)) {
    Run(std::move(role));
  }
  PartitionEffects Run(PartitionEvent event, absl::Time now = kNow) {
    auto effects = RunEvent(core, persistence, std::move(event), now);
    EXPECT_TRUE(effects.ok()) << effects.status();
    return *std::move(effects);
  }
  std::unique_ptr<KvStore> store;
  Persistence persistence;
  PartitionCore core;
};

// A primary and a backup joined by hand.
class PairTest : public testing::TestWithParam<v1::Durability> {
 protected:
  static constexpr uint64_t kStream = 7;

  // What the primary sent, at the backup; its answers.
  std::vector<Frame> Pass(const PartitionEffects& e) {
    std::vector<Frame> answers;
    for (const PeerSend& send : e.sends) {
      for (Frame f : send.frames) {
        f.payload = Buffer::CopyOf(f.payload.data(), f.payload.size());
        for (PartitionReply& r : backup_.Run(FrameEvent{kStream, std::move(f)}).replies) answers.push_back(r.frame);
      }
    }
    return answers;
  }
  PartitionEffects Answer(const std::vector<Frame>& answers, uint64_t epoch = 1, absl::Time now = kNow) {
    PartitionEffects all;
    for (const Frame& f : answers) {
      PartitionEffects e = primary_.Run(PeerFrameEvent{"b:1", epoch, f}, now);
      for (auto& r : e.replies) all.replies.push_back(std::move(r));
      for (auto& r : e.reports) all.reports.push_back(std::move(r));
      for (auto& s : e.sends) all.sends.push_back(std::move(s));
      if (e.wake_at) all.wake_at = e.wake_at;
    }
    return all;
  }
  PartitionEffects Push(uint64_t sequence) {
    Frame f = PushFrame(primary_.core.config(), 0, 1, sequence, static_cast<float>(sequence));
    f.generation = primary_.core.generation();
    return primary_.Run(FrameEvent{1, std::move(f)});
  }
  void Sync() {
    primary_.Run(LinkUpEvent{"b:1", 1});
    ASSERT_TRUE(primary_.core.image_to_send(kNow));
    Answer(Pass(primary_.Run(SendImageEvent{})));
    ASSERT_EQ(primary_.core.links()[0].stage(), BackupLink::Stage::kFollowing);
  }

  Copy primary_{Config(GetParam()), PrimaryOf(5, false)};
  Copy backup_{Config(GetParam(), true), AssignEvent{Generation(5), true, {}}};
};

INSTANTIATE_TEST_SUITE_P(Durabilities, PairTest, testing::Values(v1::REPLICATED, v1::LOGGED_AND_REPLICATED));

TEST_P(PairTest, NothingIsAcknowledgedBeforeTheBackupConfirms) {
  EXPECT_EQ(Push(1).replies.size(), 1u) << "nobody follows yet";
  Sync();
  EXPECT_TRUE(primary_.core.links()[0].required());
  const PartitionEffects pushed = Push(2);
  EXPECT_TRUE(pushed.replies.empty());
  ASSERT_EQ(pushed.sends.size(), 1u);
  const std::vector<Frame> acks = Pass(pushed);
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_EQ(acks[0].kind, v1::ExchangeFrame::ACK);
  EXPECT_EQ(acks[0].version, 2u);
  EXPECT_EQ(primary_.core.version(), 1u);
  const PartitionEffects done = Answer(acks);
  ASSERT_EQ(done.replies.size(), 1u);
  EXPECT_EQ(done.replies[0].frame.kind, v1::ExchangeFrame::VALUES);
  EXPECT_TRUE(SameBits(primary_.core.state().values, backup_.core.state().values));
  EXPECT_TRUE(SameBits(primary_.core.state().previous, backup_.core.state().previous));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(SameBits(primary_.core.state().slots[i], backup_.core.state().slots[i]));
  }
  auto recovered = backup_.persistence.Recover(backup_.core.config());
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_TRUE(SameBits(recovered->values, backup_.core.state().values));
}

TEST_P(PairTest, ACaughtUpBackupIsReportedUntilTheCoordinatorKnows) {
  Push(1);
  primary_.Run(LinkUpEvent{"b:1", 1});
  const PartitionEffects synced = Answer(Pass(primary_.Run(SendImageEvent{})));
  ASSERT_EQ(synced.reports.size(), 1u);
  EXPECT_EQ(synced.reports[0].node(), "ps-b");
  EXPECT_EQ(synced.reports[0].version(), 1u);
  EXPECT_EQ(primary_.Run(TickEvent{}).reports.size(), 1u) << "again";
  // The stream breaks: it may be in sync for the coordinator by now.
  primary_.Run(LinkDownEvent{"b:1", 1});
  EXPECT_TRUE(Push(2).replies.empty());
  // A newer assignment says that it is not.
  EXPECT_EQ(primary_.Run(PrimaryOf(6, false)).replies.size(), 1u);
}

TEST_P(PairTest, AnImageCarriesThePreviousValues) {
  Push(1);
  Push(2);
  ASSERT_FALSE(primary_.core.state().previous.empty());
  Sync();
  EXPECT_TRUE(SameBits(backup_.core.state().previous, primary_.core.state().previous));
  auto recovered = backup_.persistence.Recover(backup_.core.config());
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_EQ(recovered->version, 2u);
  EXPECT_TRUE(SameBits(recovered->previous, primary_.core.state().previous));
}

TEST_P(PairTest, ABackupRefusesALowerGenerationAndTheSenderStopsServing) {
  Sync();
  backup_.Run(AssignEvent{Generation(6), false, {}});  // promoted
  const std::vector<Frame> refused = Pass(Push(1));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused[0].status)) << refused[0].status;
  EXPECT_EQ(refused[0].generation, Generation(6));
  EXPECT_TRUE(Answer(refused).replies.empty());
  EXPECT_TRUE(primary_.core.fenced());
  const PartitionEffects pulled = primary_.Run(FrameEvent{1, PullFrame(primary_.core.config(), 9)});
  ASSERT_EQ(pulled.replies.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(pulled.replies[0].frame.status));
  // Demoted: whoever waits is sent away, and the new primary serves.
  const PartitionEffects demoted = primary_.Run(AssignEvent{Generation(6), true, {}});
  ASSERT_EQ(demoted.replies.size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(demoted.replies[0].frame.status));
  Frame push = PushFrame(backup_.core.config(), 0, 1, 1, 1.0f);
  push.generation = Generation(6);
  EXPECT_EQ(backup_.Run(FrameEvent{1, std::move(push)}).replies.at(0).frame.kind, v1::ExchangeFrame::VALUES);
}

TEST_P(PairTest, ARaisedGenerationDisturbsNoLink) {
  Sync();
  // The backup hears of it first.
  backup_.Run(AssignEvent{Generation(6), true, {}});
  const std::vector<Frame> refused = Pass(Push(1));
  Answer(refused);
  EXPECT_EQ(primary_.core.links()[0].stage(), BackupLink::Stage::kRefused);
  const PartitionEffects again = primary_.Run(PrimaryOf(6, true));
  ASSERT_EQ(again.sends.size(), 1u);
  EXPECT_EQ(again.sends[0].frames[0].kind, v1::ExchangeFrame::REPLICATE);
  EXPECT_EQ(Answer(Pass(again)).replies.size(), 1u);
  // Then the primary does.
  primary_.Run(PrimaryOf(7, true));
  const PartitionEffects waiting = Answer(Pass(Push(2)));
  ASSERT_TRUE(waiting.wake_at.has_value());
  backup_.Run(AssignEvent{Generation(7), true, {}});
  const PartitionEffects woken = primary_.Run(TickEvent{}, *waiting.wake_at);
  ASSERT_EQ(woken.sends.size(), 1u);
  EXPECT_EQ(woken.sends[0].frames[0].kind, v1::ExchangeFrame::REPLICATE);
  EXPECT_EQ(Answer(Pass(woken)).replies.size(), 1u);
}

// What the last primary sent and nobody confirmed is in this copy alone: shown at once, it would be lost with it.
TEST_P(PairTest, ANewPrimaryShowsNothingThatItsBackupsInSyncDoNotHave) {
  PartitionConfig config = Config(GetParam(), true);
  Copy heir(config, AssignEvent{Generation(5), true, {}});
  Push(1);
  for (Frame& f : ImageFrames(config, MakeImage(config, primary_.core.state(), true), 1)) {
    heir.Run(FrameEvent{kStream, std::move(f)});
  }
  ASSERT_EQ(heir.core.version(), 1u);
  EXPECT_TRUE(heir.Run(PrimaryOf(6, true)).replies.empty());
  Frame again = PushFrame(config, 0, 1, 1, 1.0f);
  again.generation = Generation(6);
  EXPECT_TRUE(heir.Run(FrameEvent{1, std::move(again)}).replies.empty());
  EXPECT_TRUE(heir.Run(FrameEvent{1, PullFrame(config, 9)}).replies.empty());
  backup_.Run(AssignEvent{Generation(6), true, {}});
  heir.Run(LinkUpEvent{"b:1", 1});
  std::vector<Frame> acks = Pass(heir.Run(SendImageEvent{}));
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_EQ(heir.Run(PeerFrameEvent{"b:1", 1, acks[0]}).replies.size(), 2u);
  EXPECT_EQ(backup_.core.version(), 1u);
}

TEST_P(PairTest, UpdatesOfAnotherStreamNeedAnImage) {
  Sync();
  PartitionEffects pushed = Push(1);
  Frame f = pushed.sends[0].frames[0];
  const PartitionEffects e = backup_.Run(FrameEvent{kStream + 1, f});
  ASSERT_EQ(e.replies.size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(e.replies[0].frame.status));
  EXPECT_EQ(backup_.core.version(), 0u);
  Answer({e.replies[0].frame});
  EXPECT_EQ(primary_.core.links()[0].stage(), BackupLink::Stage::kNeedsImage);
}

TEST_P(PairTest, AnOlderStreamsImageIsRefused) {
  Push(1);
  primary_.Run(LinkUpEvent{"b:1", 1});
  PartitionEffects old = primary_.Run(SendImageEvent{});
  primary_.Run(LinkDownEvent{"b:1", 1});
  Push(2);
  primary_.Run(LinkUpEvent{"b:1", 2});
  Answer(Pass(primary_.Run(SendImageEvent{})), 2);
  ASSERT_EQ(backup_.core.version(), 2u);
  for (Frame& f : old.sends[0].frames) {
    const PartitionEffects e = backup_.Run(FrameEvent{kStream - 1, std::move(f)});
    EXPECT_TRUE(absl::IsFailedPrecondition(e.replies.at(0).frame.status));
  }
  EXPECT_EQ(backup_.core.version(), 2u);
}

TEST_P(PairTest, AGapAsksForAnImage) {
  Sync();
  const PartitionEffects lost = Push(1);
  Frame f = lost.sends[0].frames[0];
  f.version = f.sequence = 3;
  const PartitionEffects e = backup_.Run(FrameEvent{kStream, f});
  EXPECT_TRUE(absl::IsFailedPrecondition(e.replies.at(0).frame.status));
  EXPECT_THAT(std::string(e.replies[0].frame.status.message()), HasSubstr("image"));
}

TEST_P(PairTest, ABackupServesNoClients) {
  const PartitionEffects e = backup_.Run(FrameEvent{1, PullFrame(backup_.core.config(), 3)});
  ASSERT_EQ(e.replies.size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(e.replies[0].frame.status));
}

// A busy asynchronous job must not outrun its backup for ever: after a while, or before the memory is full, it waits.
class BusyLinkTest : public testing::Test {
 protected:
  BusyLinkTest() : link_(PrimaryOf(1, false).backups[0]) {
    link_.Up(1);
    link_.ImageSent(1, Generation(1), 10);
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
  EXPECT_TRUE(link_.CatchUp(10, kNow + kLinkJoinAfter));  // it has everything: reported, once
  EXPECT_FALSE(link_.CatchUp(10, kNow + kLinkJoinAfter));
}

TEST_F(BusyLinkTest, AFullLinkIsWaitedForOrStartsAgain) {
  link_.Overflow(kNow);
  EXPECT_TRUE(link_.required());
  EXPECT_EQ(link_.stage(), BackupLink::Stage::kFollowing);

  link_.ImageSent(2, Generation(1), 20);  // not confirmed
  link_.Overflow(kNow);
  EXPECT_EQ(link_.stage(), BackupLink::Stage::kNeedsImage);
  EXPECT_FALSE(link_.wants_image(kNow));
}

TEST(ImageTest, WhatDoesNotFitIsRefused) {
  const PartitionConfig c = Config(v1::REPLICATED);
  const Image image = MakeImage(c, PartitionState::Initial(c), true);
  const auto refused = [&](auto change) {
    std::vector<Frame> frames = ImageFrames(c, image, 1);
    change(frames);
    ImageReceiver receiver;
    for (Frame& f : frames) {
      auto added = receiver.Add(c, 1, std::move(f));
      if (!added.ok()) return added.status();
    }
    return absl::OkStatus();
  };
  EXPECT_TRUE(refused([](auto&) {}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(refused([](auto& f) { f[0].image = "\xff"; })));
  EXPECT_TRUE(absl::IsInvalidArgument(refused([](auto& f) { f[1].payload = f[1].payload.Slice(0, 4); })));
  EXPECT_TRUE(absl::IsInvalidArgument(refused([](auto& f) { f[0].tensors = 9; })));
  EXPECT_TRUE(absl::IsInvalidArgument(refused([](auto& f) { f[1].dtype = v1::BFLOAT16; })));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused([](auto& f) { f.erase(f.begin()); })));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused([](auto& f) { f[2].request_id = 2; })));
  PartitionConfig other = c;
  other.replicas = 4;
  v1::PartitionImage header = image.header;
  header.mutable_sequences()->add_last_sequence(0);
  EXPECT_TRUE(absl::IsInvalidArgument(refused([&](auto& f) { f[0].image = header.SerializeAsString(); })));
}

// ---- durabilities ----

TEST(DurabilityTest, ASnapshotJobHasImagesAtCommonVersionsAndNoLog) {
  PartitionConfig config = Config(v1::SNAPSHOT);
  config.image.snapshot_every = 4;
  Copy copy(config, {Generation(5), false, {}});
  std::map<uint64_t, Buffer> values;
  for (uint64_t v = 1; v <= 22; ++v) {
    PartitionEffects e = copy.Run(FrameEvent{1, PushFrame(config, 0, 1, v, 1.0f)});
    EXPECT_EQ(e.replies.size(), 1u);
    values[v] = copy.core.state().values;
    ASSERT_EQ(e.image.has_value(), v % 4 == 0);
    if (!e.image) continue;
    ASSERT_TRUE(copy.persistence.WriteImage(config, *e.image).ok());
    copy.Run(ImageWrittenEvent{v, true});
  }
  auto reach = copy.persistence.ReachOf(config, 22);
  ASSERT_TRUE(reach.ok());
  EXPECT_EQ(reach->version_min, 22u);
  EXPECT_THAT(reach->versions, testing::ElementsAre(0, 12, 16, 20));
  for (uint64_t back : {20, 16, 12, 0}) {
    auto store = CopyOf(*copy.store);
    Persistence persistence(*store);
    ASSERT_TRUE(persistence.RollBack(config, back).ok());
    auto state = persistence.Recover(config);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->version, back);
    if (back > 0) {
      EXPECT_TRUE(SameBits(state->values, values[back]));
    }
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(copy.persistence.RollBack(config, 13)));
}

TEST(DurabilityTest, ALogTakesThePartitionBackToEachVersionOfItsReach) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  PartitionConfig config = Config(v1::LOGGED);
  config.image = {.log_bytes_min = 1, .log_to_image_ratio = 2};
  Copy copy(config, {Generation(5), false, {}});
  std::map<uint64_t, Buffer> values;
  values[0] = copy.core.state().values;
  for (uint64_t v = 1; v <= 40; ++v) {
    copy.Run(FrameEvent{1, PushFrame(config, 0, 1, v, static_cast<float>(rng() % 10))});
    values[v] = copy.core.state().values;
    if (!copy.core.image_due() || rng() % 2 == 0) continue;
    PartitionEffects e = copy.Run(TakeImageEvent{});
    ASSERT_TRUE(copy.persistence.WriteImage(config, *e.image).ok());
    copy.Run(ImageWrittenEvent{v, true});
  }
  auto reach = copy.persistence.ReachOf(config, 40);
  ASSERT_TRUE(reach.ok());
  EXPECT_LT(reach->version_min, 40u);
  EXPECT_GT(reach->version_min, 0u);
  for (uint64_t back = 0; back <= 41; ++back) {
    auto store = CopyOf(*copy.store);
    Persistence persistence(*store);
    const absl::Status status = persistence.RollBack(config, back);
    const bool offered = (back >= reach->version_min && back <= 40) ||
                         std::count(reach->versions.begin(), reach->versions.end(), back) > 0;
    ASSERT_EQ(status.ok(), offered) << back << ": " << status;
    if (!offered) continue;
    auto state = persistence.Recover(config);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->version, back);
    EXPECT_TRUE(SameBits(state->values, values[back]));
  }
}

// ---- backup_replicas ----

TEST(BackupReplicasTest, AStepClosesWithoutTheSlowest) {
  PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 3);
  config.backup_replicas = 1;
  Copy copy(config, {Generation(5), false, {}});
  EXPECT_TRUE(copy.Run(FrameEvent{1, PushFrame(config, 2, 1, 1, Filled(config, 8), 4)}).replies.empty());
  EXPECT_TRUE(copy.Run(FrameEvent{1, PushFrame(config, 2, 1, 1, Filled(config, 8), 4)}).replies.empty())
      << "a repetition is no second replica";
  const PartitionEffects closed = copy.Run(FrameEvent{1, PushFrame(config, 0, 1, 1, Filled(config, 16), 4)});
  EXPECT_EQ(closed.replies.size(), 3u);
  EXPECT_EQ(copy.core.version(), 1u);
  EXPECT_EQ(copy.core.state().values.floats()[0], -0.5f * 24 / 8) << "the mean of those that came";
  EXPECT_THAT(copy.core.state().sequences, testing::Each(1u));
  const PartitionEffects late = copy.Run(FrameEvent{1, PushFrame(config, 1, 1, 1, Filled(config, 99), 4)});
  ASSERT_EQ(late.replies.size(), 1u);
  EXPECT_EQ(late.replies[0].frame.kind, v1::ExchangeFrame::VALUES);
  EXPECT_EQ(late.replies[0].frame.sequence, 1u);
  EXPECT_TRUE(SameBits(late.replies[0].frame.payload, copy.core.state().values));
  EXPECT_EQ(copy.core.version(), 1u);
}

}  // namespace
}  // namespace cairn
