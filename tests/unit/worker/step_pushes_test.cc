// Goal: StepPushes pushes a subtree when all its replicas' gradients are final, once to a partition, keeps what a new
// assignment does not change, and tells an update, an old answer, an error and a job that went on apart.
#include "worker/core/step_pushes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/core_parts.h"

namespace cairn::replica {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using State = OwnReplica::State;

class StepPushesTest : public CorePartsTest, protected PushRules {
 protected:
  StepPushesTest() {
    step_.number = 1;
    step_.values = Buffer::Zeros(context_.job.space_bytes);
    Assign({0, 1, 2});
    pushes_.Begin();
    for (OwnReplica& own : replicas_) replicas_.Begin(own);
    pushes_.Build();
    Take<Compute>();
  }

  // ---- the rules of a mode that keeps gradients and pushes whole subtrees ----
  std::vector<TreeNode> NodesOf(const std::vector<uint32_t>& held) const override { return MaximalNodes(held, 4); }
  Frame MakePush(StepPush& push, uint32_t partition) override {
    OwnReplica& first = replicas_[push.own_begin];
    first.touched = true;
    return context_.frames.MakePush(partition, push.node, step_.number, push.examples, first.gradient,
                                    /*packed=*/false);
  }
  void OnPushed(OwnReplica& /*own*/, uint32_t begin, uint32_t end) override { final_.emplace_back(begin, end); }
  absl::Status CheckAnswer(const Frame& frame, uint32_t partition) const override {
    return context_.frames.CheckValues(frame, partition);
  }
  void OnPushFailed(StepPush& push, uint32_t partition, const absl::Status& status) override {
    context_.requests.Retry(push.requests[partition], partition, status);
  }
  void OnSumLost(uint32_t partition) override { lost_.push_back(partition); }

  void Assign(std::vector<int32_t> replicas) {
    context_.assignment.replicas = std::move(replicas);
    for (OwnReplica& gone : replicas_.Assign()) replicas_.Release(gone);
  }
  // The gradients of the replica in all partitions; computed: with its figures.
  void Finish(size_t place, bool computed = true) {
    OwnReplica& own = replicas_[place];
    own.ready.assign(kPartitions, 1);
    pushes_.PushFinal(own, 0, kPartitions);
    if (!computed) return;
    own.state = State::kComputed;
    pushes_.PushFinal(own, kFiguresPartition, kFiguresPartition + 1);
  }
  // All own replicas'; what was sent.
  std::vector<Send> FinishAll() {
    for (size_t i = 0; i < replicas_.size(); ++i) Finish(i);
    return Take<Send>();
  }
  StepPushes::Answer Answer(const Send& send, absl::StatusOr<Frame> frame) {
    Reply reply{send.request, std::move(frame)};
    return pushes_.OnReply(NameOf(send.request), reply);
  }
  // (first replica, partition) of each.
  static std::vector<std::pair<int32_t, uint32_t>> Places(const std::vector<Send>& sent) {
    std::vector<std::pair<int32_t, uint32_t>> places;
    for (const Send& send : sent) places.emplace_back(send.frame.replica_first.value, send.frame.partition.value);
    return places;
  }

