// Goal: an evaluator computes no replicas and evaluates each checkpoint of the jobs that ask for it once, even after
// they ended; its loss or failure disturbs nothing; a job without an evaluator says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::JobSpec Followed() {
  v1::JobSpec spec = Cluster::Spec();
  spec.mutable_checkpoints()->set_dir("/run");
  spec.mutable_checkpoints()->set_every_steps(2);
  spec.set_validation_by(v1::BY_EVALUATOR);
  return spec;
}

void Checkpoint(Cluster& c, uint64_t job, int64_t step, const std::vector<int64_t>& deleted = {}) {
  v1::NodeMessage message;
  message.mutable_checkpoint()->set_job_id(job);
  message.mutable_checkpoint()->mutable_checkpoint()->set_step(step);
  message.mutable_checkpoint()->mutable_deleted_steps()->Assign(deleted.begin(), deleted.end());
  c.Say(c.node(c.Job(job).chief()), message);
}

TEST(Evaluators, EvaluateEveryCheckpointOnce) {
  Cluster c(1, 2);
  FakeNode& evaluator = c.AddWorker("evaluator-0", 1, v1::EVALUATOR);
  const uint64_t id = c.SubmitOk(Followed());
  EXPECT_TRUE(evaluator.assigned.empty()) << "it computes no replicas";
  c.answer_evaluations = false;
  Checkpoint(c, id, 2);
  Checkpoint(c, id, 4);
  c.Pass(absl::Seconds(1));
  ASSERT_EQ(evaluator.shards.size(), 1u) << "one at a time";
  EXPECT_EQ(evaluator.shards[0].weights(), "/run/step-2");
  EXPECT_EQ(evaluator.shards[0].split(), v1::VALIDATION);
  EXPECT_EQ(evaluator.shards[0].shards(), 1u);
  EXPECT_TRUE(c.node("worker-0").shards.empty());
  c.answer_evaluations = true;
  c.Pass(absl::Seconds(1));
  ASSERT_EQ(c.Job(id).validations_size(), 2);
  EXPECT_EQ(c.Job(id).validations(0).step(), 2);
  EXPECT_EQ(c.Job(id).validations(0).checkpoint(), "/run/step-2");
  EXPECT_EQ(c.Job(id).validations(0).sums().examples(), 8u);
  EXPECT_EQ(c.Job(id).validations(1).step(), 4);

  ASSERT_TRUE(c.RunToEnd(id)) << "training does not wait";
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Pass(absl::Seconds(2));
  EXPECT_EQ(c.Job(id).validations_size(), 2) << "kept";
}

TEST(Evaluators, AJobThatHasEndedIsFollowedToItsLastCheckpoint) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(Followed());
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("no evaluator is there"));
  Checkpoint(c, id, 8);
  ASSERT_TRUE(c.RunToEnd(id)) << "without an evaluator too";
  EXPECT_EQ(c.Job(id).validations_size(), 0);
  c.AddWorker("evaluator-0", 1, v1::EVALUATOR);
  c.Pass(absl::Seconds(1));
  ASSERT_EQ(c.Job(id).validations_size(), 1);
  EXPECT_EQ(c.Job(id).validations(0).step(), 8);
}

TEST(Evaluators, TheReasonGoesWhenOneJoins) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(Followed());
  EXPECT_EQ(c.Job(id).reason(),
            "no evaluator is there: checkpoints are not evaluated; start one with cairn-worker --role evaluator");
  FakeNode& evaluator = c.AddWorker("evaluator-0", 1, v1::EVALUATOR);
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(c.Job(id).reason(), "");
  c.Kill(evaluator);
  c.Pass(absl::Seconds(5));
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("no evaluator is there"));
}

