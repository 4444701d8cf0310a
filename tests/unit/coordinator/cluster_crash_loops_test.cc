// Goal: a worker whose process or device fails again and again does not hold a job up, and is not given up where no
// other can compute it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::JobSpec LongSpec() {
  v1::JobSpec spec = FakeCluster::Spec();
  spec.set_epochs(20);  // 100 steps
  spec.set_durability(v1::LOGGED);
  return spec;
}

// As a worker with too little memory: the system kills it, and its supervisor starts it again.
TEST(ClusterCrashLoops, AWorkerThatEndsAgainAndAgainIsLeftOut) {
  for (const bool alone : {false, true}) {
    SCOPED_TRACE(alone);
    Cluster c(1, alone ? 1 : 2);
    const uint64_t id = c.SubmitOk(LongSpec());
    c.Train(2);
    FakeNode& worker = c.node(alone ? "worker-0" : "worker-1");
    for (int i = 0; i < 3; ++i) {
      ASSERT_FALSE(c.Assigned(worker.hello.name(), id).empty()) << i;
      c.Kill(worker);
      if (i == 1) c.Pass(absl::Seconds(5));  // that time it is declared dead
      c.Restart(worker);
      c.Pass(absl::Seconds(2));
    }
    const std::string why = absl::StrCat("worker \"", worker.hello.name(), "\": it ended 3 times at step 2");
    ASSERT_EQ(c.Job(id).notes_size(), 1);
    EXPECT_THAT(c.Job(id).notes(0).text(), HasSubstr(why));
    EXPECT_EQ(worker.assigned.empty(), !alone) << "where no other can, it is tried again";
    if (!alone) {
      EXPECT_THAT(c.Job(id).reason(), HasSubstr(absl::StrCat("continues without ", why)));
    }
    c.Train(1);
    c.Kill(worker);
    c.Restart(worker);
    c.Pass(absl::Seconds(2));
    EXPECT_FALSE(worker.assigned.empty()) << "at another step it counts anew";
    EXPECT_EQ(c.Job(id).notes_size(), 1);
  }
}

// Found by the simulator: the job waited for ever, beside a worker that could have computed it.
TEST(ClusterCrashLoops, AWorkerThatWasLeftOutForItsCrashesIsTriedAgainWhenNoOtherIsLeft) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(LongSpec());
  c.Train(2);
  FakeNode& worker = c.node("worker-1");
  for (int i = 0; i < 3; ++i) {
    c.Kill(worker);
    c.Restart(worker);
    c.Pass(absl::Seconds(2));
  }
  ASSERT_TRUE(worker.assigned.empty());
  c.Train(1);
  c.Pass(absl::Seconds(5));
  EXPECT_TRUE(worker.assigned.empty()) << "another computes the job";
  c.Kill(c.node("worker-0"));
  c.Pass(absl::Seconds(5));
  EXPECT_FALSE(c.Assigned("worker-1", id).empty()) << c.Job(id).reason();
  c.Train(1);
}

// It was alone then, and was tried again. The present restart has nothing to do with those.
TEST(ClusterCrashLoops, EndsOfLongAgoDoNotCountWhileAPsIsAway) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(LongSpec());
  c.Train(2);
  FakeNode& worker = c.node("worker-0");
  for (int i = 0; i < 3; ++i) {
    c.Kill(worker);
    c.Restart(worker);
    c.Pass(absl::Seconds(2));
  }
  ASSERT_EQ(c.Job(id).notes_size(), 1);
  ASSERT_FALSE(worker.assigned.empty());
  c.Train(5);
  ASSERT_EQ(c.Job(id).step(), 7);
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Seconds(10));
  c.AddWorker("worker-1");
  c.Pass(absl::Seconds(2));
  c.Kill(worker);
  c.Restart(worker);
  c.Restart(c.node("ps-0"));
  c.Pass(absl::Seconds(2));
  EXPECT_EQ(c.Job(id).notes_size(), 1);
  EXPECT_THAT(c.Job(id).reason(), Not(HasSubstr("continues without")));
  EXPECT_FALSE(worker.assigned.empty());
}

// It reports the loss, ends itself and is started again. A job that only it can compute waits for it, unless its device
// is lost at the same step again and again.
TEST(ClusterCrashLoops, AWorkerThatLostItsDeviceIsWaitedForWhereNoOtherCanWork) {
  for (const bool alone : {false, true}) {
    SCOPED_TRACE(alone);
    Cluster c(1, alone ? 1 : 2);
    const uint64_t id = c.SubmitOk(LongSpec());
    c.Train(2);
    FakeNode& worker = c.node(alone ? "worker-0" : "worker-1");
    const auto lose_device = [&] {
      worker.fault = "GPU 0 is lost: a step does not end";
      v1::NodeMessage message;
      message.mutable_heartbeat()->set_fault(worker.fault);
      c.Say(worker, message);
      message.mutable_job_error()->set_job_id(id);
      message.mutable_job_error()->set_message(absl::StrCat("step 2, replica 0: ", worker.fault));
      message.mutable_job_error()->set_worker_only(true);
      c.Say(worker, message);
      c.Pass(absl::Seconds(2));
    };
    const auto start_again = [&] {
      c.Kill(worker);
      worker.fault.clear();
      c.Restart(worker);
      c.Pass(absl::Seconds(2));
    };
    const std::string why = absl::StrCat("worker \"", worker.hello.name(), "\": GPU 0 is lost");
    for (int i = 0; i < 2; ++i) {
      ASSERT_FALSE(worker.assigned.empty()) << i;
      lose_device();
      EXPECT_TRUE(c.Logged(
          absl::StrCat("worker \"", worker.hello.name(), "\" has failed and is given no replicas: GPU 0 is lost")));
      ASSERT_EQ(c.State(id), v1::RUNNING) << c.Job(id).reason();
      EXPECT_THAT(c.Job(id).reason(), HasSubstr(why));
      EXPECT_TRUE(c.Assigned(worker.hello.name(), id).empty());
      start_again();
      EXPECT_THAT(c.Job(id).reason(), Not(HasSubstr(why)));
      if (i == 0) c.Train(1);  // at another step it counts anew
    }
    for (int i = 0; i < 2; ++i) {
      lose_device();
      if (c.State(id) == v1::RUNNING) start_again();
    }
    if (alone) {
      EXPECT_EQ(c.State(id), v1::FAILED);
      EXPECT_THAT(c.Job(id).reason(), HasSubstr(why));
    } else {
      EXPECT_EQ(c.State(id), v1::RUNNING);
      EXPECT_TRUE(c.Assigned(worker.hello.name(), id).empty());
    }
  }
}

}  // namespace
}  // namespace cairn
