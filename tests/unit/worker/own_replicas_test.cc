// Goal: OwnReplicas follows an assignment without losing the work of replicas that stay, begins a step as the replica's
// share, the epoch's gate and the validation say, and finds work by its present number only.
#include "worker/core/own_replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/core_parts.h"

namespace cairn::replica {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using State = OwnReplica::State;

class OwnReplicasTest : public CorePartsTest {
 protected:
  OwnReplicasTest() { step_.values = Buffer::Zeros(context_.job.space_bytes); }

  std::vector<OwnReplica> Assign(std::vector<int32_t> replicas) {
    context_.assignment.replicas = std::move(replicas);
    return replicas_.Assign();
  }

  RunningStep step_;
  OwnReplicas replicas_{context_, step_, /*by_layer=*/false};
};

TEST_F(OwnReplicasTest, ThoseThatStayGoOnWithTheirWork) {
  EXPECT_THAT(Assign({1, 2}), IsEmpty());
  EXPECT_THAT(replicas_.Numbers(), ElementsAre(1, 2));
  for (OwnReplica& own : replicas_) replicas_.Begin(own);
  const uint64_t work = replicas_[1].work;
  const uint64_t gone = replicas_[0].work;
  const std::vector<OwnReplica> left = Assign({0, 2, 3});
  ASSERT_THAT(left, SizeIs(1));
  EXPECT_EQ(left[0].id, ReplicaId(1));
  EXPECT_THAT(replicas_.Numbers(), ElementsAre(0, 2, 3));
  ASSERT_NE(replicas_.Find(work), nullptr);
  EXPECT_EQ(replicas_.PlaceOf(*replicas_.Find(work)), 1u);
  EXPECT_EQ(replicas_.Find(gone), nullptr);
  EXPECT_EQ(replicas_[0].state, State::kIdle);
  EXPECT_THAT(Assign({}), SizeIs(3));
  EXPECT_TRUE(replicas_.empty());
}

TEST_F(OwnReplicasTest, AStepBeginsWithAComputeIntoABufferOfItsOwn) {
  step_.loss_scale = 4;
  Assign({0, 1});
  for (OwnReplica& own : replicas_) replicas_.Begin(own);
  EXPECT_TRUE(replicas_.AnyAtWork());
  const auto computes = Take<Compute>();
  ASSERT_THAT(computes, SizeIs(2));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(computes[i].work, replicas_[i].work);
    EXPECT_EQ(computes[i].replica, replicas_[i].id);
    EXPECT_EQ(computes[i].gradient.data(), replicas_[i].gradient.data());
    EXPECT_EQ(computes[i].values.data(), step_.values.data());
    EXPECT_EQ(computes[i].loss_scale, 4);
    EXPECT_EQ(replicas_[i].examples, 2u);
    EXPECT_THAT(replicas_[i].ready, ElementsAre(0, 0, 0));
  }
  EXPECT_NE(computes[0].gradient.data(), computes[1].gradient.data());
}

TEST_F(OwnReplicasTest, WithoutExamplesThereIsNothingToCompute) {
  context_.schedule.plan = StepPlan::Make(/*examples=*/2, /*batch_size=*/2, /*replicas=*/4, 0, /*epochs=*/2);
  Assign({0, 3});
  for (OwnReplica& own : replicas_) replicas_.Begin(own);
  const size_t without = replicas_[0].examples == 0 ? 0 : 1;
  EXPECT_THAT(Take<Compute>(), SizeIs(1));
  EXPECT_EQ(replicas_[without].state, State::kComputed);
  EXPECT_THAT(replicas_[without].ready, Each(1));
  EXPECT_EQ(replicas_[1 - without].state, State::kComputing);
}

TEST_F(OwnReplicasTest, WaitsAtTheGateAndFinishesAfterTheLastStep) {
  context_.schedule.gate = 2;
  step_.number = 2;
  Assign({0});
  replicas_.Begin(replicas_[0]);
  EXPECT_EQ(replicas_[0].state, State::kWaiting);
  EXPECT_TRUE(replicas_.AnyWaiting());
  EXPECT_FALSE(replicas_.AnyAtWork());
  context_.schedule.gate = 4;
  replicas_.Compute(replicas_[0]);
  EXPECT_EQ(replicas_[0].state, State::kComputing);
  replicas_.Release(replicas_[0]);
  step_.number = 4;
  replicas_.Begin(replicas_[0]);
  EXPECT_EQ(replicas_[0].state, State::kFinished);
  EXPECT_TRUE(context_.reports.Finished(ReplicaId(0)));
}

TEST_F(OwnReplicasTest, TheValidationOfAnEpochComesBeforeTheStepAfterIt) {
  context_.job.validation_examples = 8;
  step_.number = 2;
  Assign({1});
  replicas_.Begin(replicas_[0]);
  EXPECT_EQ(replicas_[0].state, State::kEvaluating);
  EXPECT_TRUE(replicas_.AnyAtWork());
  const auto evaluations = Take<Evaluate>();
  ASSERT_THAT(evaluations, SizeIs(1));
  EXPECT_EQ(evaluations[0].places.begin, 2);
  EXPECT_EQ(evaluations[0].places.end, 4);
  EXPECT_EQ(replicas_.Find(evaluations[0].work), &replicas_[0]);
}

TEST_F(OwnReplicasTest, AReleasedReplicaIsNotFoundAndItsBufferIsUsedAgain) {
  Assign({0});
  replicas_.Begin(replicas_[0]);
  const uint64_t work = replicas_[0].work;
  const std::byte* const buffer = reinterpret_cast<const std::byte*>(replicas_[0].gradient.data());
  context_.output.Take();  // they hold the buffer
  replicas_.Release(replicas_[0]);
  EXPECT_EQ(replicas_.Find(work), nullptr);
  EXPECT_EQ(replicas_.Find(0), nullptr) << "0 is no work, and what an idle replica has";
  replicas_.Begin(replicas_[0]);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(replicas_[0].gradient.data()), buffer);
}

TEST_F(OwnReplicasTest, ANodeThatMakesSumsGetsOneGradientForAll) {
  ReplicaCoreOptions options;
  options.joins = true;
  Context joining(options);
  joining.job.spec = context_.job.spec;
  joining.schedule.plan = context_.schedule.plan;
  joining.assignment.parts = context_.assignment.parts;
  joining.assignment.replicas = {0, 1, 2};
  joining.pool.Resize(context_.job.space_bytes, 8);
  OwnReplicas replicas(joining, step_, /*by_layer=*/false);
  replicas.Assign();
  replicas.Join({{0, 2}, {2, 1}});
  for (OwnReplica& own : replicas) replicas.Begin(own);
  ASSERT_NE(replicas[0].joint, nullptr);
  EXPECT_EQ(replicas[0].joint, replicas[1].joint);
  EXPECT_EQ(replicas[0].gradient.data(), replicas[0].joint->gradient.data());
  EXPECT_TRUE(replicas[1].gradient.empty());
  EXPECT_TRUE(replicas[0].touched);
  EXPECT_EQ(replicas[2].joint, nullptr) << "float32 of one replica: nothing to add up or round";
  EXPECT_EQ(replicas.FindJoined(replicas[0].joint->number), &replicas[0]);
  EXPECT_EQ(replicas.FindJoined(replicas[0].joint->number + 1), nullptr);
}

}  // namespace
}  // namespace cairn::replica
