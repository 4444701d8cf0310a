// Goal: each part of PartitionCore keeps its own invariants, without the parts above it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "server/core/follower.h"
#include "server/core/open_step.h"
#include "server/core/partition_core.h"
#include "server/core/primary.h"
#include "server/core/replication.h"
#include "server/core/resting_values.h"
#include "server/core/stored_images.h"
#include "server/core/training_figures.h"
#include "server/core/updates.h"
#include "server/core/waiting_requests.h"
#include "tests/unit/server/server_test_util.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

// The parts of a primary of two replicas, from the ground up, without a dispatcher.
class Parts {
 public:
  explicit Parts(PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 2))
      : copy(config, PartitionState::Initial(config)),
        images(copy),
        updates(copy, images),
        replication(copy, updates),
        figures(copy, updates, replication),
        step(copy, updates, figures),
        waiting(copy, updates, replication, step),
        primary(copy, updates, replication, figures, step, waiting),
        follower(copy, images, updates),
        resting(copy) {
    copy.Begin(absl::FromUnixSeconds(1'000'000));
  }
  Frame Push(uint32_t replica, uint64_t sequence, float gradient = 1) {
    return PushFrame(copy.config, replica, 1, sequence, gradient);
  }
  v1::LogEntry Entry(uint64_t sequence) const {
    v1::LogEntry entry;
    entry.set_replica_count(copy.config.replicas);
    entry.set_sequence(sequence);
    entry.set_examples(4);
    entry.set_learning_rate(0.5f);
    return entry;
  }
  // Accepts an update, which is then on its way to the store.
  uint64_t Accept() {
    const uint64_t next = updates.accepted_version() + 1;
    Updates::Update& update = updates.Accept(Entry(next), Filled(copy.config, 1));
    updates.Persist(update);
    return next;
  }
  void AddBackup(bool in_sync) {
    AssignEvent assign{copy.config.generation, false, {}};
    v1::BackupRoute& route = assign.backups.emplace_back();
    route.set_node("ps-b");
    route.set_address("b:1");
    route.set_in_sync(in_sync);
    replication.Assign(assign, false, false);
  }

  CopyContext copy;
  StoredImages images;
  Updates updates;
  Replication replication;
  TrainingFigures figures;
  OpenStep step;
  WaitingRequests waiting;
  Primary primary;
  Follower follower;
  RestingValues resting;
};