  RunningStep step_;
  OwnReplicas replicas_{context_, step_, /*by_layer=*/false};
  StepPushes pushes_{context_, step_, replicas_, *this, /*by_layer=*/false};
  std::vector<std::pair<uint32_t, uint32_t>> final_;
  std::vector<uint32_t> lost_;
};

TEST_F(StepPushesTest, ASubtreeGoesOutWhenAllItsReplicasAreReadyTheFiguresLast) {
  ASSERT_THAT(pushes_.all(), SizeIs(2));  // {0, 1} and {2}
  Finish(0);
  EXPECT_THAT(Take<Send>(), IsEmpty());
  Finish(1, /*computed=*/false);
  const std::vector<Send> without_figures = Take<Send>();
  EXPECT_THAT(Places(without_figures), ElementsAre(Pair(0, 1), Pair(0, 2)));
  EXPECT_EQ(without_figures[0].frame.replica_count, 2u);
  EXPECT_EQ(without_figures[0].frame.sequence, 2u);
  EXPECT_EQ(without_figures[0].frame.examples, 4u);
  EXPECT_THAT(without_figures[0].frame.figures, IsEmpty());
  Finish(1);
  const std::vector<Send> figures = Take<Send>();
  EXPECT_THAT(Places(figures), ElementsAre(Pair(0, 0)));
  v1::EpochFigures sums;
  ASSERT_TRUE(sums.ParseFromString(figures[0].frame.figures));
  EXPECT_EQ(sums.replica_steps(), 2u);
  EXPECT_THAT(final_, ElementsAre(Pair(1u, 3u), Pair(0u, 1u), Pair(1u, 3u), Pair(1u, 3u), Pair(0u, 1u)));
}

// A push names a place among the own replicas, which may be fewer from now on.
TEST_F(StepPushesTest, WhereACallbackEndsTheJobBeforeTheStepPushesAreOfOwnReplicasAlone) {
  ASSERT_THAT(pushes_.all(), SizeIs(2));
  context_.schedule.plan.total_steps = step_.number;
  Assign({2});
  pushes_.Build();
  ASSERT_THAT(pushes_.all(), SizeIs(1));
  EXPECT_EQ(pushes_.all()[0].own_begin, 0u);
  EXPECT_EQ(pushes_.all()[0].node.first, 2u);
  EXPECT_THAT(Take<Send>(), IsEmpty());
}

TEST_F(StepPushesTest, ThePartitionIsDoneByTheFirstAnswerThatShowsTheUpdate) {
  const std::vector<Send> sent = FinishAll();
  ASSERT_THAT(sent, SizeIs(6));
  EXPECT_EQ(Answer(sent[0], Values(sent[0].frame.partition.value, 2)), StepPushes::Answer::kUpdated);
  EXPECT_EQ(Answer(sent[0], Values(sent[0].frame.partition.value, 2)), StepPushes::Answer::kIgnored);
  EXPECT_FALSE(pushes_.AllDone());
  size_t updates = 1;
  for (const Send& send : sent) {
    updates += Answer(send, Values(send.frame.partition.value, 2)) == StepPushes::Answer::kUpdated ? 1 : 0;
  }
  EXPECT_EQ(updates, kPartitions) << "the second push of each was not wanted any more";
  EXPECT_TRUE(pushes_.AllDone());
  pushes_.SendAllReady();
  EXPECT_THAT(Take<Send>(), IsEmpty());
}

TEST_F(StepPushesTest, AnswersThatDoNotFitAreTriedAgain) {
  const std::vector<Send> sent = FinishAll();
  const uint32_t partition = sent[0].frame.partition.value;
  EXPECT_EQ(Answer(sent[0], Values(partition, 1)), StepPushes::Answer::kIgnored) << "values from before the push";
  EXPECT_EQ(Answer(sent[1], absl::UnavailableError("away")), StepPushes::Answer::kIgnored);
  Frame small = Values(sent[2].frame.partition.value, 2);
  small.payload = Buffer::Zeros(8);
  EXPECT_EQ(Answer(sent[2], small), StepPushes::Answer::kIgnored);
  EXPECT_EQ(Answer(sent[3], Values(sent[3].frame.partition.value + 1, 2)), StepPushes::Answer::kIgnored);
  EXPECT_THAT(Take<Send>(), IsEmpty());
  Advance(context_.options.retry_max);
  pushes_.ResendDue();
  EXPECT_THAT(Take<Send>(), SizeIs(4));
  Reply reply{1, Values(0, 2)};
  EXPECT_EQ(pushes_.OnReply({/*owner=*/4, /*partition=*/0}, reply), StepPushes::Answer::kIgnored) << "no push of ours";
}

TEST_F(StepPushesTest, InvalidArgumentFailsTheJob) {
  const std::vector<Send> sent = FinishAll();
  Answer(sent[0], absl::InvalidArgumentError("no such partition"));
  const std::vector<Fail> fails = Take<Fail>();
  ASSERT_THAT(fails, SizeIs(1));
  EXPECT_THAT(fails[0].message, HasSubstr("no such partition"));
}

TEST_F(StepPushesTest, TheJobMayHaveGoneOnOrBack) {
  const std::vector<Send> sent = FinishAll();
  EXPECT_EQ(Answer(sent[0], Values(sent[0].frame.partition.value, 3)), StepPushes::Answer::kBeyond);
  EXPECT_EQ(Answer(sent[1], absl::OutOfRangeError("version 0")), StepPushes::Answer::kGone);
}

TEST_F(StepPushesTest, PartitionsThatNameDifferentLossScalesFailTheJob) {
  context_.job.has_loss_scale = true;
  const std::vector<Send> sent = FinishAll();
  Frame first = Values(sent[0].frame.partition.value, 2);
  first.loss_scale = 16;
  EXPECT_EQ(Answer(sent[0], first), StepPushes::Answer::kUpdated);
  EXPECT_EQ(pushes_.next_loss_scale(), 16);
  Frame second = Values(sent[1].frame.partition.value, 2);
  second.loss_scale = 8;
  EXPECT_EQ(Answer(sent[1], second), StepPushes::Answer::kIgnored);
  const std::vector<Fail> fails = Take<Fail>();
  ASSERT_THAT(fails, SizeIs(1));
  EXPECT_THAT(fails[0].message, HasSubstr("the partitions differ in the loss scale after step 1"));
}

TEST_F(StepPushesTest, AnotherSubtreeKeepsWhatWasSentAndComputesUsedGradientsAgain) {
  ASSERT_THAT(FinishAll(), SizeIs(6));
  Assign({0, 2});
  pushes_.Build();
  // {2} is as it was; the gradient of 0 was the sum with 1's.
  const std::vector<Compute> computes = Take<Compute>();
  ASSERT_THAT(computes, SizeIs(1));
  EXPECT_EQ(computes[0].replica, ReplicaId(0));
  EXPECT_EQ(replicas_[0].state, State::kComputing);
  EXPECT_EQ(pushes_.all()[0].examples, 2u);
  EXPECT_EQ(pushes_.all()[1].requests[0].state, Request::State::kSent);
  Finish(0);
  EXPECT_THAT(Places(Take<Send>()), ElementsAre(Pair(0, 1), Pair(0, 2), Pair(0, 0)));
}

TEST_F(StepPushesTest, AfterAMoveTheSamePushesGoToTheNewAddress) {
  const std::vector<Send> sent = FinishAll();
  context_.assignment.parts[1].address = "ps-9";
  pushes_.ResendPushes({0, 1, 0}, /*raised=*/true);
  const std::vector<Send> again = Take<Send>();
  ASSERT_THAT(again, SizeIs(2));
  for (const Send& send : again) EXPECT_EQ(send.address, "ps-9");
  for (const Send& send : sent) {
    if (send.frame.partition.value != 1) continue;
    EXPECT_EQ(Answer(send, Values(1, 2)), StepPushes::Answer::kIgnored) << "of the former address";
  }
}

TEST_F(StepPushesTest, ForgetMovedTakesBackWhatIsUnderWayThere) {
  FinishAll();
  EXPECT_FALSE(pushes_.ForgetMoved(pushes_.all()[1], {0, 0, 0}));
  EXPECT_TRUE(pushes_.ForgetMoved(pushes_.all()[1], {0, 0, 1}));
  EXPECT_FALSE(pushes_.ForgetMoved(pushes_.all()[1], {0, 0, 1}));
  EXPECT_EQ(pushes_.all()[1].requests[2].state, Request::State::kIdle);
  EXPECT_EQ(pushes_.all()[0].requests[2].state, Request::State::kSent);
}

// ---- clipping ----

class ClippedPushesTest : public StepPushesTest {
 protected:
  ClippedPushesTest() { context_.job.spec.mutable_optimizer()->set_global_clipnorm(1); }

