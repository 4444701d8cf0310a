// Goal: how a job ends. It has succeeded only when its final values are on the disks of its ps, and the digest is of
// these values. A ps that is lost before this point takes the job back; one that is lost later does not. The
// coordinator may end between any two steps of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/copies.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSteps = 10;  // of Spec

// Two ps that do not write their final values before they are told to.
class ClusterEndTest : public testing::Test {
 protected:
  explicit ClusterEndTest(int workers = 1) : c_(2, workers) {
    for (const char* name : {"ps-0", "ps-1"}) c_.node(name).writes = false;
  }
  v1::JobSpec Spec(bool synchronous = true) {
    v1::JobSpec spec = FakeCluster::Spec(2);
    spec.set_durability(v1::SNAPSHOT);
    if (!synchronous) spec.set_strategy(v1::PARAMETER_SERVER);
    return spec;
  }
  void SetVersions(const std::string& ps, uint64_t version) {
    for (auto& [p, v] : c_.node(ps).hosted.at(id_).version) v = version;
  }
  // Trains to the last step; nothing is written.
  void Begin(const v1::JobSpec& spec) {
    id_ = c_.SubmitOk(spec);
    for (int i = 0; i < 200 && c_.State(id_) != v1::FINALIZING; ++i) {
      c_.Pass(absl::Milliseconds(100));
      c_.TrainStep();
    }
    ASSERT_EQ(c_.State(id_), v1::FINALIZING) << c_.Job(id_).reason();
    c_.Settle();
  }

  Cluster c_;
  uint64_t id_ = 0;
};

TEST_F(ClusterEndTest, AJobIsOverWhenItsLastValuesAreOnDisk) {
  c_.answer_finalizes = false;
  Begin(Spec());
  c_.Pass(absl::Seconds(100));
  EXPECT_EQ(c_.State(id_), v1::FINALIZING);
  EXPECT_THAT(c_.Job(id_).reason(), HasSubstr("ps \"ps-0\" writes the last values of 2 partitions"));
  EXPECT_TRUE(c_.node("worker-0").finalizes.empty());
  c_.TellKept(c_.node("ps-0"), id_);
  EXPECT_TRUE(c_.node("worker-0").finalizes.empty());
  EXPECT_THAT(c_.Job(id_).reason(), ::testing::Not(HasSubstr("ps-0")));
  c_.TellKept(c_.node("ps-1"), id_);
  ASSERT_EQ(c_.node("worker-0").finalizes.size(), 1u);
  EXPECT_THAT(c_.node("worker-0").finalizes[0].versions(), ElementsAre(kSteps, kSteps, kSteps, kSteps));
  c_.answer_finalizes = true;
  c_.Pass(absl::Milliseconds(100));
  EXPECT_EQ(c_.State(id_), v1::SUCCEEDED);
}

// It is no trouble: partitions get ready whenever a job begins or they move.
TEST_F(ClusterEndTest, AJobWhosePartitionsGetReadySaysSo) {
  c_.node("ps-1").silent = true;
  id_ = c_.SubmitOk(Spec());
  EXPECT_EQ(c_.State(id_), v1::STARTING);
  EXPECT_THAT(c_.Job(id_).reason(), HasSubstr("the ps make its partitions ready, 2 of 4 so far"));
}

TEST_F(ClusterEndTest, APsThatCannotWriteIsNamed) {
  Begin(Spec());
  for (const char* name : {"ps-0", "ps-1"})
    c_.node(name).fault = "no space left";  // else its partitions move to the other
  c_.Pass(absl::Seconds(5));
  EXPECT_EQ(c_.State(id_), v1::FINALIZING);
  EXPECT_THAT(c_.Job(id_).reason(), HasSubstr("ps \"ps-0\" writes the last values of 2 partitions"));
  EXPECT_THAT(c_.Job(id_).reason(), HasSubstr("no space left"));
}

// The ps ends before it has written: the steps since its last image are done again.
TEST_F(ClusterEndTest, APsThatEndsBeforeItHasWrittenTakesTheJobBack) {
  for (const bool synchronous : {true, false}) {
    SCOPED_TRACE(synchronous);
    Begin(Spec(synchronous));
    c_.TellKept(c_.node("ps-1"), id_);
    c_.node("ps-1").kept_versions = {4};
    c_.Kill(c_.node("ps-0"));
    SetVersions("ps-0", 4);
    c_.node("ps-0").writes = true;
    c_.Restart(c_.node("ps-0"));
    c_.Settle();
    EXPECT_EQ(c_.State(id_), v1::RUNNING) << c_.Job(id_).reason();
    EXPECT_TRUE(c_.RunToEnd(id_));
    EXPECT_EQ(c_.State(id_), v1::SUCCEEDED) << c_.Job(id_).reason();
    for (const char* name : {"ps-0", "ps-1"}) c_.node(name).writes = false;
  }
}