TEST(CopyContextTest, RequestsOfOtherGenerationsAreToldWhatToDo) {
  Parts p;
  EXPECT_TRUE(p.copy.CheckGeneration(Generation(5)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(p.copy.CheckGeneration(Generation(4))));
  EXPECT_TRUE(absl::IsUnavailable(p.copy.CheckGeneration(Generation(6))));
}

TEST(DenseContentsTest, AnswersShareOneConvertedBufferUntilTheValuesChange) {
  Parts p;
  PartitionContents& contents = *p.copy.state.contents;
  const Buffer first = contents.Read(p.copy.config, {v1::BFLOAT16});
  EXPECT_EQ(contents.Read(p.copy.config, {v1::BFLOAT16}).data(), first.data());
  EXPECT_EQ(contents.Read(p.copy.config, {v1::FLOAT32}).data(), Dense(p.copy.state).values().data());
  EXPECT_NE(contents.Read(p.copy.config, {v1::FLOAT16}).data(), first.data());
  contents.ForgetPrevious();
  const Buffer again = contents.Read(p.copy.config, {v1::BFLOAT16});
  EXPECT_NE(again.data(), first.data());
  p.Accept();
  p.updates.OnPersisted(1);
  p.updates.ApplyNext();
  EXPECT_NE(contents.Read(p.copy.config, {v1::BFLOAT16}).data(), again.data());
}

TEST(UpdatesTest, VersionsHaveNoGapsAndAreAppliedInOrder) {
  Parts p(TestConfig(UpdateMode::kAsynchronous, 2));
  EXPECT_EQ(p.Accept(), 1u);
  EXPECT_EQ(p.Accept(), 2u);
  ASSERT_EQ(p.copy.effects.persists.size(), 2u);
  EXPECT_EQ(p.copy.effects.persists[0].entry.version(), 1u);
  EXPECT_EQ(p.copy.effects.persists[1].entry.generation(), 5u);
  EXPECT_EQ(p.updates.persisted_version(), 0u) << "the store has not said so";
  p.updates.OnPersisted(2);
  p.updates.ApplyNext();
  EXPECT_EQ(p.copy.state.version, 1u);
  EXPECT_EQ(p.updates.accepted_version(), 2u);
  EXPECT_DEATH(p.updates.OnPersisted(3), "");
}

TEST(UpdatesTest, ASnapshotJobHasNoLog) {
  PartitionConfig config = TestConfig(UpdateMode::kAsynchronous, 2);
  config.durability = v1::SNAPSHOT;
  Parts p(config);
  p.Accept();
  EXPECT_TRUE(p.copy.effects.persists.empty());
  EXPECT_EQ(p.updates.persisted_version(), 1u);
}

TEST(UpdatesTest, AnotherStateTakesAllThatWasUnderWay) {
  Parts p;
  p.Accept();
  p.copy.state.version = 9;
  p.copy.state.sequences = {9, 9};
  p.updates.StateReplaced();
  EXPECT_TRUE(p.updates.empty());
  EXPECT_EQ(p.updates.accepted_version(), 9u);
  EXPECT_EQ(p.updates.persisted_version(), 9u);
  EXPECT_THAT(p.updates.sequences(), testing::ElementsAre(9, 9));
}

TEST(ReplicationTest, NothingIsKeptWithoutABackupThatIsWaitedFor) {
  Parts p;
  p.AddBackup(/*in_sync=*/true);
  EXPECT_THAT(p.copy.effects.connect, testing::ElementsAre("b:1"));
  EXPECT_FALSE(p.replication.Settled()) << "it may not have what this copy began with";
  p.Accept();
  p.updates.OnPersisted(1);
  EXPECT_FALSE(p.replication.Kept(1));
  p.AddBackup(/*in_sync=*/true);
  EXPECT_EQ(p.copy.effects.connect.size(), 1u) << "the same link";
  p.replication.Assign({Generation(6), false, {}}, true, false);
  EXPECT_TRUE(p.replication.Kept(1)) << "the coordinator took it away";
  EXPECT_TRUE(p.replication.Settled());
}

TEST(ReplicationTest, BeforeItsFirstAssignmentNothingIsSettledForGood) {
  Parts p;
  EXPECT_TRUE(p.replication.Settled()) << "nobody is waited for";
  EXPECT_FALSE(p.replication.was_settled());
  p.AddBackup(/*in_sync=*/true);
  EXPECT_FALSE(p.replication.Settled()) << "one is";
}

// Its log may hold an update that was never acknowledged.
TEST(ReplicationTest, AfterARestartAPrimaryWaitsForItsBackupsHoweverLongItWasNotAssigned) {
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  const PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 2);
  PartitionCore core(config, PartitionState::Initial(config));
  core.Step(TickEvent{}, now);
  AssignEvent assign{Generation(6), false, {}};
  v1::BackupRoute& route = assign.backups.emplace_back();
  route.set_node("ps-b");
  route.set_address("b:1");
  route.set_in_sync(true);
  core.Step(assign, now);
  EXPECT_TRUE(core.Step(FrameEvent{1, PullFrame(config, 4)}, now).replies.empty());
  EXPECT_EQ(core.waiting(), 1u);
}

TEST(ReplicationTest, AnImageGoesBeforeUpdatesAndAllThatIsUnderWayFollows) {
  Parts p;
  p.AddBackup(/*in_sync=*/false);
  p.Accept();
  p.replication.SendImages();
  EXPECT_TRUE(p.copy.effects.sends.empty()) << "there is no stream";
  p.replication.OnLinkUp({"b:1", 3});
  p.replication.SendImages();
  ASSERT_EQ(p.copy.effects.sends.size(), 2u);
  EXPECT_EQ(p.copy.effects.sends[0].frames[0].kind, v1::ExchangeFrame::IMAGE);
  EXPECT_EQ(p.copy.effects.sends[1].frames[0].kind, v1::ExchangeFrame::REPLICATE);
  EXPECT_EQ(p.copy.effects.sends[1].frames[0].version, 1u);
  EXPECT_TRUE(p.replication.sending_image());
}

