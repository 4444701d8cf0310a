// Goal: what a slot gets next is told from who was on it; a step's replicas find one sum of the backend, whoever comes
// first, and nothing of it is kept when they have left or it is not wanted any more.
#include "worker/train/step_joins.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/model/model_text.h"
#include "tests/unit/worker/fake_backend.h"
#include "worker/train/replica_seats.h"

namespace cairn {
namespace {

TEST(ReplicaSeatsTest, ASlotsReplicasTakeTurns) {
  ReplicaSeats seats;
  EXPECT_EQ(seats.HomeOf(ReplicaId(0)), ComputePool::kNoSlot);
  EXPECT_FALSE(seats.NextOn(0, ReplicaId(0)));
  const auto next = [&](int slot, int replica) {
    const auto turn = seats.NextOn(slot, ReplicaId(replica));
    return turn ? std::pair(static_cast<int>(turn->replica.value), turn->step) : std::pair(-1, int64_t{-1});
  };
  // Replicas 0, 2, 5 on slot 0 and 3 on slot 1, at step 7.
  for (int replica : {0, 2, 5}) seats.Take(ReplicaId(replica), 0, 6);
  seats.Take(ReplicaId(3), 1, 7);
  EXPECT_EQ(next(1, 3), std::pair(3, int64_t{8})) << "alone on its slot";
  seats.Take(ReplicaId(0), 0, 7);
  EXPECT_EQ(next(0, 0), std::pair(2, int64_t{7})) << "of the same step";
  seats.Take(ReplicaId(2), 0, 7);
  EXPECT_EQ(next(0, 2), std::pair(5, int64_t{7}));
  seats.Take(ReplicaId(5), 0, 7);
  EXPECT_EQ(next(0, 5), std::pair(0, int64_t{8})) << "of the next one";
  // Slot 1 was idle and took replica 2; 5 left the worker.
  seats.Take(ReplicaId(2), 1, 8);
  EXPECT_EQ(seats.HomeOf(ReplicaId(2)), 1);
  EXPECT_EQ(next(1, 2), std::pair(3, int64_t{8}));
  seats.Keep(std::vector<int32_t>{0, 2, 3});
  EXPECT_EQ(next(0, 0), std::pair(0, int64_t{8}));
  EXPECT_EQ(seats.HomeOf(ReplicaId(5)), ComputePool::kNoSlot);
  EXPECT_EQ(next(2, 0), std::pair(-1, int64_t{-1})) << "nobody is at home there";
}

int joins_alive = 0;

class FakeJoin : public GradientJoin {
 public:
  explicit FakeJoin(JoinOptions o) : options(std::move(o)) { ++joins_alive; }
  ~FakeJoin() override { --joins_alive; }
  const JoinOptions options;
};

class JoiningBackend : public IdleBackend {
 public:
  absl::StatusOr<std::shared_ptr<GradientJoin>> Join(const std::shared_ptr<const Graph>&,
                                                     JoinOptions options) override {
    if (fails) return absl::ResourceExhaustedError("no memory");
    return std::make_shared<FakeJoin>(std::move(options));
  }
  bool fails = false;
};

class StepJoinsTest : public testing::Test {
 protected:
  std::shared_ptr<replica::Joint> Joint(uint64_t number) {
    auto joint = std::make_shared<replica::Joint>();
    joint->number = number;
    joint->node = {4, 4};
    joint->leaves = {true, false, true, false};
    joint->type = v1::BFLOAT16;
    joint->gradient = Buffer::Zeros(static_cast<size_t>(graph_->space_size()) * 4);
    return joint;
  }
  absl::StatusOr<std::shared_ptr<GradientJoin>> Enter(const std::shared_ptr<const replica::Joint>& joint) {
    return joins_.Enter(joint, graph_, ranges_);
  }

  JoiningBackend backend_;
  const std::shared_ptr<const Graph> graph_ = std::make_shared<const Graph>(
      Graph::Build(FromText<v1::Model>("layers { input { shape: 30 } } layers { dense { units: 2 } }")).value());
  std::vector<v1::PartitionRange> ranges_ = {FromText<v1::PartitionRange>("end: 32"),
                                             FromText<v1::PartitionRange>("begin: 32 end: 80")};
  std::vector<std::pair<uint64_t, uint32_t>> told_;
  StepJoins joins_{backend_, [this](const replica::GradientSummed& event) {
                     EXPECT_EQ(event.partition_end, event.partition_begin + 1);
                     told_.emplace_back(event.joint, event.partition_begin);
                   }};
};

TEST_F(StepJoinsTest, ReplicasOfAStepFindOneSumAndItGoesWithThem) {
  const auto joint = Joint(3), later = Joint(4);
  {
    const auto first = Enter(joint), second = Enter(joint), other = Enter(later);
    ASSERT_TRUE(first.ok() && second.ok() && other.ok());
    EXPECT_EQ(*first, *second);
    EXPECT_NE(*first, *other);
    const JoinOptions& options = static_cast<FakeJoin&>(**first).options;
    EXPECT_EQ(options.node, (TreeNode{4, 4}));
    EXPECT_EQ(options.leaves, (std::vector<bool>{true, false, true, false}));
    EXPECT_EQ(options.ends, (std::vector<int64_t>{32, 80}));
    EXPECT_EQ(options.type, v1::BFLOAT16);
    EXPECT_EQ(options.into.data(), joint->gradient.data());
    options.ready(1);
    EXPECT_EQ(told_, (std::vector<std::pair<uint64_t, uint32_t>>{{3, 1}}));
  }
  joins_.Leave(3);
  EXPECT_EQ(joins_alive, 2);
  joins_.Leave(3);
  EXPECT_EQ(joins_alive, 1);
  EXPECT_EQ(joint->gradient.unique(), true) << "the core may write to it";
  joins_.Leave(17);
  joins_.Clear();
  EXPECT_EQ(joins_alive, 0);
}

TEST_F(StepJoinsTest, WhatNobodyWantsGoesWhenTheNextComes) {
  auto joint = Joint(1);
  ASSERT_TRUE(Enter(joint).ok());
  joint.reset();
  const auto next = Joint(2);
  ASSERT_TRUE(Enter(next).ok());
  EXPECT_EQ(joins_alive, 1);
  backend_.fails = true;
  EXPECT_EQ(Enter(Joint(5)).status().code(), absl::StatusCode::kResourceExhausted);
  backend_.fails = false;
  EXPECT_TRUE(Enter(Joint(5)).ok()) << "the next step of a job that goes on";
}

}  // namespace
}  // namespace cairn