  static Frame Norms(uint32_t partition) {
    NormRecord record;
    record.scope = 1;
    record.numbers = kNumbers;
    record.total = kPartitions * kNumbers;
    Frame frame;
    frame.kind = v1::ExchangeFrame::NORMS;
    frame.partition = PartitionId(partition);
    frame.sequence = 2;
    frame.scalars = EncodeNorms({record});
    return frame;
  }
  // Every push is answered by norms; the CLIPs.
  std::vector<Send> AnswerNorms() {
    for (const Send& send : FinishAll()) {
      EXPECT_EQ(Answer(send, Norms(send.frame.partition.value)), StepPushes::Answer::kIgnored);
    }
    return Take<Send>();
  }
};

TEST_F(ClippedPushesTest, NormsOfAllPartitionsSendTheClipsAndTheirAnswersAreTheUpdate) {
  const std::vector<Send> clips = AnswerNorms();
  ASSERT_THAT(clips, SizeIs(kPartitions));
  for (const Send& clip : clips) {
    EXPECT_EQ(clip.frame.kind, v1::ExchangeFrame::CLIP);
    EXPECT_EQ(Answer(clip, Values(clip.frame.partition.value, 2)), StepPushes::Answer::kUpdated);
  }
  EXPECT_TRUE(pushes_.AllDone());
}

TEST_F(ClippedPushesTest, APartitionThatToldItsNormsIsNotPushedToAgain) {
  AnswerNorms();
  pushes_.SendAllReady();
  EXPECT_THAT(Take<Send>(), IsEmpty());
}

TEST_F(ClippedPushesTest, ASumThatIsLostIsTheRulesToBringBack) {
  const std::vector<Send> clips = AnswerNorms();
  EXPECT_EQ(Answer(clips[1], absl::AbortedError("another sum")), StepPushes::Answer::kIgnored);
  EXPECT_THAT(lost_, ElementsAre(1));
  pushes_.SendReady(1);
  EXPECT_THAT(Places(Take<Send>()), ElementsAre(Pair(0, 1), Pair(2, 1)));
  pushes_.ResendClips({0, 0, 1}, /*raised=*/true);
  EXPECT_THAT(lost_, ElementsAre(1, 2)) << "it was at the former primary";
}

TEST_F(ClippedPushesTest, NormsThatCannotBeReadAreAskedForAgain) {
  const std::vector<Send> sent = FinishAll();
  Frame bad = Norms(sent[0].frame.partition.value);
  bad.scalars = "7 bytes";
  EXPECT_EQ(Answer(sent[0], bad), StepPushes::Answer::kIgnored);
  Frame old = Norms(sent[1].frame.partition.value);
  old.sequence = 1;
  EXPECT_EQ(Answer(sent[1], old), StepPushes::Answer::kIgnored);
  Advance(context_.options.retry_max);
  pushes_.ResendDue();
  EXPECT_THAT(Take<Send>(), SizeIs(2));
}

}  // namespace
}  // namespace cairn::replica
