// Goal: the coordinator's clock jumps, as after a machine was suspended or its time was set. Nodes that seem to be
// silent are reported as lost and told to reconnect. They do, and the job ends with every step done once. A clock that
// goes back stops nothing.
#include <gtest/gtest.h>

#include "tests/unit/coordinator/fake_cluster.h"

namespace cairn {
namespace {

class ClockJumpTest : public testing::Test {
 protected:
  ClockJumpTest() {
    ps_ = &cluster_.AddPs("ps0");
    worker_ = &cluster_.AddWorker("worker0", 2);
    const ReplyToken token = cluster_.Submit(FakeCluster::Spec());
    cluster_.Settle();
    id_ = cluster_.SubmittedId(token);
    for (int i = 0; i < 20 && cluster_.State(id_) != v1::RUNNING; ++i) cluster_.Pass(absl::Milliseconds(500));
    EXPECT_EQ(cluster_.State(id_), v1::RUNNING);
    cluster_.TrainStep();
  }
  // Opens a new session for each node whose session was ended, as real nodes do.
  void ComeAgain() {
    for (FakeNode* node : {ps_, worker_}) {
      if (node->closed) cluster_.Connect(*node);
    }
    cluster_.Settle();
  }

  FakeCluster cluster_;
  FakeNode* ps_ = nullptr;
  FakeNode* worker_ = nullptr;
  uint64_t id_ = 0;
};

TEST_F(ClockJumpTest, AnHourForwardNamesTheNodesThatSeemLostAndTheJobGoesOn) {
  const int64_t before = cluster_.TrueStep(id_);
  cluster_.clock().Advance(absl::Hours(1));
  cluster_.Do(Tick{});
  EXPECT_TRUE(ps_->closed && worker_->closed);
  EXPECT_TRUE(cluster_.Logged("\"ps0\" is lost"));
  EXPECT_TRUE(cluster_.Logged("\"worker0\" is lost"));
  ComeAgain();
  EXPECT_TRUE(cluster_.RunToEnd(id_));
  EXPECT_EQ(cluster_.State(id_), v1::SUCCEEDED) << cluster_.Job(id_).reason();
  EXPECT_GE(cluster_.TrueStep(id_), before);
  EXPECT_EQ(cluster_.TrueStep(id_), cluster_.Job(id_).total_steps());
}

TEST_F(ClockJumpTest, BackwardsStopsNothing) {
  cluster_.clock().Advance(-absl::Hours(1));
  cluster_.Do(Tick{});
  EXPECT_FALSE(ps_->closed || worker_->closed);
  EXPECT_TRUE(cluster_.RunToEnd(id_));
  EXPECT_EQ(cluster_.State(id_), v1::SUCCEEDED) << cluster_.Job(id_).reason();
}

// The machine's wall clock was set back while the coordinator was away: the times that it stored lie in the future.
TEST_F(ClockJumpTest, ARestartWithAClockBehindItsOwnStateTakesItsNodesBack) {
  cluster_.clock().Advance(-absl::Hours(24));
  cluster_.RestartCoordinator();
  cluster_.ReconnectAll();
  cluster_.Settle();
  EXPECT_TRUE(cluster_.RunToEnd(id_));
  EXPECT_EQ(cluster_.State(id_), v1::SUCCEEDED) << cluster_.Job(id_).reason();
}

}  // namespace
}  // namespace cairn