TEST_F(ClusterEndTest, APsThatEndsAfterItHasWrittenCostsNoStep) {
  for (const bool synchronous : {true, false}) {
    SCOPED_TRACE(synchronous);
    c_.answer_finalizes = false;
    Begin(Spec(synchronous));
    for (const char* name : {"ps-0", "ps-1"}) c_.TellKept(c_.node(name), id_);
    EXPECT_EQ(c_.node("worker-0").finalizes.size(), 1u);
    c_.Kill(c_.node("ps-0"));
    c_.Restart(c_.node("ps-0"));
    c_.answer_finalizes = true;
    for (int i = 0; i < 200 && c_.State(id_) == v1::FINALIZING; ++i) c_.Pass(absl::Milliseconds(100));
    EXPECT_EQ(c_.State(id_), v1::SUCCEEDED) << c_.Job(id_).reason();
    EXPECT_FALSE(c_.Logged("falls back"));
    EXPECT_FALSE(c_.Logged("computed again"));
    for (const char* name : {"ps-0", "ps-1"}) c_.node(name).writes = false;
  }
}

// A digest that was requested in an earlier generation is ignored.
TEST_F(ClusterEndTest, ADigestOfBeforeDoesNotEndTheJob) {
  c_.answer_finalizes = false;
  Begin(Spec());
  for (const char* name : {"ps-0", "ps-1"}) c_.TellKept(c_.node(name), id_);
  ASSERT_EQ(c_.node("worker-0").finalizes.size(), 1u);
  const v1::Finalize before = c_.node("worker-0").finalizes[0];
  c_.node("ps-0").kept_versions = c_.node("ps-1").kept_versions = {4};
  c_.Kill(c_.node("ps-0"));
  SetVersions("ps-0", 4);
  c_.Restart(c_.node("ps-0"));
  v1::NodeMessage late;
  late.mutable_finalized()->set_job_id(id_);
  late.mutable_finalized()->set_generation(before.generation());
  late.mutable_finalized()->set_digest("0ld");
  for (int i = 0; i < 200 && c_.State(id_) != v1::FINALIZING; ++i) {
    c_.Say(c_.node("worker-0"), late);
    c_.Pass(absl::Milliseconds(100));
    c_.TrainStep();
    c_.Settle();
  }
  c_.Say(c_.node("worker-0"), late);
  EXPECT_EQ(c_.State(id_), v1::FINALIZING);
  c_.answer_finalizes = true;
  EXPECT_TRUE(c_.RunToEnd(id_));
  EXPECT_EQ(c_.Job(id_).digest(), "d1e5");
}

// A copy of a data directory from before the end is not accepted as the final weights.
TEST_F(ClusterEndTest, AnOldDiskAfterTheEndIsNamed) {
  for (const char* name : {"ps-0", "ps-1"}) c_.node(name).writes = true;
  id_ = c_.SubmitOk(Spec());
  ASSERT_TRUE(c_.RunToEnd(id_));
  ASSERT_EQ(c_.State(id_), v1::SUCCEEDED);
  c_.RestartCoordinator();
  c_.ReconnectAll();
  c_.Kill(c_.node("ps-0"));
  SetVersions("ps-0", 4);
  c_.Restart(c_.node("ps-0"));
  c_.Pass(absl::Seconds(60));
  EXPECT_THAT(c_.Job(id_).reason(), HasSubstr("ps \"ps-0\" came back with version 4 of partition"));
  EXPECT_THAT(c_.Job(id_).reason(), HasSubstr("version 10 was acknowledged"));
}

// The values of a cancelled job are kept as well. Durability is LOGGED, without fsync: the machine of a ps loses its
// last updates while the job ends.
TEST_F(ClusterEndTest, AnEndIsNotOfTwoVersions) {
  for (const bool synchronous : {true, false}) {
    for (const bool noted : {true, false}) {
      if (!synchronous && !noted) continue;  // how far each replica is on a partition is not known here
      SCOPED_TRACE(absl::StrCat("synchronous ", synchronous, ", final versions stored ", noted));
      Cluster c(2, 1);
      c.answer_finalizes = false;
      c.node("ps-0").writes = c.node("ps-1").writes = noted;
      v1::JobSpec spec = Spec(synchronous);
      spec.set_durability(v1::LOGGED);
      const uint64_t id = c.SubmitOk(spec);
      for (int i = 0; i < 200 && c.State(id) != v1::FINALIZING; ++i) {
        c.Pass(absl::Milliseconds(100));
        c.TrainStep();
      }
      c.Settle();
      ASSERT_EQ(c.State(id), v1::FINALIZING);
      c.Kill(c.node("ps-0"));
      for (auto& [p, v] : c.node("ps-0").hosted.at(id).version) v -= 1;
      c.Restart(c.node("ps-0"));
      c.answer_finalizes = true;
      for (int i = 0; i < 400 && c.State(id) != v1::SUCCEEDED && c.State(id) != v1::FAILED; ++i)
        c.Pass(absl::Milliseconds(100));
      EXPECT_EQ(c.State(id), v1::FAILED);
      EXPECT_THAT(c.Job(id).reason(), HasSubstr(absl::StrCat("but version ", kSteps, " was acknowledged")));
    }
  }
}