TEST(ReplicationTest, ABackupOfAHigherGenerationEndsItsServiceUntilItHearsOfOne) {
  Parts p;
  p.AddBackup(/*in_sync=*/false);
  p.replication.OnLinkUp({"b:1", 3});
  p.replication.SendImages();
  Frame refusal = p.copy.MakeFrame(v1::ExchangeFrame::ERROR, p.copy.effects.sends[0].frames[0].request_id);
  refusal.generation = Generation(9);
  refusal.status = absl::FailedPreconditionError("generation 5 is fenced");
  p.replication.OnAnswer({"b:1", 3, refusal});
  EXPECT_TRUE(p.replication.fenced());
  EXPECT_TRUE(absl::IsUnavailable(p.replication.CheckServes()));
  p.replication.Assign({Generation(9), false, {}}, true, true);
  EXPECT_TRUE(p.replication.CheckServes().ok());
}

TEST(OpenStepTest, IsCompleteWithTheLastReplicaAndTakesRepetitionsOnce) {
  Parts p;
  Frame first = p.Push(0, 1, 1), again = p.Push(0, 1, 100), second = p.Push(1, 1, 2);
  ASSERT_FALSE(p.step.Add(first)->has_value());
  ASSERT_FALSE(p.step.Add(again)->has_value());
  auto complete = p.step.Add(second);
  ASSERT_TRUE(complete.ok() && complete->has_value()) << complete.status();
  EXPECT_EQ((*complete)->entry.examples(), 8u);
  EXPECT_EQ((*complete)->gradient.floats()[0], 3);
  Frame early = p.Push(0, 3);
  EXPECT_TRUE(absl::IsOutOfRange(p.step.Add(early).status()));
}

TEST(OpenStepTest, WhatIsForgottenIsPushedAgain) {
  Parts p;
  Frame first = p.Push(0, 1, 1), second = p.Push(1, 1, 2);
  ASSERT_FALSE(p.step.Add(first)->has_value());
  p.step.Forget();
  ASSERT_FALSE(p.step.Add(second)->has_value());
  first = p.Push(0, 1, 1);
  EXPECT_TRUE(p.step.Add(first)->has_value());
}

TEST(OpenStepTest, AllPushesOfAStepAgreeOnTheRate) {
  Parts p;
  Frame first = p.Push(0, 1), other = p.Push(1, 1);
  other.learning_rate = 0.25f;
  ASSERT_TRUE(p.step.Add(first).ok());
  EXPECT_THAT(std::string(p.step.Add(other).status().message()), HasSubstr("update 1 began with 0.5"));
}

TEST(WaitingRequestsTest, EachKindWaitsForWhatItSays) {
  Parts p;
  ASSERT_TRUE(p.waiting.AnswerOrWait({1, 10, WaitingPush{ReplicaId(0), 1, 0, v1::FLOAT32}}).ok());
  ASSERT_TRUE(p.waiting.AnswerOrWait({1, 11, WaitingPull{{}, 0, 1}}).ok());
  ASSERT_TRUE(p.waiting.AnswerOrWait({1, 12, WaitingSnapshot{1}}).ok());
  ASSERT_TRUE(p.waiting.AnswerOrWait({1, 13, WaitingPull{}}).ok());
  ASSERT_EQ(p.copy.effects.replies.size(), 1u) << "what is there is answered at once";
  EXPECT_EQ(p.copy.effects.replies[0].frame.request_id, 13u);
  EXPECT_EQ(p.waiting.size(), 3u);
  EXPECT_EQ(p.waiting.snapshots(), 1);
  p.Accept();
  p.updates.OnPersisted(1);
  p.updates.ApplyNext();
  p.waiting.Release();
  EXPECT_EQ(p.waiting.size(), 0u);
  ASSERT_GE(p.copy.effects.replies.size(), 4u);
  EXPECT_EQ(p.copy.effects.replies[1].frame.kind, v1::ExchangeFrame::VALUES);
  EXPECT_EQ(p.copy.effects.replies[1].frame.version, 1u);
  EXPECT_EQ(p.copy.effects.replies[3].frame.kind, v1::ExchangeFrame::IMAGE);
}

