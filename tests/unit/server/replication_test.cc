// Goal: the rules of backups one by one: who waits for whom, who is refused, what starts again, and what reaches a
// backup.
#include "tests/unit/server/replication_test_util.h"

namespace cairn {
namespace {

using testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Durabilities, PairTest, testing::Values(v1::REPLICATED, v1::LOGGED_AND_REPLICATED));

// The clipped gradient, the records of its norms and ema_overwrite go with the update, to backup and log alike: both
// copies, and what either recovers, have the same bits.
TEST_P(PairTest, ClippingAndMovingAverageReachTheBackup) {
  const auto config = [&](bool backup) {
    PartitionConfig c = Config(GetParam(), backup);
    v1::Optimizer optimizer;
    optimizer.mutable_adam();
    optimizer.mutable_ema()->set_momentum(0.5f);
    Dense(c).optimizer = OptimizerRule::From(optimizer);
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
    clip.norms_xxh3 = HashOfNorms(measured.replies[0].frame.scalars);
    pass(primary.Run(FrameEvent{1, clip}));
    ASSERT_EQ(primary.core.version(), sequence);
    ASSERT_EQ(backup.core.version(), sequence);
    EXPECT_EQ(backup.core.state().norms, measured.replies[0].frame.scalars + clip.scalars)
        << "with the factor that was applied";
    if (sequence == 2) {
      EXPECT_EQ(Dense(primary.core.state()).values().floats()[3],
                Dense(primary.core.state()).slots().back().floats()[3]);
    }
  }
  for (Copy* copy : {&primary, &backup}) {
    const PartitionState recovered = copy->persistence.Recover(copy->core.config()).value();
    for (const PartitionState* state : {&backup.core.state(), &recovered}) {
      EXPECT_TRUE(SameBits(Dense(*state).values(), Dense(primary.core.state()).values()));
      ASSERT_EQ(Dense(*state).slots().size(), 3u);
      for (size_t s = 0; s < 3; ++s)
        EXPECT_TRUE(SameBits(Dense(*state).slots()[s], Dense(primary.core.state()).slots()[s])) << s;
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
  EXPECT_TRUE(SameBits(Dense(primary_.core.state()).values(), Dense(backup_.core.state()).values()));
  EXPECT_TRUE(SameBits(Dense(primary_.core.state()).previous(), Dense(backup_.core.state()).previous()));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(SameBits(Dense(primary_.core.state()).slots()[i], Dense(backup_.core.state()).slots()[i]));
  }
  auto recovered = backup_.persistence.Recover(backup_.core.config());
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_TRUE(SameBits(Dense(*recovered).values(), Dense(backup_.core.state()).values()));
}

TEST_P(PairTest, ACaughtUpBackupIsReportedUntilTheCoordinatorKnows) {
  Push(1);
  primary_.Run(LinkUpEvent{"b:1", 1});
  const PartitionEffects synced = Answer(Pass(primary_.Run(SendImageEvent{})));
  ASSERT_EQ(synced.reports.size(), 1u);
  EXPECT_EQ(synced.reports[0].node(), "ps-b");
  EXPECT_EQ(synced.reports[0].version(), 1u);
  EXPECT_EQ(primary_.Run(TickEvent{}).reports.size(), 1u) << "again";
  // The stream breaks: the coordinator may have stored it as in sync by now.
  primary_.Run(LinkDownEvent{"b:1", 1});
  EXPECT_TRUE(Push(2).replies.empty());
  // A newer assignment says that it is not in sync.
  EXPECT_EQ(primary_.Run(PrimaryOf(6, false)).replies.size(), 1u);
}

TEST_P(PairTest, AnImageCarriesThePreviousValues) {
  Push(1);
  Push(2);
  ASSERT_FALSE(Dense(primary_.core.state()).previous().empty());
  Sync();
  EXPECT_TRUE(SameBits(Dense(backup_.core.state()).previous(), Dense(primary_.core.state()).previous()));
  auto recovered = backup_.persistence.Recover(backup_.core.config());
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_EQ(recovered->version, 2u);
  EXPECT_TRUE(SameBits(Dense(*recovered).previous(), Dense(primary_.core.state()).previous()));
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
  // Demoted: waiting requests are refused, and the new primary serves.
  const PartitionEffects demoted = primary_.Run(AssignEvent{Generation(6), true, {}});
  ASSERT_EQ(demoted.replies.size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(demoted.replies[0].frame.status));
  Frame push = PushFrame(backup_.core.config(), 0, 1, 1, 1.0f);
  push.generation = Generation(6);
  EXPECT_EQ(backup_.Run(FrameEvent{1, std::move(push)}).replies.at(0).frame.kind, v1::ExchangeFrame::VALUES);
}

TEST_P(PairTest, ARaisedGenerationDisturbsNoLink) {
  Sync();
  // The backup learns of it first.
  backup_.Run(AssignEvent{Generation(6), true, {}});
  const std::vector<Frame> refused = Pass(Push(1));
  Answer(refused);
  EXPECT_EQ(primary_.core.links()[0].stage(), BackupLink::Stage::kRefused);
  const PartitionEffects again = primary_.Run(PrimaryOf(6, true));
  ASSERT_EQ(again.sends.size(), 1u);
  EXPECT_EQ(again.sends[0].frames[0].kind, v1::ExchangeFrame::REPLICATE);
  EXPECT_EQ(Answer(Pass(again)).replies.size(), 1u);
  // Then the primary learns of it.
  primary_.Run(PrimaryOf(7, true));
  const PartitionEffects waiting = Answer(Pass(Push(2)));
  ASSERT_TRUE(waiting.wake_at.has_value());
  backup_.Run(AssignEvent{Generation(7), true, {}});
  const PartitionEffects woken = primary_.Run(TickEvent{}, *waiting.wake_at);
  ASSERT_EQ(woken.sends.size(), 1u);
  EXPECT_EQ(woken.sends[0].frames[0].kind, v1::ExchangeFrame::REPLICATE);
  EXPECT_EQ(Answer(Pass(woken)).replies.size(), 1u);
}

// An update that the last primary sent and nobody confirmed is in this copy alone: if it were visible at once, it could
// be lost after it was seen.
TEST_P(PairTest, ANewPrimaryShowsNothingThatItsBackupsInSyncDoNotHave) {
  PartitionConfig config = Config(GetParam(), true);
  Copy heir(config, AssignEvent{Generation(5), true, {}});
  Push(1);
  for (Frame& f : ImageFrames(config, MakeImage(config, primary_.core.state(), {.previous = true}), 1)) {
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

}  // namespace
}  // namespace cairn
