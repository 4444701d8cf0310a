// Goal: each rule of PartitionCore by itself: barrier, duplicates, order, staleness, images, and that nothing is
// visible before it is persisted. Versions on request, fencing and bad requests are in partition_core_requests_test.cc.
#include "tests/unit/server/partition_core_fixture.h"

namespace cairn {
namespace {

// ---- synchronous ----

TEST_F(PartitionCoreTest, AppliesOnceWhenAllReplicasAreThereAndAnswersEveryone) {
  Start(UpdateMode::kSynchronous, 3);
  EXPECT_TRUE(SendAndPersist(Push(2, 1, 1, 8), 20).replies.empty());
  EXPECT_TRUE(SendAndPersist(Push(0, 1, 1, 8), 21).replies.empty());
  EXPECT_EQ(core_->version(), 0u);
  const PartitionEffects done = SendAndPersist(Push(1, 1, 1, 8), 22);
  ASSERT_EQ(done.replies.size(), 3u);
  for (const PartitionReply& r : done.replies) {
    EXPECT_EQ(r.frame.kind, v1::ExchangeFrame::VALUES);
    EXPECT_EQ(r.frame.version, 1u);
    EXPECT_EQ(r.frame.sequence, 1u);
    EXPECT_EQ(r.frame.payload.data(), Dense(core_->state()).values().data()) << "values are shared, not copied";
    // 0 - 0.5 * (24 / 12), 0.25 - 1; padding stays 0
    EXPECT_EQ(r.frame.payload.floats()[0], -1.0f);
    EXPECT_EQ(r.frame.payload.floats()[1], -0.75f);
    EXPECT_EQ(r.frame.payload.floats()[config_.size() - 1], 0.0f);
  }
  EXPECT_EQ(done.replies[0].client, 20u);
  EXPECT_EQ(done.replies[0].frame.request_id, 2001u);
  EXPECT_EQ(core_->waiting(), 0u);
}

TEST_F(PartitionCoreTest, NothingIsSeenBeforeItIsPersisted) {
  Start(UpdateMode::kSynchronous, 1);
  PartitionEffects e = Send(Push(0, 1, 1, 8));
  ASSERT_EQ(e.persists.size(), 1u);
  EXPECT_TRUE(e.replies.empty());
  const v1::LogEntry& entry = e.persists[0].entry;
  EXPECT_EQ(entry.version(), 1u);
  EXPECT_EQ(entry.generation(), 5u);
  EXPECT_EQ(entry.examples(), 4u);
  EXPECT_EQ(entry.learning_rate(), 0.5f);
  EXPECT_TRUE(SameBits(e.persists[0].gradient, Filled(config_, 8)));

  EXPECT_EQ(core_->version(), 0u);
  EXPECT_EQ(Send(PullFrame(config_, 1)).replies.at(0).frame.version, 0u);
  EXPECT_TRUE(Send(Push(0, 1, 1, 8)).replies.empty()) << "the repetition waits too";
  EXPECT_TRUE(Send(Push(0, 1, 1, 8)).persists.empty()) << "and is not persisted again";
  ExpectError(Send(Push(0, 1, 2, 8)), absl::StatusCode::kOutOfRange, "version 0");

  e.persists.clear();
  const PartitionEffects released = core_->Step(PersistedEvent{1}, kNow);
  EXPECT_EQ(released.replies.size(), 3u);
  EXPECT_EQ(core_->version(), 1u);
  EXPECT_TRUE(core_->Step(PersistedEvent{1}, kNow).replies.empty());
}

TEST_F(PartitionCoreTest, DuplicatesAreAnsweredAndNotAppliedAgain) {
  Start(UpdateMode::kSynchronous, 2);
  EXPECT_TRUE(SendAndPersist(Push(0, 1, 1, 8)).replies.empty());
  EXPECT_TRUE(SendAndPersist(Push(0, 1, 1, 1e30f)).replies.empty());  // of the open step: waits beside the first
  EXPECT_EQ(SendAndPersist(Push(1, 1, 1, 8)).replies.size(), 3u);
  const float after = FirstValue();
  const PartitionEffects late = SendAndPersist(Push(1, 1, 1, 8));
  ASSERT_EQ(late.replies.size(), 1u);
  EXPECT_EQ(late.replies[0].frame.version, 1u);
  EXPECT_TRUE(SendAndPersist(Push(0, 2, 1, 8)).persists.empty());
  EXPECT_EQ(FirstValue(), after);
  EXPECT_EQ(core_->version(), 1u);
}

// Asynchronous: each replica asks for it at its own step of that number; it is done once, with the last of them.
TEST_F(PartitionCoreTest, TheMovingAverageTakesOverWhenTheLastReplicaHasDoneTheStep) {
  config_ = TestConfig(UpdateMode::kAsynchronous, 2);
  v1::Optimizer optimizer;
  optimizer.mutable_sgd();
  optimizer.mutable_ema()->set_momentum(0.5f);
  Dense(config_).optimizer = OptimizerRule::From(optimizer);
  Start();
  const auto push = [&](uint32_t replica, uint64_t sequence, float gradient, bool overwrite, uint64_t examples = 4) {
    Frame f =
        examples > 0 ? Push(replica, 1, sequence, gradient) : PushFrame(config_, replica, 1, sequence, Buffer(), 0);
    f.ema_overwrite = overwrite;
    return SendAndPersist(f);
  };
  push(0, 1, 8, false);  // w = -1, a = -1
  push(0, 2, 8, true);   // w = -2, a = -1.5: the other replica has not reached step 2
  EXPECT_EQ(FirstValue(), -2);
  push(1, 1, 8, false);  // w = -3, a = -2.25
  push(1, 2, 8, true);   // w = -4, a = -3.125
  EXPECT_EQ(FirstValue(), -3.125f);
  push(0, 3, 8, true);     // w = -4.125, a = -3.625
  push(1, 3, 0, true, 0);  // nothing to add: the average takes over all the same
  EXPECT_EQ(FirstValue(), -3.625f);
  EXPECT_EQ(Dense(core_->state()).values().floats()[config_.size() - 1], 0) << "padding";

  config_ = TestConfig(UpdateMode::kSynchronous, 1);
  Start();
  Frame f = Push(0, 1, 1, 8);
  f.ema_overwrite = true;
  ExpectError(Send(f), absl::StatusCode::kInvalidArgument, "ema_overwrite: the job keeps no moving average");
}

TEST_F(PartitionCoreTest, ALargerSubtreeReplacesItsPartsAfterAFailover) {
  Start(UpdateMode::kSynchronous, 4);
  EXPECT_TRUE(SendAndPersist(Push(1, 1, 1, 8)).replies.empty());
  EXPECT_TRUE(SendAndPersist(Push(0, 2, 1, 16)).replies.empty());
  EXPECT_EQ(SendAndPersist(Push(2, 2, 1, 16)).replies.size(), 3u);
  EXPECT_EQ(FirstValue(), -0.5f * 32 / 8) << "the part that was replaced counted";
}

TEST_F(PartitionCoreTest, ReplicasWithoutExamplesCountForNothing) {
  Start(UpdateMode::kSynchronous, 2);
  Frame nothing = PushFrame(config_, 1, 1, 1, Buffer(), 0);
  SendAndPersist(nothing);
  EXPECT_EQ(SendAndPersist(Push(0, 1, 1, 8)).replies.size(), 2u);
  EXPECT_EQ(FirstValue(), -1.0f);

  const Buffer before = Dense(core_->state()).values();
  nothing.sequence = 2;
  SendAndPersist(nothing);
  Frame also_nothing = PushFrame(config_, 0, 1, 2, Buffer(), 0);
  PartitionEffects e = SendAndPersist(also_nothing);
  ASSERT_EQ(e.replies.size(), 2u);
  EXPECT_EQ(core_->version(), 2u);
  EXPECT_TRUE(SameBits(Dense(core_->state()).values(), before));
}

TEST_F(PartitionCoreTest, LearningRatesOfOneStepMustAgree) {
  Start(UpdateMode::kSynchronous, 2);
  SendAndPersist(Push(0, 1, 1, 8));
  Frame other = Push(1, 1, 1, 8);
  other.learning_rate = 0.25f;
  ExpectError(Send(other), absl::StatusCode::kInvalidArgument, "0.25");
  EXPECT_EQ(SendAndPersist(Push(1, 1, 1, 8)).replies.size(), 2u);
  // The next step may have another one.
  other.sequence = 2;
  SendAndPersist(other);
  EXPECT_EQ(core_->waiting(), 1u);
}

TEST_F(PartitionCoreTest, AnUpdateReusesTheMemoryOfItsGradient) {
  Start(UpdateMode::kSynchronous, 1);
  const Buffer old = Dense(core_->state()).values();
  Frame push = Push(0, 1, 1, 8);
  const uint8_t* memory = push.payload.data();
  SendAndPersist(std::move(push));
  EXPECT_EQ(Dense(core_->state()).values().data(), memory);
  EXPECT_EQ(Dense(core_->state()).previous().data(), old.data());
  EXPECT_EQ(old.floats()[1], 0.25f) << "values that others may hold were written to";
}

TEST_F(PartitionCoreTest, AGradientThatSomeoneStillHoldsIsNotWrittenTo) {
  Start(UpdateMode::kSynchronous, 1);
  PartitionEffects e = Send(Push(0, 1, 1, 8));
  core_->Step(PersistedEvent{1}, kNow);  // e.persists is alive
  EXPECT_TRUE(SameBits(e.persists.at(0).gradient, Filled(config_, 8)));
  EXPECT_EQ(FirstValue(), -1.0f);
}

// ---- asynchronous ----

TEST_F(PartitionCoreTest, AsynchronousAppliesEachPushInOrder) {
  Start(UpdateMode::kAsynchronous, 2);
  PartitionEffects e = SendAndPersist(Push(1, 1, 1, 8));
  ASSERT_EQ(e.replies.size(), 1u);
  EXPECT_EQ(e.replies[0].frame.version, 1u);
  EXPECT_EQ(e.replies[0].frame.sequence, 1u);
  EXPECT_EQ(FirstValue(), -1.0f);
  ExpectError(Send(Push(1, 1, 3, 8)), absl::StatusCode::kOutOfRange, "push update 2 first");
  e = SendAndPersist(Push(1, 1, 1, 8));  // a repetition
  EXPECT_EQ(e.replies.at(0).frame.version, 1u);
  e = SendAndPersist(Push(0, 1, 1, 8));
  EXPECT_EQ(e.replies.at(0).frame.version, 2u);
  EXPECT_EQ(e.replies.at(0).frame.sequence, 1u);
  EXPECT_EQ(FirstValue(), -2.0f);

  Frame pull = PullFrame(config_, 5);
  pull.replica_first = ReplicaId(1);
  pull.replica_count = 1;
  EXPECT_EQ(Send(pull).replies.at(0).frame.sequence, 1u);
}

TEST_F(PartitionCoreTest, SeveralAsynchronousUpdatesMayBeUnderWay) {
  Start(UpdateMode::kAsynchronous, 2);
  EXPECT_EQ(Send(Push(0, 1, 1, 8)).persists.at(0).entry.version(), 1u);
  EXPECT_EQ(Send(Push(1, 1, 1, 8)).persists.at(0).entry.version(), 2u);
  EXPECT_EQ(Send(Push(0, 1, 2, 8)).persists.at(0).entry.version(), 3u);
  EXPECT_TRUE(Send(Push(0, 1, 2, 8)).persists.empty());
  const PartitionEffects two = core_->Step(PersistedEvent{2}, kNow);
  ASSERT_EQ(two.replies.size(), 2u);
  EXPECT_EQ(two.replies[0].frame.version, 1u);
  EXPECT_EQ(two.replies[0].frame.payload.floats()[0], -1.0f);
  EXPECT_EQ(two.replies[1].frame.version, 2u);
  EXPECT_EQ(core_->Step(PersistedEvent{3}, kNow).replies.size(), 2u);
}

TEST_F(PartitionCoreTest, UpdatesUnderWayAreBounded) {
  Start(UpdateMode::kAsynchronous, 1);
  for (uint64_t s = 1; s <= kUpdatesInFlightMax; ++s) EXPECT_EQ(Send(Push(0, 1, s, 1)).persists.size(), 1u);
  ExpectError(Send(Push(0, 1, kUpdatesInFlightMax + 1, 1)), absl::StatusCode::kResourceExhausted, "retry");
  core_->Step(PersistedEvent{1}, kNow);
  EXPECT_EQ(Send(Push(0, 1, kUpdatesInFlightMax + 1, 1)).persists.size(), 1u);
}

// ---- bounded staleness ----

TEST_F(PartitionCoreTest, AReplicaTooFarAheadWaitsForTheSlowest) {
  Start(UpdateMode::kBoundedStaleness, 2);  // s = 1
  EXPECT_EQ(SendAndPersist(Push(0, 1, 1, 8)).replies.size(), 1u);
  EXPECT_TRUE(SendAndPersist(Push(0, 1, 2, 8)).replies.empty()) << "clock 2 needs everyone at 1";
  EXPECT_EQ(core_->version(), 2u) << "the update itself does not wait";
  Frame pull = PullFrame(config_, 5);
  pull.replica_first = ReplicaId(0);
  pull.replica_count = 1;
  pull.sequence = 2;
  EXPECT_TRUE(Send(pull).replies.empty());
  pull.sequence = 1;
  EXPECT_EQ(Send(pull).replies.size(), 1u);
  EXPECT_TRUE(SendAndPersist(Push(0, 1, 2, 8)).replies.empty()) << "the repetition waits as well";

  const PartitionEffects e = SendAndPersist(Push(1, 1, 1, 8));
  EXPECT_EQ(e.replies.size(), 4u);
  for (const PartitionReply& r : e.replies) EXPECT_EQ(r.frame.version, 3u);
}

// ---- images ----

TEST_F(PartitionCoreTest, AnImageFallsDueByTheBytesOfTheLog) {
  config_ = TestConfig(UpdateMode::kSynchronous, 1);
  Dense(config_).optimizer.rule = UpdateRule::kMomentum;
  Dense(config_).optimizer.momentum = 0.5;
  config_.image = {.log_bytes_min = 1, .log_to_image_ratio = 3};
  Start();
  uint64_t version = 0;
  while (!core_->image_due()) SendAndPersist(Push(0, 1, ++version, 8));
  EXPECT_GE(version, 3u);
  const PartitionEffects e = core_->Step(TakeImageEvent{}, kNow);
  ASSERT_TRUE(e.image.has_value());
  EXPECT_EQ(e.image->header.version(), version);
  EXPECT_EQ(e.image->tensors.size(), 2u);
  EXPECT_FALSE(core_->image_due());
  EXPECT_FALSE(core_->Step(TakeImageEvent{}, kNow).image.has_value()) << "one at a time";

  const Buffer slot = Buffer::CopyOf(e.image->tensors[1].data(), e.image->tensors[1].size());
  SendAndPersist(Push(0, 1, version + 1, 8));
  EXPECT_TRUE(SameBits(e.image->tensors[1], slot)) << "slots are written in place: not those of an image";
  EXPECT_FALSE(SameBits(Dense(core_->state()).slots()[0], slot));
  core_->Step(ImageWrittenEvent{version, true}, kNow);
  EXPECT_EQ(core_->state().image_version, version);
  EXPECT_FALSE(core_->image_due()) << "the log begins anew after the image";
  const PartitionEffects next = Send(Push(0, 1, version + 2, 8));
  EXPECT_EQ(next.persists.at(0).image_version, version);
  core_->Step(PersistedEvent{version + 2}, kNow);
  EXPECT_EQ(Send(Push(0, 1, version + 3, 8)).persists.at(0).image_version, 0u) << "once is enough";
}

TEST_F(PartitionCoreTest, AfterARestartTheFirstEntryDropsWhatTheImageMadeSuperfluous) {
  config_ = TestConfig(UpdateMode::kSynchronous, 1);
  PartitionState state = PartitionState::Initial(config_);
  state.version = state.image_version = 4;  // the crash may have come before the image was noted
  state.sequences = {4};
  core_ = std::make_unique<PartitionCore>(config_, std::move(state));
  EXPECT_EQ(Send(Push(0, 1, 5, 8)).persists.at(0).image_version, 4u);
}

TEST_F(PartitionCoreTest, AFailedImageIsDueAgainWithTheNextTick) {
  config_ = TestConfig(UpdateMode::kSynchronous, 1);
  config_.image = {.log_bytes_min = 1, .log_to_image_ratio = 1};
  Start();
  SendAndPersist(Push(0, 1, 1, 8));
  ASSERT_TRUE(core_->image_due());
  core_->Step(TakeImageEvent{}, kNow);
  core_->Step(ImageWrittenEvent{1, false}, kNow);
  EXPECT_FALSE(core_->image_due()) << "a store that is full would be tried without a pause";
  core_->Step(TickEvent{}, kNow);
  EXPECT_TRUE(core_->image_due());
  EXPECT_EQ(Send(Push(0, 1, 2, 8)).persists.at(0).image_version, 0u);
}

}  // namespace
}  // namespace cairn