TEST(WaitingRequestsTest, TheirNumberIsBoundedAndPullsDoNotWaitForEver) {
  Parts p;
  for (size_t i = 0; i < p.waiting.max(); ++i) {
    ASSERT_TRUE(p.waiting.AnswerOrWait({i + 1, i, WaitingPull{{}, 0, 1}}).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(p.waiting.AnswerOrWait({9, 9, WaitingPull{{}, 0, 1}})));
  EXPECT_TRUE(absl::IsResourceExhausted(p.waiting.AnswerOrWait({9, 9, WaitingPush{ReplicaId(0), 1, 0, {}}})));
  p.waiting.OnClientGone(1);
  ASSERT_TRUE(p.waiting.AnswerOrWait({9, 9, WaitingPush{ReplicaId(0), 1, 0, {}}}).ok());
  p.copy.Begin(p.copy.now + kPullWaitMax);
  p.waiting.OnTick();
  EXPECT_EQ(p.waiting.size(), 1u) << "the push waits for its barrier";
  EXPECT_EQ(p.copy.effects.replies.size(), p.waiting.max() - 1);
  EXPECT_TRUE(absl::IsUnavailable(p.copy.effects.replies[0].frame.status));
}

TEST(StoredImagesTest, OneIsWrittenAtATimeAndNotedOnce) {
  PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 2);
  config.image.log_bytes_min = 1;
  config.image.log_to_image_ratio = 0;
  Parts p(config);
  EXPECT_FALSE(p.images.Due({})) << "the initial values need none";
  p.Accept();
  p.updates.OnPersisted(1);
  p.updates.ApplyNext();
  p.copy.state.log_bytes = 100;
  EXPECT_TRUE(p.images.Due({}));
  EXPECT_FALSE(p.images.Due({.receiving = true}));
  p.images.Take({});
  ASSERT_TRUE(p.copy.effects.image);
  EXPECT_FALSE(p.images.Due({})) << "it is being written";
  EXPECT_FALSE(p.images.OnWritten({7, true})) << "of another version";
  EXPECT_TRUE(p.images.writing());
  EXPECT_FALSE(p.images.OnWritten({1, true}));
  EXPECT_EQ(p.copy.state.log_bytes, 0u);
  EXPECT_EQ(p.images.TakeNote(), 1u);
  EXPECT_EQ(p.images.TakeNote(), 0u);
}

TEST(StoredImagesTest, TheLastImageOfAnEndedJobHoldsTheValuesAloneAndIsTriedAgain) {
  Parts p;
  p.copy.config.ended = true;
  EXPECT_FALSE(p.images.Due({.updating = true}));
  EXPECT_FALSE(p.images.Due({.restoring = true}));
  ASSERT_TRUE(p.images.Due({}));
  p.images.Take({});
  ASSERT_TRUE(p.copy.effects.image);
  EXPECT_EQ(p.copy.effects.image->header.slots(), 0u);
  EXPECT_EQ(p.copy.effects.image->tensors.size(), 1u);
  EXPECT_FALSE(p.images.OnWritten({0, false}));
  EXPECT_FALSE(p.images.Due({})) << "not before the next tick";
  p.images.OnTick();
  ASSERT_TRUE(p.images.Due({}));
  p.images.Take({});
  EXPECT_TRUE(p.images.OnWritten({0, true}));
  EXPECT_TRUE(p.images.has_final());
}

