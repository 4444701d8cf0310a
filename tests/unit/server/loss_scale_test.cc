// Goal: a step whose gradient is not finite changes only version and loss scale, in the same way at the primary, at its
// backup, in the log and in an image. A push with another scale than the step's belongs to a history that was given up.
// What a peer sends of it is checked.
#include <cmath>

#include "tests/unit/server/replication_test_util.h"

namespace cairn {
namespace {

using testing::HasSubstr;

PartitionConfig Scaled(UpdateMode mode, bool spans, bool backup = false) {
  PartitionConfig c = TestConfig(mode, 1);
  v1::Optimizer optimizer;
  optimizer.mutable_adam();
  optimizer.mutable_ema()->set_momentum(0.5f);
  Dense(c).optimizer = OptimizerRule::From(optimizer);
  c.durability = v1::LOGGED_AND_REPLICATED;
  c.backup = backup;
  c.loss_scale = LossScaleRule{8, 2};
  if (mode == UpdateMode::kSynchronous)
    c.clip_scopes = {{kFiniteScope, 32, spans ? uint64_t{96} : uint64_t{32}, {{0, 32}}}};
  return c;
}

class LossScaleTest : public testing::Test {
 protected:
  void Start(UpdateMode mode, bool spans) {
    primary_ = std::make_unique<Copy>(Scaled(mode, spans), PrimaryOf(5, false));
    backup_ = std::make_unique<Copy>(Scaled(mode, spans, true), AssignEvent{Generation(5), true, {}});
    primary_->Run(LinkUpEvent{"b:1", 1});
    Pass(primary_->Run(SendImageEvent{}));
  }
  void Pass(const PartitionEffects& e) {
    for (const PeerSend& send : e.sends) {
      for (Frame f : send.frames) {
        f.payload = Buffer::CopyOf(f.payload.data(), f.payload.size());
        for (const PartitionReply& r : backup_->Run(FrameEvent{7, std::move(f)}).replies) {
          for (const PartitionReply& done : primary_->Run(PeerFrameEvent{"b:1", 1, r.frame}).replies)
            replies_.push_back(done.frame);
        }
      }
    }
    for (const PartitionReply& r : e.replies) replies_.push_back(r.frame);
  }
  Frame Push(uint64_t sequence, float gradient, float scale) {
    Frame f = PushFrame(primary_->core.config(), 0, 1, sequence, gradient);
    f.loss_scale = scale;
    return f;
  }
  Frame Clip(uint64_t sequence, double factor) {
    Frame f = PullFrame(primary_->core.config(), 77);
    f.kind = v1::ExchangeFrame::CLIP;
    f.generation = primary_->core.config().generation;
    f.sequence = sequence;
    f.scalars = EncodeFactors(std::vector<double>{factor});
    f.norms_xxh3 = HashOfNorms(norms_);
    return f;
  }
  // Returns the last answer.
  Frame Send(Frame frame) {
    replies_.clear();
    Pass(primary_->Run(FrameEvent{1, std::move(frame)}));
    if (replies_.empty()) return {};
    if (replies_.back().kind == v1::ExchangeFrame::NORMS) norms_ = replies_.back().scalars;
    return replies_.back();
  }
  void ExpectError(const Frame& answer, absl::StatusCode code, const std::string& part) {
    EXPECT_EQ(answer.status.code(), code) << answer.status;
    EXPECT_THAT(std::string(answer.status.message()), HasSubstr(part));
  }
  const PartitionState& state() const { return primary_->core.state(); }
  // The backup, what either copy recovers, and an image are equal to the primary.
  void ExpectAllTheSame() {
    const PartitionConfig& config = primary_->core.config();
    const PartitionState recovered = primary_->persistence.Recover(config).value();
    const PartitionState followed = backup_->persistence.Recover(backup_->core.config()).value();
    const PartitionState copied = StateFrom(config, MakeImage(config, state(), {.previous = true}));
    for (const PartitionState* other : {&backup_->core.state(), &recovered, &followed, &copied}) {
      EXPECT_EQ(other->version, state().version);
      EXPECT_EQ(other->loss_scale, state().loss_scale);
      EXPECT_EQ(other->previous_loss_scale, state().previous_loss_scale);
      EXPECT_TRUE(SameBits(Dense(*other).values(), Dense(state()).values()));
      for (size_t s = 0; s < 3; ++s) EXPECT_TRUE(SameBits(Dense(*other).slots()[s], Dense(state()).slots()[s])) << s;
    }
  }