TEST_F(ClusterEndTest, ACancelledJobsPartitionsAreToBeKept) {
  id_ = c_.SubmitOk(Spec());
  for (int i = 0; i < 5; ++i) {
    c_.Pass(absl::Milliseconds(100));
    c_.TrainStep();
  }
  v1::GetJobRequest ref;
  ref.set_job_id(id_);
  c_.Do(CancelJob{ReplyToken{900}, ref});
  c_.Settle();
  EXPECT_EQ(c_.State(id_), v1::CANCELLED);
  EXPECT_TRUE(c_.node("ps-0").keeps.contains(id_));
  EXPECT_TRUE(c_.node("ps-1").keeps.contains(id_));
}

// The coordinator ends before any effect of the end, and a new one goes on; the ps write in between.
TEST_F(ClusterEndTest, TheCoordinatorMayEndAtAnyStepOfTheEnd) {
  for (int at = 0; at < 60; ++at) {
    SCOPED_TRACE(at);
    for (const char* name : {"ps-0", "ps-1"}) c_.node(name).writes = false;
    id_ = c_.SubmitOk(Spec(at % 2 == 0));
    for (int i = 0; i < 200 && c_.TrueStep(id_) < static_cast<int64_t>(kSteps); ++i) {
      c_.Pass(absl::Milliseconds(100));
      c_.TrainStep();
    }
    c_.CrashSoon(at);
    for (int i = 0; i < 400 && c_.State(id_) != v1::SUCCEEDED; ++i) {
      c_.ReconnectAll();
      c_.Pass(absl::Milliseconds(100));
      c_.TrainStep();
      if (i == 6) c_.TellKept(c_.node("ps-0"), id_);
      if (i == 8) c_.TellKept(c_.node("ps-1"), id_);
    }
    EXPECT_EQ(c_.State(id_), v1::SUCCEEDED) << c_.Job(id_).reason();
    EXPECT_FALSE(c_.Logged("falls back"));
    c_.CrashAt(-1);
    c_.ReconnectAll();
    c_.Settle();
  }
}

// ---- the last checkpoint ----

// Worker-0, the chief, is lost with its last steps. Worker-1, which has done all of its own, becomes the chief, and
// worker-2 does the rest. The coordinator waits for the checkpoint that worker-1 takes now, but not for ever.
TEST(ClusterLateChief, ItsCheckpointIsWaitedFor) {
  for (const auto& [writes, restarts] :
       std::vector<std::pair<bool, bool>>{{true, false}, {false, false}, {true, true}, {false, true}}) {
    SCOPED_TRACE(absl::StrCat("writes ", writes, ", the coordinator restarts ", restarts));
    Cluster c(1, 2);
    c.AddWorker("worker-2", 2);
    v1::JobSpec spec = FakeCluster::Spec(3);
    spec.set_strategy(v1::PARAMETER_SERVER);
    spec.mutable_checkpoints()->set_dir("/checkpoints");
    const uint64_t id = c.SubmitOk(spec);
    c.Train(static_cast<int>(kSteps) - 1);
    const auto finish = [&](const std::string& worker) {
      for (int32_t r : c.Assigned(worker, id)) {
        v1::NodeMessage message;
        v1::ReplicaReport& report = *message.mutable_replica_report();
        report.set_job_id(id);
        report.set_generation(c.Job(id).generation());
        report.set_replica(r);
        report.set_last_step(kSteps - 1);
        report.set_validation_epoch(1);
        report.mutable_validation()->set_examples(r == 0 ? 4 : 2);
        report.mutable_validation()->add_metrics(1);
        report.set_finished(true);
        c.node(worker).reported[id].push_back(message);
        c.Say(c.node(worker), message);
      }
    };
    ASSERT_EQ(c.Job(id).chief(), "worker-0");
    ASSERT_EQ(c.Assigned("worker-1", id).size(), 1u);
    finish("worker-1");
    c.Kill(c.node("worker-0"));
    c.Pass(absl::Seconds(5));
    ASSERT_EQ(c.Job(id).chief(), "worker-1");
    ASSERT_EQ(c.Assigned("worker-1", id).size(), 1u);
    finish("worker-2");
    c.SayFigures(id, 3 * kSteps, 1, 40);
    c.Pass(absl::Seconds(2));
    if (restarts) {
      c.RestartCoordinator();
      c.ReconnectAll();
    }
    c.Pass(absl::Seconds(20));
    EXPECT_EQ(c.State(id), v1::RUNNING);
    if (writes) {
      v1::NodeMessage message;
      v1::CheckpointReport& report = *message.mutable_checkpoint();
      report.set_job_id(id);
      report.mutable_checkpoint()->set_step(kSteps);
      c.Say(c.node("worker-1"), message);
      c.Pass(absl::Seconds(1));
    } else {
      c.Pass(kEndTimeout);
    }
    EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
  }
}

}  // namespace
}  // namespace cairn
