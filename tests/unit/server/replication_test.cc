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

// The clipped gradient, the records of its norms and ema_overwrite go with the update, to backup and log alike: both copies, and what either
// recovers, have the same bits.
TEST_P(PairTest, ClippingAndMovingAverageReachTheBackup) {
  const auto config = [&](bool backup) {
    PartitionConfig c = Config(GetParam(), backup);
    v1::Optimizer optimizer;
    optimizer.mutable_adam();
    optimizer.mutable_ema()->set_momentum(0.5f);
    c.optimizer = OptimizerRule::From(optimizer);
    c.clip_norm = 1;
    c.clip_scopes = {{4, 16, 48, {{0, 16}}}};
    return c;
  };
  Copy primary{config(false), PrimaryOf(5, false)};
  Copy backup{config(true), AssignEvent{Generation(5), true, {}}};
  const auto pass = [&](const PartitionEffects& e) {
    for (const PeerSend& send : e.sends) {
      for (Frame f : send.frames) {
        f.payload = Buffer::CopyOf(f.payload.data(), f.payload.size());
        for (const PartitionReply& r : backup.Run(FrameEvent{7, std::move(f)}).replies) {
          primary.Run(PeerFrameEvent{"b:1", 1, r.frame});
        }
      }
    }
  };
  primary.Run(LinkUpEvent{"b:1", 1});
  pass(primary.Run(SendImageEvent{}));
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    Frame push = PushFrame(primary.core.config(), 0, 1, sequence, static_cast<float>(sequence));
    push.ema_overwrite = sequence == 2;
    const PartitionEffects measured = primary.Run(FrameEvent{1, push});
    ASSERT_EQ(measured.replies.size(), 1u);
    ASSERT_EQ(measured.replies[0].frame.kind, v1::ExchangeFrame::NORMS);
    EXPECT_TRUE(measured.sends.empty()) << "the backup hears of it when it is clipped";
    Frame clip = push;
    clip.kind = v1::ExchangeFrame::CLIP;
    clip.payload = Buffer();
    clip.scalars = EncodeFactors(std::vector<double>{0.5});
    pass(primary.Run(FrameEvent{1, clip}));
    ASSERT_EQ(primary.core.version(), sequence);
    ASSERT_EQ(backup.core.version(), sequence);
    EXPECT_EQ(backup.core.state().norms, measured.replies[0].frame.scalars);
    if (sequence == 2) {
      EXPECT_EQ(primary.core.state().values.floats()[3], primary.core.state().slots.back().floats()[3]);
    }
  }
  for (Copy* copy : {&primary, &backup}) {
    const PartitionState recovered = copy->persistence.Recover(copy->core.config()).value();
    for (const PartitionState* state : {&backup.core.state(), &recovered}) {
      EXPECT_TRUE(SameBits(state->values, primary.core.state().values));
      ASSERT_EQ(state->slots.size(), 3u);
      for (size_t s = 0; s < 3; ++s) EXPECT_TRUE(SameBits(state->slots[s], primary.core.state().slots[s])) << s;
      EXPECT_EQ(state->norms, primary.core.state().norms);
    }
  }
}

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
  EXPECT_TRUE(link_.CatchUp(10, kNow + kLinkJoinAfter));  // it has everything: reported, once
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

// ---- a backup that stands still ----

// It reads nothing, so that nothing that is sent to it goes away; an asynchronous job pushes on. What the primary holds for it
// stays below what its limits add up to, whether it is waited for or not.
TEST(StandingBackupTest, HoldsABoundedNumberOfBytes) {
  for (const bool confirms_image : {false, true}) {
    SCOPED_TRACE(confirms_image);
    constexpr int64_t kNumbers = 1 << 18;  // 1 MiB: several of them reach the limits
    PartitionConfig config = TestConfig(UpdateMode::kAsynchronous, 8, kNumbers);
    config.durability = v1::REPLICATED;
    Copy primary(config, PrimaryOf(5, false));
    primary.Run(LinkUpEvent{"b:1", 1});
    const PartitionEffects image = primary.Run(SendImageEvent{});
    size_t held = 0;  // of what was handed to the stream and is not answered
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
      EXPECT_FALSE(primary.core.image_to_send(kNow + absl::Hours(1))) << "and gets no second image while the first one lies there";
    }
  }
}

// ---- lost links ----