  std::unique_ptr<Copy> primary_, backup_;
  std::vector<Frame> replies_;
  std::string norms_;
};

TEST_F(LossScaleTest, OnePartitionDecidesAtOnce) {
  Start(UpdateMode::kSynchronous, false);
  EXPECT_EQ(Send(Push(1, 1, 8)).loss_scale, 8);
  const DenseContents before = Dense(state());
  Frame bad = Push(2, 1, 8);
  bad.payload.mutable_floats()[9] = INFINITY;
  const Frame answer = Send(bad);
  EXPECT_EQ(answer.version, 2u);
  EXPECT_EQ(answer.loss_scale, 4);
  EXPECT_TRUE(SameBits(Dense(state()).values(), before.values()));
  for (size_t s = 0; s < 3; ++s) EXPECT_TRUE(SameBits(Dense(state()).slots()[s], before.slots()[s]));
  EXPECT_EQ(state().loss_scale, (LossScale{4, 0, 1}));
  // The version before has its own scale.
  Frame pull = PullFrame(primary_->core.config(), 3);
  pull.want_version = 1;
  EXPECT_EQ(Send(pull).loss_scale, 8);
  ExpectAllTheSame();
}

TEST_F(LossScaleTest, AnUpdateThatIsLeftOutIsNoStepOfTheOptimizer) {
  Start(UpdateMode::kSynchronous, false);
  Send(Push(1, NAN, 8));
  Send(Push(2, 1, 4));
  const Buffer after = Dense(state()).values();
  Start(UpdateMode::kSynchronous, false);
  Send(Push(1, 1, 8));
  EXPECT_TRUE(SameBits(Dense(state()).values(), after)) << "Adam corrects its first moments as in the first step";
}

TEST_F(LossScaleTest, ManyPartitionsLeaveAStepOutTogether) {
  Start(UpdateMode::kSynchronous, true);
  const Buffer initial = Dense(state()).values();
  // Finite here, not elsewhere.
  EXPECT_EQ(Send(Push(1, 1, 8)).kind, v1::ExchangeFrame::NORMS);
  EXPECT_EQ(DecodeNorms(norms_).value().at(0).total, 96u);
  EXPECT_EQ(Send(Clip(1, 0)).loss_scale, 4);
  EXPECT_TRUE(SameBits(Dense(state()).values(), initial));
  ExpectAllTheSame();
  // Not finite here: no factor but 0 is right.
  Send(Push(2, NAN, 4));
  ExpectError(Send(Clip(2, 1)), absl::StatusCode::kInvalidArgument, "that of job 3 partition 7 is not: send 0");
  ExpectError(Send(Clip(2, 0.5)), absl::StatusCode::kInvalidArgument, "scalars: factor 0.5");
  EXPECT_EQ(Send(Clip(2, 0)).loss_scale, 2);
  EXPECT_EQ(Send(Clip(1, 1)).version, 2u) << "an old one is answered";
  for (uint64_t sequence : {3, 4}) {
    Send(Push(sequence, 1, 2));
    EXPECT_EQ(Send(Clip(sequence, 1)).loss_scale, sequence == 3 ? 2 : 4);
  }
  EXPECT_FALSE(SameBits(Dense(state()).values(), initial));
  EXPECT_EQ(state().loss_scale, (LossScale{4, 0, 2}));
  ExpectAllTheSame();
}

TEST_F(LossScaleTest, APushOfAnotherHistoryIsSentBack) {
  Start(UpdateMode::kSynchronous, false);
  ExpectError(Send(Push(1, 1, 4)), absl::StatusCode::kOutOfRange,
              "loss_scale: 4, but job 3 partition 7 is at 8; pull its values");
  EXPECT_EQ(Send(Push(1, 1, 8)).version, 1u);
  EXPECT_EQ(Send(Push(1, 1, 2)).version, 1u) << "a repetition, of whatever";
}

TEST_F(LossScaleTest, AnAsynchronousPushSaysThatItIsLeftOut) {
  Start(UpdateMode::kAsynchronous, false);
  const Buffer initial = Dense(state()).values();
  Frame out = Push(1, 1, 8);
  out.not_finite = true;
  ExpectError(Send(out), absl::StatusCode::kInvalidArgument, "not_finite: the gradient is left out; send examples = 0");
  out.examples = 0;
  out.payload = Buffer();
  EXPECT_EQ(Send(out).loss_scale, 4);
  EXPECT_TRUE(SameBits(Dense(state()).values(), initial));
  Frame empty = out;  // a replica whose share of a short batch is empty has no scale
  empty.not_finite = false;
  empty.sequence = 2;
  Send(empty);
  EXPECT_EQ(state().loss_scale, (LossScale{4, 0, 1}));
  EXPECT_EQ(Send(Push(3, 1, 4)).loss_scale, 4);
  EXPECT_EQ(Send(Push(4, 1, 4)).loss_scale, 8);
  EXPECT_FALSE(SameBits(Dense(state()).values(), initial));
  ExpectAllTheSame();
}

TEST_F(LossScaleTest, BadRequests) {
  Start(UpdateMode::kSynchronous, false);
  for (const float scale : {0.0f, 0.5f, 3e7f, -8.0f, NAN}) {
    ExpectError(Send(Push(1, 1, scale)), absl::StatusCode::kInvalidArgument,
                "but the job computes in FLOAT16; say the scale");
  }
  Frame out = Push(1, 1, 8);
  out.not_finite = true;
  ExpectError(Send(out), absl::StatusCode::kInvalidArgument,
              "not_finite: a synchronous job pushes its gradients as they are");
  EXPECT_EQ(state().version, 0u);
  Copy plain(TestConfig(UpdateMode::kSynchronous, 1), AssignEvent{Generation(5), false, {}});
  Frame scaled = PushFrame(plain.core.config(), 0, 1, 1, 1);
  scaled.loss_scale = 8;
  ExpectError(plain.Run(FrameEvent{1, scaled}).replies.at(0).frame, absl::StatusCode::kInvalidArgument,
              "loss_scale: 8, but the job has none");
  // Received from a primary, or read from a log.
  const PartitionConfig& config = primary_->core.config();
  v1::LogEntry entry;
  entry.set_version(1);
  entry.set_sequence(1);
  entry.set_replica_count(1);
  EXPECT_TRUE(absl::IsDataLoss(CheckEntry(config, state(), entry, 0))) << "no scale";
  entry.set_loss_scale(8);
  EXPECT_TRUE(CheckEntry(config, state(), entry, 0).ok());
  EXPECT_TRUE(absl::IsDataLoss(CheckEntry(plain.core.config(), plain.core.state(), entry, 0)));
  entry.set_not_finite(true);
  entry.set_examples(4);
  EXPECT_TRUE(absl::IsDataLoss(CheckEntry(config, state(), entry, static_cast<size_t>(config.size()) * sizeof(float))));
}

}  // namespace
}  // namespace cairn
