// Goal: clipping by norm in PartitionCore. A norm within the partition is clipped at once; one that spans partitions
// takes two phases, in which repeated, lost and late messages change nothing. The clipped gradient and the records are
// what is logged, replicated and kept.
#include <gmock/gmock.h>

#include <cmath>

#include "server/core/partition_image.h"
#include "tests/unit/server/server_test_util.h"

namespace cairn {
namespace {

using testing::HasSubstr;

constexpr uint64_t kA = 11, kB = 12;  // clients
const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

class PartitionCoreClipTest : public testing::Test {
 protected:
  // Scope 1 is whole: numbers 0..7. Scope 2 spans: 8 of its 24 numbers here, 8..15 (and so on to the config's end of
  // 24).
  void SetUp() override {
    config_ = TestConfig(UpdateMode::kSynchronous, 2);
    config_.clip_norm = 1;
    config_.clip_scopes = {{1, 8, 8, {{0, 8}}}, {2, 8, 24, {{16, 24}}}};
    Start();
  }
  void Start() { core_ = std::make_unique<PartitionCore>(config_, PartitionState::Initial(config_)); }
  PartitionEffects Send(Frame frame, uint64_t client = kA) {
    PartitionEffects effects = core_->Step(FrameEvent{client, std::move(frame)}, kNow);
    for (const PartitionReply& r : effects.replies) {
      if (r.frame.kind == v1::ExchangeFrame::NORMS) norms_ = r.frame.scalars;
    }
    return effects;
  }
  PartitionEffects Persisted(uint64_t version) { return core_->Step(PersistedEvent{version}, kNow); }
  Frame Push(uint32_t first, uint64_t sequence, float gradient) {
    return PushFrame(config_, first, 1, sequence, gradient);
  }
  Frame Clip(uint64_t sequence, std::vector<double> factors) {
    Frame f;
    f.kind = v1::ExchangeFrame::CLIP;
    f.request_id = 5000 + sequence;
    f.job = config_.job;
    f.partition = config_.partition;
    f.generation = config_.generation;
    f.sequence = sequence;
    f.scalars = EncodeFactors(factors);
    f.norms_xxh3 = HashOfNorms(norms_);
    return f;
  }
  // Sends both replicas' gradients: 8 each, so that the mean is 16 / 8 = 2.
  PartitionEffects Measure(uint64_t sequence) {
    EXPECT_TRUE(Send(Push(0, sequence, 8), kA).replies.empty());
    return Send(Push(1, sequence, 8), kB);
  }
  void ExpectNorms(const PartitionReply& reply, uint64_t sequence, double norm = std::sqrt(32.0)) {
    ASSERT_EQ(reply.frame.kind, v1::ExchangeFrame::NORMS);
    EXPECT_EQ(reply.frame.sequence, sequence);
    const auto records = DecodeNorms(reply.frame.scalars).value();
    ASSERT_EQ(records.size(), 1u) << "the whole scope is this partition's own business";
    EXPECT_EQ(records[0].scope, 2u);
    EXPECT_EQ(records[0].numbers, 8u);
    EXPECT_EQ(records[0].total, 24u);
    EXPECT_EQ(records[0].squares.Root(), norm);
  }
  void ExpectError(const PartitionEffects& e, absl::StatusCode code, const std::string& part) {
    ASSERT_EQ(e.replies.size(), 1u);
    EXPECT_EQ(e.replies[0].frame.status.code(), code) << e.replies[0].frame.status;
    EXPECT_THAT(std::string(e.replies[0].frame.status.message()), HasSubstr(part));
    EXPECT_TRUE(e.persists.empty());
  }
  float Value(int i) const { return Dense(core_->state()).values().floats()[i]; }