// Ticks once a second, as a ps does; what was reported as lost in the last one.
struct Ticker {
  Copy& primary;
  absl::Time now = kNow;
  std::vector<v1::BackupReport> Pass(int seconds, absl::Duration heard_ago = absl::InfiniteDuration()) {
    std::vector<v1::BackupReport> lost;
    for (int i = 0; i < seconds; ++i) {
      now += absl::Seconds(1);
      TickEvent tick;
      if (heard_ago != absl::InfiniteDuration()) tick.heard["b:1"] = now - heard_ago;
      lost.clear();
      for (auto& r : primary.Run(std::move(tick), now).reports) {
        if (!r.lost().empty()) lost.push_back(std::move(r));
      }
    }
    return lost;
  }
};

TEST_P(PairTest, ABackupThatDoesNotAnswerIsLostAfterALeaseAndWaitedForAllTheSame) {
  Sync();
  Ticker time{primary_};
  EXPECT_TRUE(time.Pass(60).empty()) << "there is nothing to answer";
  const PartitionEffects pushed = primary_.Run(FrameEvent{1, PushFrame(primary_.core.config(), 0, 1, 1, 1.0f)}, time.now);
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
  // The answer comes after all.
  Answer(Pass(pushed), 1, time.now);
  EXPECT_EQ(primary_.core.version(), 1u);
  EXPECT_TRUE(time.Pass(10).empty());
  // Or the coordinator takes the backup away: what waited is answered.
  Frame next = PushFrame(primary_.core.config(), 0, 1, 2, 1.0f);
  EXPECT_TRUE(primary_.Run(FrameEvent{1, std::move(next)}, time.now).replies.empty());
  EXPECT_EQ(time.Pass(4).size(), 1u);
  EXPECT_EQ(primary_.Run(AssignEvent{Generation(6), false, {}}, time.now).replies.size(), 1u);
  EXPECT_TRUE(time.Pass(10).empty());
}

TEST_P(PairTest, ABackupWithoutAConnectionIsLostAlsoWhereNothingIsSent) {
  Sync();
  Ticker time{primary_};
  time.Pass(1);
  primary_.Run(LinkDownEvent{"b:1", 1}, time.now);
  EXPECT_TRUE(time.Pass(2).empty());
  std::vector<v1::BackupReport> lost = time.Pass(2);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_THAT(lost[0].lost(), HasSubstr("no connection for"));
  // Streams that open and bring nothing change nothing.
  for (uint64_t epoch = 2; epoch < 5; ++epoch) {
    primary_.Run(LinkUpEvent{"b:1", epoch}, time.now);
    ASSERT_TRUE(primary_.core.image_to_send(time.now));
    primary_.Run(SendImageEvent{}, time.now);
    EXPECT_EQ(time.Pass(1).size(), 1u);
    primary_.Run(LinkDownEvent{"b:1", epoch}, time.now);
  }
  // A newer assignment gives it the whole time again.
  primary_.Run(PrimaryOf(6, true), time.now);
  EXPECT_TRUE(time.Pass(2).empty());
  EXPECT_EQ(time.Pass(2).size(), 1u);
}

TEST_P(PairTest, ACopyThatWaitsForItsTurnIsNotLost) {
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

// Refused once (it had not heard of its role), it waits behind the images of many others, and is sent again.
TEST_P(PairTest, ACopyThatIsTriedAgainLaterIsNotLost) {
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

TEST_P(PairTest, APauseOfThePrimaryIsNotTheBackupsFault) {
  Sync();
  Ticker time{primary_};
  time.Pass(1);
  primary_.Run(FrameEvent{1, PushFrame(primary_.core.config(), 0, 1, 1, 1.0f)}, time.now);
  time.now += absl::Seconds(20);
  EXPECT_TRUE(time.Pass(2).empty());
  EXPECT_EQ(time.Pass(3).size(), 1u);
}

TEST_P(PairTest, AFencedPrimarySaysNothingOfItsBackups) {
  Sync();
  Ticker time{primary_};
  time.Pass(1);
  const PartitionEffects pushed = primary_.Run(FrameEvent{1, PushFrame(primary_.core.config(), 0, 1, 1, 1.0f)}, time.now);
  backup_.Run(AssignEvent{Generation(6), false, {}});
  Answer(Pass(pushed), 1, time.now);
  ASSERT_TRUE(primary_.core.fenced());
  EXPECT_TRUE(time.Pass(10).empty());
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