// One evaluator is lost; another one fails at a checkpoint that is gone, and at one that exists.
TEST(Evaluators, FailuresAreBorne) {
  Cluster c(1, 1);
  FakeNode& first = c.AddWorker("evaluator-0", 1, v1::EVALUATOR);
  const uint64_t id = c.SubmitOk(Followed());
  c.answer_evaluations = false;
  Checkpoint(c, id, 2);
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(first.shards.size(), 1u);
  c.Kill(first);
  FakeNode& second = c.AddWorker("evaluator-1", 1, v1::EVALUATOR);
  c.Pass(absl::Seconds(1));
  ASSERT_EQ(second.shards.size(), 1u) << "another one has it";
  Checkpoint(c, id, 4, {2});
  for (int attempt = 0; attempt < 20; ++attempt) {
    for (const v1::EvaluateShard& shard : std::exchange(second.shards, {})) {
      v1::NodeMessage failed;
      failed.mutable_evaluated()->set_request_id(shard.request_id());
      failed.mutable_evaluated()->set_shard(shard.shard());
      failed.mutable_evaluated()->set_error("weights: torn");
      c.Say(second, failed);
    }
    c.Pass(absl::Seconds(1));
  }
  EXPECT_TRUE(second.shards.empty()) << "not for ever";
  EXPECT_TRUE(c.Logged("/run/step-4 was not evaluated: evaluator \"evaluator-1\": weights: torn"));
  EXPECT_FALSE(c.Logged("/run/step-2 was not evaluated")) << "it was deleted: no news";
  c.answer_evaluations = true;
  Checkpoint(c, id, 6);
  c.Pass(absl::Seconds(1));
  ASSERT_EQ(c.Job(id).validations_size(), 1);
  EXPECT_EQ(c.Job(id).validations(0).step(), 6);
}

// Validations of replicas within an epoch: complete when every replica has reported its share.
TEST(Evaluators, ValidationsOfTheReplicasByStep) {
  Cluster c(1, 1);
  v1::JobSpec spec = c.Spec(2);
  spec.set_validation_freq_steps(2);
  const uint64_t id = c.SubmitOk(spec);
  const auto report = [&](int replica, int64_t step, double loss) {
    v1::NodeMessage message;
    v1::ReplicaReport& r = *message.mutable_replica_report();
    r.set_job_id(id);
    r.set_generation(c.Job(id).generation());
    r.set_replica(replica);
    r.set_validation_step(step);
    r.mutable_validation()->set_examples(4);
    r.mutable_validation()->set_loss(loss);
    c.Say(c.node("worker-0"), message);
  };
  report(0, 4, 1);
  report(0, 2, 1);
  EXPECT_EQ(c.Job(id).validations_size(), 0);
  report(1, 4, 2);
  report(1, 4, 2);
  report(1, 2, 2);
  report(1, 2, 2);
  ASSERT_EQ(c.Job(id).validations_size(), 2);
  EXPECT_EQ(c.Job(id).validations(0).step(), 2);
  EXPECT_EQ(c.Job(id).validations(1).step(), 4);
  EXPECT_EQ(c.Job(id).validations(1).sums().examples(), 8u);
  EXPECT_EQ(c.Job(id).validations(1).sums().loss(), 3);
  report(1, 99, 2);
  EXPECT_TRUE(c.Logged("validation after step 99 of 10"));
}

// Groups of replicas that push as one stay together, whoever joins or leaves.
TEST(Evaluators, LocalSyncGroupsStayTogether) {
  Cluster c(1, 3, 2);
  v1::JobSpec spec = c.Spec(6);
  spec.set_strategy(v1::PARAMETER_SERVER);
  spec.set_local_sync(2);
  const uint64_t id = c.SubmitOk(spec);
  const auto check = [&] {
    for (int r = 0; r < 6; r += 2) {
      EXPECT_NE(c.Job(id).replicas(r).worker(), "");
      EXPECT_EQ(c.Job(id).replicas(r).worker(), c.Job(id).replicas(r + 1).worker()) << r;
    }
  };
  check();
  EXPECT_EQ(c.Assigned("worker-0", id).size(), 2u);
  c.Kill(c.node("worker-1"));
  c.Pass(absl::Seconds(5));
  check();
  c.AddWorker("worker-3", 2);
  c.Pass(absl::Seconds(1));
  check();
  EXPECT_EQ(c.Assigned("worker-3", id).size(), 2u);
}

}  // namespace
}  // namespace cairn