  PartitionConfig config_;
  std::unique_ptr<PartitionCore> core_;
  std::string norms_;  // of the last NORMS
};

TEST_F(PartitionCoreClipTest, TwoPhases) {
  const PartitionEffects measured = Measure(1);
  ASSERT_EQ(measured.replies.size(), 2u);
  EXPECT_TRUE(measured.persists.empty()) << "nothing is accepted before it is clipped";
  for (const PartitionReply& r : measured.replies) ExpectNorms(r, 1);
  EXPECT_EQ(core_->waiting(), 0u);

  const PartitionEffects clipped = Send(Clip(1, {0.25}), kB);
  EXPECT_TRUE(clipped.replies.empty());
  ASSERT_EQ(clipped.persists.size(), 1u);
  const auto logged = clipped.persists[0].gradient.floats();
  const float whole = 16 * static_cast<float>(1 / std::sqrt(32.0));  // clipped to norm 1 by itself
  EXPECT_FLOAT_EQ(logged[0], whole);
  EXPECT_EQ(logged[8], 16) << "in no scope";
  EXPECT_EQ(logged[16], 4) << "the log has the clipped gradient";
  EXPECT_EQ(clipped.persists[0].entry.norms(),
            measured.replies[0].frame.scalars + EncodeFactors(std::vector<double>{0.25}));

  const PartitionEffects done = Persisted(1);
  ASSERT_EQ(done.replies.size(), 1u);
  EXPECT_EQ(done.replies[0].client, kB);
  EXPECT_EQ(done.replies[0].frame.kind, v1::ExchangeFrame::VALUES);
  EXPECT_EQ(done.replies[0].frame.version, 1u);
  EXPECT_EQ(Value(16), 16 * 0.25f - 0.5f * 4 / 8);
}

TEST_F(PartitionCoreClipTest, RepetitionsAreAnsweredByWhatTheirStepHasComeTo) {
  Measure(1);
  ExpectNorms(Send(Push(0, 1, 1e30f)).replies.at(0), 1);  // measured: not added again
  PartitionEffects clipped = Send(Clip(1, {0.25}));
  EXPECT_TRUE(Send(Clip(1, {0.75}), kB).replies.empty()) << "waits for the first one's update";
  EXPECT_TRUE(Send(Push(0, 1, 8), kB).replies.empty()) << "on its way: VALUES will come";
  clipped.persists.clear();
  EXPECT_EQ(Persisted(1).replies.size(), 3u);
  const float after = Value(16);
  // VALUES carries the norms and the factors of the first CLIP: another partition may still wait for its own.
  const PartitionEffects late = Send(Push(1, 1, 8), kB);
  ASSERT_EQ(late.replies.size(), 1u);
  EXPECT_EQ(late.replies[0].frame.kind, v1::ExchangeFrame::VALUES);
  EXPECT_EQ(DecodeNorms(late.replies[0].frame.scalars).value()[0].squares.Root(), std::sqrt(32.0));
  EXPECT_EQ(AppliedFactors(late.replies[0].frame.scalars).value(), std::vector<double>{0.25});
  EXPECT_EQ(Send(Clip(1, {0.75})).replies.at(0).frame.kind, v1::ExchangeFrame::VALUES);
  EXPECT_EQ(Value(16), after);
  // The next step.
  EXPECT_EQ(Measure(2).replies.size(), 2u);
  EXPECT_EQ(Send(Clip(1, {0.5})).replies.at(0).frame.version, 1u)
      << "an old CLIP is answered, and is not for the new sum";
  ExpectError(Send(Clip(3, {0.5})), absl::StatusCode::kOutOfRange, "is at version 1");
}

TEST_F(PartitionCoreClipTest, ASumThatIsNotHereIsAborted) {
  ExpectError(Send(Clip(1, {0.5})), absl::StatusCode::kAborted, "push again");
  Send(Push(0, 1, 8));
  ExpectError(Send(Clip(1, {0.5})), absl::StatusCode::kAborted, "push again");
  // It becomes a backup and the primary again: its measurement is forgotten.
  Send(Push(1, 1, 8));
  core_->Step(AssignEvent{Generation(6), true, {}}, kNow);
  core_->Step(AssignEvent{Generation(7), false, {}}, kNow);
  config_.generation = Generation(7);
  ExpectError(Send(Clip(1, {0.5})), absl::StatusCode::kAborted, "push again");
  const PartitionEffects measured = Measure(1);
  ASSERT_EQ(measured.replies.size(), 2u);
  ExpectNorms(measured.replies[0], 1);
  EXPECT_EQ(Send(Clip(1, {0.5})).persists.size(), 1u);
}

TEST_F(PartitionCoreClipTest, FencesAndBadRequests) {
  Measure(1);
  Frame old = Clip(1, {0.5});
  old.generation = Generation(4);
  ExpectError(Send(old), absl::StatusCode::kFailedPrecondition, "fenced");
  old.generation = Generation(6);
  ExpectError(Send(old), absl::StatusCode::kUnavailable, "has not reached");
  ExpectError(Send(Clip(1, {})), absl::StatusCode::kInvalidArgument, "scalars: 0 bytes, expected 1 factors of 8");
  ExpectError(Send(Clip(1, {0.5, 0.5})), absl::StatusCode::kInvalidArgument, "scalars: 16 bytes");
  ExpectError(Send(Clip(1, {2})), absl::StatusCode::kInvalidArgument, "factor 2 is outside [0, 1]");
  ExpectError(Send(Clip(0, {0.5})), absl::StatusCode::kInvalidArgument, "sequence: 0");
  EXPECT_EQ(Send(Clip(1, {0.5})).persists.size(), 1u) << "bad requests changed nothing";
  config_.clip_scopes.pop_back();
  Start();
  ExpectError(Send(Clip(1, {0.5})), absl::StatusCode::kInvalidArgument,
              "no norm of job 3 partition 7 spans partitions");
}

TEST_F(PartitionCoreClipTest, WithoutSpanningNormsAPushAloneMakesTheUpdate) {
  config_.clip_scopes.pop_back();
  Start();
  EXPECT_TRUE(Send(Push(0, 1, 8)).replies.empty());
  const PartitionEffects e = Send(Push(1, 1, 8));
  ASSERT_EQ(e.persists.size(), 1u);
  EXPECT_FLOAT_EQ(e.persists[0].gradient.floats()[0], 16 * static_cast<float>(1 / std::sqrt(32.0)));
  EXPECT_TRUE(e.persists[0].entry.norms().empty());
  EXPECT_EQ(Persisted(1).replies.size(), 2u);
}

TEST_F(PartitionCoreClipTest, NaNGradientsBecomeNaNValuesAndNothingElse) {
  Send(Push(0, 1, 8));
  Frame bad = Push(1, 1, 8);
  bad.payload.mutable_floats()[16] = NAN;
  const PartitionEffects measured = Send(bad, kB);
  const auto records = DecodeNorms(measured.replies.at(0).frame.scalars).value();
  EXPECT_FALSE(records[0].squares.finite());
  Send(Clip(1, {ClipFactor(1, records[0].squares)}));
  Persisted(1);
  EXPECT_TRUE(std::isnan(Value(17)));
  EXPECT_FALSE(std::isnan(Value(0))) << "another norm";
}

// The set of gradients is fixed when NORMS goes out.
TEST_F(PartitionCoreClipTest, BackupReplicasComeTooLateForAMeasuredSum) {
  config_.replicas = 3;
  config_.backup_replicas = 1;
  Start();
  Send(Push(0, 1, 8));
  EXPECT_EQ(Send(Push(1, 1, 8), kB).replies.size(), 2u);
  ExpectNorms(Send(Push(2, 1, 1e30f), 13).replies.at(0), 1);
  Send(Clip(1, {1}), 13);
  Persisted(1);
  EXPECT_EQ(Value(16), 16 * 0.25f - 0.5f * 16 / 8);
}

// A restarted primary takes the gradients that come first, perhaps others than before: a factor from the first set's
// norms would clip the second set to another norm.
TEST_F(PartitionCoreClipTest, FactorsOfAnotherSetOfGradientsAreRefused) {
  config_.replicas = 3;
  config_.backup_replicas = 1;
  Start();
  Send(Push(0, 1, 8));
  ASSERT_EQ(Send(Push(1, 1, 8), kB).replies.size(), 2u);
  const Frame first = Clip(1, {ClipFactor(1, DecodeNorms(norms_).value()[0].squares)});
  Start();
  Send(Push(0, 1, 8));
  ASSERT_EQ(Send(Push(2, 1, 72), kB).replies.size(), 2u);
  ExpectError(Send(first), absl::StatusCode::kAborted, "the factors are of other norms");
  Frame unnamed = first;
  unnamed.norms_xxh3 = 0;
  ExpectError(Send(unnamed), absl::StatusCode::kAborted, "the factors are of other norms");
  ExpectNorms(Send(Push(0, 1, 8)).replies.at(0), 1, std::sqrt(8 * 100.0));  // pushed again: (8 + 72) / 8
  ASSERT_EQ(Send(Clip(1, {ClipFactor(1, DecodeNorms(norms_).value()[0].squares)})).persists.size(), 1u);
  Persisted(1);
  EXPECT_FLOAT_EQ(Value(16), 16 * 0.25f - 0.5f * static_cast<float>(1 / std::sqrt(8.0))) << "this share has norm 1";
}

TEST_F(PartitionCoreClipTest, StepsWithoutExamplesGoThroughBothPhases) {
  for (uint32_t r = 0; r < 2; ++r) Send(PushFrame(config_, r, 1, 1, Buffer(), 0));
  EXPECT_TRUE(core_->waiting() == 0);
  const PartitionEffects e = Send(Clip(1, {1}));
  ASSERT_EQ(e.persists.size(), 1u);
  EXPECT_EQ(e.persists[0].entry.examples(), 0u);
  EXPECT_EQ(Persisted(1).replies.size(), 1u);
}

TEST_F(PartitionCoreClipTest, RecordsOutliveTheProcessInLogAndImage) {
  auto store = NewMemoryKvStore();
  Persistence persistence(*store);
  v1::HostPartitions host;
  host.set_job_id(config_.job.value);
  ASSERT_TRUE(persistence.SetHostedJob(host).ok());
  Measure(1);
  PartitionEffects clipped = Send(Clip(1, {0.25}));
  ASSERT_TRUE(persistence.Append(config_, clipped.persists[0]).ok());
  const std::string norms = clipped.persists[0].entry.norms();
  clipped.persists.clear();
  Persisted(1);
  const Buffer values = Dense(core_->state()).values();

  PartitionState recovered = persistence.Recover(config_).value();
  EXPECT_EQ(recovered.norms, norms);
  EXPECT_TRUE(SameBits(Dense(recovered).values(), values));
  // Through an image, as a backup or a checkpoint receives it.
  const PartitionState copied = StateFrom(config_, MakeImage(config_, recovered, {.previous = true}));
  EXPECT_EQ(copied.norms, norms);
  core_ = std::make_unique<PartitionCore>(config_, std::move(recovered));
  EXPECT_EQ(Send(Push(0, 1, 8)).replies.at(0).frame.scalars, norms);
}

}  // namespace
}  // namespace cairn
