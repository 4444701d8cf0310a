// Goal: CENTRAL_STORAGE, message by message: the values of a layer are pulled when requested and dropped afterwards,
// replicas push one by one, a lost gradient is computed again, with sums made here and with sums made by the backend.
#include <cstring>

#include "tests/unit/worker/strategies_fixture.h"

namespace cairn {
namespace {

class CentralStorageTest : public StrategiesTest {
 protected:
  using StrategiesTest::StrategiesTest;
  void Begin(const std::vector<int>& own) {
    Feed(replica::Assign{Assignment(v1::CENTRAL_STORAGE, 2, own)});
    AnswerPulls(0);
  }
  void Want(uint64_t work, uint32_t begin, uint32_t end) { Feed(replica::WeightsWanted{work, begin, end}); }
};

TEST_F(CentralStorageTest, ValuesComeWhenWantedAndGoWhenDone) {
  Begin({0});
  EXPECT_TRUE(pulls.empty()) << "nothing before a layer wants it";
  const std::vector<replica::Compute> work = TakeComputes();
  ASSERT_EQ(work.size(), size_t{1});
  EXPECT_TRUE(work[0].by_layer);
  const uint64_t id = work[0].work;
  Want(id, 0, 1);
  ASSERT_EQ(pulls.size(), size_t{1});
  EXPECT_EQ(pulls[0].frame.want_version, 0u);
  AnswerPulls(0);
  EXPECT_EQ(here, (Places{{id, 0}}));
  EXPECT_EQ(work[0].values.floats()[0], 0);
  here.clear();
  Want(id, 0, 2);  // the next layer begins in the same partition
  ASSERT_EQ(pulls.size(), size_t{1}) << "partition 0 is here";
  EXPECT_EQ(here, (Places{{id, 0}}));
  AnswerPulls(0);
  Feed(replica::WeightsDone{id, 0, 1});
  Want(id, 0, 1);
  EXPECT_TRUE(pulls.empty()) << "still wanted by the second layer";
  Feed(replica::WeightsDone{id, 0, 1});
  Feed(replica::WeightsDone{id, 0, 2});
  here.clear();
  Want(id, 0, 1);
  Want(id, 0, 1);
  ASSERT_EQ(pulls.size(), size_t{1}) << "forgotten, pulled anew";
  AnswerPulls(0);
  EXPECT_EQ(here, (Places{{id, 0}, {id, 0}})) << "each wish is granted";
  Want(99, 0, 1);
  EXPECT_EQ(stopped, (std::vector<uint64_t>{99})) << "a work that nobody knows";
}

TEST_F(CentralStorageTest, ReplicasPushOneByOneAndTheStepEndsWithTheLastAnswer) {
  Begin({0, 1});
  std::vector<replica::Compute> work = TakeComputes();
  ASSERT_EQ(work.size(), size_t{2});
  Finish(std::move(work[0]), 1);
  std::vector<replica::Send> first = TakePushes();
  ASSERT_EQ(first.size(), size_t{kPartitions}) << "the first one's gradient does not wait";
  EXPECT_EQ(first[0].frame.replica_count, 1u);
  EXPECT_EQ(first[0].frame.payload.size(), kNumbers * sizeof(float));
  EXPECT_EQ(first[0].frame.reply_dtype, v1::DATA_TYPE_UNSPECIFIED) << "no values, please";
  Finish(std::move(work[1]), 2);
  std::vector<replica::Send> second = TakePushes();
  ASSERT_EQ(second.size(), size_t{kPartitions});
  EXPECT_EQ(second[1].frame.payload.floats()[0], 2);
  Answer(first[0], 1);
  Answer(second[0], 1);  // once is enough
  EXPECT_TRUE(TakeComputes().empty());
  Answer(second[1], 1);
  work = TakeComputes();
  ASSERT_EQ(work.size(), size_t{2});
  EXPECT_EQ(work[0].step, 1);
}

TEST_F(CentralStorageTest, ALostGradientIsComputedAgain) {
  Begin({0});
  std::vector<replica::Compute> work = TakeComputes();
  Finish(std::move(work[0]), 1);
  std::vector<replica::Send> sent = TakePushes();
  Answer(sent[0], 1);
  Feed(replica::Reply{sent[1].request, absl::UnavailableError("the stream broke")});
  EXPECT_TRUE(TakeComputes().empty()) << "after a pause";
  now_ += absl::Seconds(2);
  Feed(replica::Timer{});
  work = TakeComputes();
  ASSERT_EQ(work.size(), size_t{1});
  EXPECT_EQ(work[0].step, 0);
  Want(work[0].work, 0, 1);
  ASSERT_EQ(pulls.size(), size_t{1});
  EXPECT_EQ(pulls[0].frame.want_version, 0u) << "the values of before the update";
  Finish(std::move(work[0]), 1);
  sent = TakePushes();
  ASSERT_EQ(sent.size(), size_t{1}) << "what was answered is not sent again";
  EXPECT_EQ(sent[0].frame.partition.value, 1u);
  Answer(sent[0], 1);
  EXPECT_EQ(TakeComputes().at(0).step, 1);
}

// A slot may begin work after it was told to stop it: it learns this when it asks for values. Otherwise it would wait
// for values of a step that is over.
TEST_F(CentralStorageTest, AWorkWhoseReplicaIsGoneIsStoppedWheneverItBegins) {
  Begin({0, 1});
  const std::vector<replica::Compute> work = TakeComputes();
  ASSERT_EQ(work.size(), size_t{2});
  v1::AssignReplicas without = Assignment(v1::CENTRAL_STORAGE, 2, {0});
  without.set_assignment(2);
  Feed(replica::Assign{without});
  EXPECT_EQ(stopped, (std::vector<uint64_t>{work[1].work}));
  stopped.clear();
  Want(work[1].work, 0, 1);
  EXPECT_EQ(stopped, (std::vector<uint64_t>{work[1].work}));
  EXPECT_TRUE(pulls.empty());
  Feed(replica::WeightsDone{work[1].work, 0, 1});
  Feed(replica::Computed{work[1].work, absl::CancelledError("stopped")});
  EXPECT_EQ(failure, "");
  Want(work[0].work, 0, 1);
  EXPECT_EQ(pulls.size(), size_t{1}) << "the other one goes on";
}

TEST_F(CentralStorageTest, AJobThatWentOnIsFoundAgain) {
  Begin({0});
  const std::vector<replica::Compute> work = TakeComputes();
  Want(work[0].work, 0, 1);
  Feed(replica::Reply{pulls[0].request, absl::FailedPreconditionError("want_version 0 is gone")});
  EXPECT_EQ(stopped, (std::vector<uint64_t>{work[0].work}));
  pulls.clear();
  Feed(replica::Computed{work[0].work, absl::CancelledError("stopped")});
  EXPECT_EQ(failure, "");
  now_ += absl::Seconds(2);
  Feed(replica::Timer{});
  ASSERT_EQ(pulls.size(), size_t{kPartitions});
  const std::vector<replica::Send> found = std::exchange(pulls, {});
  Answer(found[0], 2);
  Answer(found[1], 3);
  EXPECT_EQ(TakeComputes().at(0).step, 2) << "the version that all have, or had";
}

// A replica without examples in the step may still be validating when all partitions have made the update: the step
// waits for it, and goes on.
TEST_F(CentralStorageTest, AStepEndsWithItsLastValidation) {
  v1::AssignReplicas assignment = Assignment(v1::CENTRAL_STORAGE, 2, {0, 1});
  assignment.mutable_spec()->set_validation_freq_steps(3);
  assignment.mutable_data()->set_validation_examples(8);
  assignment.mutable_data()->set_train_examples(25);  // the last step has one
  Feed(replica::Assign{assignment});
  AnswerPulls(3);
  ASSERT_EQ(evaluations.size(), size_t{2});
  EndEvaluation(evaluations[0]);
  Finish(TakeComputes().at(0), 1);
  for (const replica::Send& push : TakePushes()) Answer(push, 4);  // another worker had pushed replica 1's
  EXPECT_EQ(core_.step(), 3) << "replica 1 has not validated";
  EndEvaluation(evaluations[1]);
  ASSERT_EQ(evaluations.size(), size_t{4}) << "all steps are done: the epoch's validation";
  EXPECT_EQ(core_.step(), 3) << "the last step is over with it";
  EndEvaluation(evaluations[2]);
  EndEvaluation(evaluations[3]);
  EXPECT_EQ(core_.step(), 4);
  now_ += absl::Seconds(1);
  Feed(replica::Timer{});
  EXPECT_EQ(Validated(0, 3), 4u);
  EXPECT_EQ(Validated(1, 3), 4u);
}

// ---- gradients that the node rounds ----

class RoundedCentralStorageTest : public CentralStorageTest {
 protected:
  RoundedCentralStorageTest() : CentralStorageTest(Joining()) {}
  void BeginRounded(const std::vector<int>& own) {
    v1::AssignReplicas assignment = Assignment(v1::CENTRAL_STORAGE, 2, own);
    assignment.mutable_spec()->set_wire_dtype(v1::BFLOAT16);
    Feed(replica::Assign{assignment});
    AnswerPulls(0);
  }
  // `bits` in each place of the partition.
  void Sum(const replica::Compute& compute, uint32_t partition, uint16_t bits) {
    Buffer into = compute.joint->gradient;
    for (uint64_t i = partition * kNumbers; i < (partition + 1) * kNumbers; ++i)
      std::memcpy(into.mutable_data() + 2 * i, &bits, 2);
    Feed(replica::GradientSummed{compute.joint->number, partition, partition + 1});
  }
  static uint16_t BitsOf(const replica::Send& push) {
    uint16_t bits;
    std::memcpy(&bits, push.frame.payload.data() + 2 * (kNumbers - 1), 2);
    return bits;
  }
};

TEST_F(RoundedCentralStorageTest, EachReplicasGradientLeavesAsItIsRounded) {
  BeginRounded({0, 1});
  const std::vector<replica::Compute> work = TakeComputes();
  ASSERT_EQ(work.size(), size_t{2});
  for (size_t r = 0; r < 2; ++r) {
    ASSERT_NE(work[r].joint, nullptr);
    EXPECT_EQ(work[r].joint->node, (TreeNode{static_cast<uint32_t>(r), 1}));
    EXPECT_EQ(work[r].joint->type, v1::BFLOAT16);
    EXPECT_TRUE(work[r].by_layer);
    EXPECT_TRUE(work[r].gradient.empty());
  }
  Sum(work[1], 1, 0x4040);
  std::vector<replica::Send> sent = TakePushes();
  ASSERT_EQ(sent.size(), size_t{1}) << "before the other partition, and the other replica";
  EXPECT_EQ(sent[0].frame.replica_first.value, 1);
  EXPECT_EQ(sent[0].frame.partition.value, 1u);
  EXPECT_EQ(sent[0].frame.dtype, v1::BFLOAT16);
  EXPECT_EQ(sent[0].frame.payload.size(), kNumbers * 2);
  EXPECT_EQ(BitsOf(sent[0]), 0x4040);
  EXPECT_NE(sent[0].frame.payload.data(), work[1].joint->gradient.data() + 2 * kNumbers)
      << "a copy: the gradient's memory goes";
}

TEST_F(RoundedCentralStorageTest, WhatIsLostIsComputedAgainAndRoundedHere) {
  BeginRounded({0});
  replica::Compute work = TakeComputes().at(0);
  Sum(work, 0, 0x4040);
  Sum(work, 1, 0x4040);
  Feed(replica::Computed{work.work, BatchSums{4, 1, {}}});
  const std::vector<replica::Send> sent = TakePushes();
  ASSERT_EQ(sent.size(), size_t{2});
  Answer(sent[0], 1);
  Feed(replica::Reply{sent[1].request, absl::UnavailableError("the stream broke")});
  now_ += absl::Seconds(2);
  Feed(replica::Timer{});
  replica::Compute again = TakeComputes().at(0);
  EXPECT_EQ(again.step, 0);
  EXPECT_EQ(again.joint, nullptr) << "its sum was told";
  Feed(replica::GradientSummed{work.joint->number, 1, 2});
  EXPECT_TRUE(TakePushes().empty()) << "of the first pass";
  Finish(std::move(again), 3);
  const std::vector<replica::Send> resent = TakePushes();
  ASSERT_EQ(resent.size(), size_t{1});
  EXPECT_EQ(resent[0].frame.payload.size(), kNumbers * 2);
  EXPECT_EQ(BitsOf(resent[0]), 0x4040) << "3 as bfloat16";
  Answer(resent[0], 1);
  const replica::Compute next = TakeComputes().at(0);
  EXPECT_EQ(next.step, 1);
  EXPECT_NE(next.joint, nullptr);
}

}  // namespace
}  // namespace cairn