TEST(FollowerTest, TakesUpdatesFromTheStreamOfItsImageAlone) {
  PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 2);
  Parts source(config), p(config);
  p.copy.config.backup = true;
  Frame update = source.copy.MakeFrame(v1::ExchangeFrame::REPLICATE, 4);
  EXPECT_THAT(std::string(p.follower.TakeUpdate(7, update).message()), HasSubstr("begin with one"));
  for (Frame& frame : ImageFrames(config, MakeImage(config, source.copy.state, {.previous = true}), 5)) {
    const auto image = p.follower.TakeImageTensor(7, std::move(frame));
    ASSERT_TRUE(image.ok()) << image.status();
  }
  EXPECT_TRUE(p.copy.effects.replies.empty()) << "it is not in the store";
  p.follower.GiveAcks(0);
  ASSERT_EQ(p.copy.effects.replies.size(), 1u);
  EXPECT_EQ(p.copy.effects.replies[0].frame.kind, v1::ExchangeFrame::ACK);
  source.Accept();
  source.AddBackup(false);
  source.replication.OnLinkUp({"b:1", 1});
  source.replication.SendImages();
  update = source.copy.effects.sends[1].frames[0];
  EXPECT_FALSE(p.follower.TakeUpdate(8, update).ok()) << "another stream";
  ASSERT_TRUE(p.follower.TakeUpdate(7, update).ok());
  EXPECT_EQ(p.updates.accepted_version(), 1u);
  EXPECT_EQ(p.copy.effects.persists.size(), 1u);
  EXPECT_EQ(p.copy.effects.replies.size(), 1u) << "LOGGED: its log does not have it yet";
  p.follower.GiveAcks(1);
  EXPECT_EQ(p.copy.effects.replies.size(), 2u);
}

TEST(TrainingFiguresTest, TheCoordinatorIsToldOfWhatIsSettled) {
  PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 2);
  config.partition = PartitionId(0);
  Parts p(config);
  p.AddBackup(/*in_sync=*/true);
  p.figures.Tell();
  EXPECT_FALSE(p.copy.effects.figures);
  p.replication.Assign({Generation(6), false, {}}, true, false);
  p.figures.Tell();
  EXPECT_TRUE(p.copy.effects.figures);
  p.copy.Begin(p.copy.now);
  p.figures.Tell();
  EXPECT_FALSE(p.copy.effects.figures) << "nothing is new";
  p.figures.TellAgain();
  p.figures.Tell();
  EXPECT_TRUE(p.copy.effects.figures);
}

TEST(RestingValuesTest, RequestsWaitForOneLoadAndAreHandledInOrder) {
  Parts p;
  p.copy.config.ended = true;
  const Image image = MakeImage(p.copy.config, p.copy.state, {});
  p.resting.LetGo();
  ASSERT_TRUE(p.copy.state.at_rest());
  const FrameEvent pull{3, PullFrame(p.copy.config, 8)};
  EXPECT_TRUE(p.resting.Wants(pull, /*serves=*/true));
  EXPECT_FALSE(p.resting.Wants(pull, /*serves=*/false)) << "it is answered without the values";
  EXPECT_FALSE(p.resting.Wants(TickEvent{}, true));
  p.resting.Defer(pull, 1);
  EXPECT_TRUE(p.copy.effects.load);
  p.copy.Begin(p.copy.now);
  p.resting.Defer(SendImageEvent{}, 1);
  EXPECT_FALSE(p.copy.effects.load) << "one is under way";
  EXPECT_TRUE(p.resting.image_waits());
  p.resting.Defer(pull, 1);
  ASSERT_EQ(p.copy.effects.replies.size(), 1u) << "too many";
  EXPECT_TRUE(absl::IsResourceExhausted(p.copy.effects.replies[0].frame.status));
  LoadedEvent other{StateFrom(p.copy.config, image)};
  ++other.state.version;
  EXPECT_TRUE(p.resting.OnLoaded(std::move(other)).empty()) << "of another version: it is loaded again";
  EXPECT_TRUE(p.copy.effects.load);
  const auto events = p.resting.OnLoaded({StateFrom(p.copy.config, image)});
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<FrameEvent>(events[0]));
  EXPECT_FALSE(p.copy.state.at_rest());
}

}  // namespace
}  // namespace cairn
