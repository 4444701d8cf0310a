// Goal: an evaluation or a digest is given to workers until one answers, but not for ever, and survives losses of
// nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/metric_sums.h"
#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ClusterCore, FinalizeGoesToAnotherWorker) {
  Cluster c(1, 2);
  c.answer_finalizes = false;
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(10);
  EXPECT_EQ(c.State(id), v1::FINALIZING);
  EXPECT_EQ(c.node("worker-0").finalizes.size(), 1u) << "the chief";
  c.Kill(c.node("worker-0"));
  c.Settle();
  EXPECT_EQ(c.node("worker-1").finalizes.size(), 1u);
  c.answer_finalizes = true;
  c.Settle();
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);

  Cluster d(1, 1);
  d.answer_finalizes = false;
  const uint64_t stuck = d.SubmitOk(d.Spec());
  d.Train(10);
  d.Pass((d.options.finalize_timeout + absl::Seconds(20)) * d.options.finalize_attempts_max);
  EXPECT_EQ(d.State(stuck), v1::FAILED) << "no wait for ever";
  EXPECT_THAT(d.Job(stuck).reason(), HasSubstr("did not answer"));
}

v1::EvaluateRequest EvaluateOf(uint64_t id, v1::Split split = v1::SPLIT_UNSPECIFIED) {
  v1::EvaluateRequest request;
  request.mutable_job()->set_job_id(id);
  request.set_split(split);
  return request;
}

TEST(ClusterCore, EvaluateAddsUpAllSumsOfAMetric) {
  Cluster c(1, 2);
  v1::JobSpec spec = c.Spec();
  spec.clear_metrics();
  spec.add_metrics()->set_kind(v1::Metric::MEAN_IOU);
  spec.add_metrics()->set_kind(v1::Metric::ACCURACY);
  const uint64_t id = c.SubmitOk(spec);
  c.Do(EvaluateJob{ReplyToken{90001}, EvaluateOf(id), c.clock().Now() + absl::Minutes(10)});
  c.Settle();
  ASSERT_NE(c.ReplyTo(ReplyToken{90001}), nullptr);
  const v1::EvaluateResponse response = std::get<v1::EvaluateResponse>(c.ReplyTo(ReplyToken{90001})->body);
  EXPECT_THAT(response.metric_names(), ElementsAre("mean_io_u", "accuracy"));
  ASSERT_EQ(response.sums().metrics_size(), MetricSumCount(c.Job(id).spec()));
  EXPECT_GT(response.sums().metrics_size(), 2);
  for (const double sum : response.sums().metrics()) EXPECT_EQ(sum, 4) << "of two shards";
}

TEST(ClusterCore, EvaluateSumsShardsAndRetries) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  const absl::Time deadline = c.clock().Now() + absl::Minutes(10);
  c.Do(EvaluateJob{ReplyToken{90001}, EvaluateOf(id), deadline});
  c.Settle();
  ASSERT_NE(c.ReplyTo(ReplyToken{90001}), nullptr);
  v1::EvaluateResponse response = std::get<v1::EvaluateResponse>(c.ReplyTo(ReplyToken{90001})->body);
  EXPECT_EQ(response.sums().examples(), 16u);
  EXPECT_EQ(response.sums().loss(), 2);
  EXPECT_EQ(response.version(), 7u) << "the lowest";
  EXPECT_THAT(response.metric_names(), ElementsAre("accuracy"));

  c.answer_evaluations = false;
  c.Do(EvaluateJob{ReplyToken{90002}, EvaluateOf(id, v1::VALIDATION), deadline});
  c.Settle();
  EXPECT_EQ(c.node("worker-0").shards.size(), 1u);
  c.Kill(c.node("worker-1"));
  c.answer_evaluations = true;
  c.Settle();
  ASSERT_NE(c.ReplyTo(ReplyToken{90002}), nullptr);
  EXPECT_EQ(std::get<v1::EvaluateResponse>(c.ReplyTo(ReplyToken{90002})->body).sums().examples(), 8u);

  c.answer_evaluations = false;
  c.Do(EvaluateJob{ReplyToken{90003}, EvaluateOf(id), c.clock().Now() + absl::Seconds(5)});
  c.Pass(absl::Seconds(6));
  ASSERT_NE(c.ReplyTo(ReplyToken{90003}), nullptr);
  EXPECT_EQ(c.ReplyTo(ReplyToken{90003})->status.code(), absl::StatusCode::kDeadlineExceeded);
}

void Answer(Cluster& c, const std::string& worker, const v1::EvaluateShard& shard, const std::string& error) {
  v1::NodeMessage answer;
  answer.mutable_evaluated()->set_request_id(shard.request_id());
  answer.mutable_evaluated()->set_shard(shard.shard());
  answer.mutable_evaluated()->set_error(error);
  if (error.empty()) answer.mutable_evaluated()->mutable_sums()->set_examples(c.ExamplesOf(shard));
  c.Say(c.node(worker), answer);
}

void FailShards(Cluster& c, const std::string& worker) {
  for (const v1::EvaluateShard& shard : std::exchange(c.node(worker).shards, {})) {
    Answer(c, worker, shard, "ps \"ps-0\": connection refused");
  }
}

// Workers that cannot reach a ps which is away, or which was elsewhere when they were told, have not failed.
TEST(ClusterCore, EvaluateOutlivesTheRestartOfAPs) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.answer_evaluations = false;
  c.Do(EvaluateJob{ReplyToken{90001}, EvaluateOf(id), c.clock().Now() + absl::Minutes(10)});
  c.Settle();
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Seconds(5));
  for (const char* worker : {"worker-0", "worker-1"}) FailShards(c, worker);
  c.Pass(absl::Seconds(2));
  EXPECT_TRUE(c.node("worker-0").shards.empty()) << "sent while the ps is away";
  ASSERT_EQ(c.ReplyTo(ReplyToken{90001}), nullptr);
  c.Restart(c.node("ps-0"), "127.0.0.1:7999");
  c.Pass(absl::Seconds(2));
  ASSERT_EQ(c.node("worker-0").shards.size(), 1u);
  EXPECT_EQ(c.node("worker-0").shards[0].routes(0).address(), "127.0.0.1:7999");
  c.Kill(c.node("ps-0"));  // and at once elsewhere, before the workers have noticed
  c.Restart(c.node("ps-0"), "127.0.0.1:8000");
  for (const char* worker : {"worker-0", "worker-1"}) FailShards(c, worker);
  c.answer_evaluations = true;
  c.Pass(absl::Seconds(2));
  ASSERT_NE(c.ReplyTo(ReplyToken{90001}), nullptr);
  EXPECT_TRUE(c.ReplyTo(ReplyToken{90001})->status.ok()) << c.ReplyTo(ReplyToken{90001})->status;

  c.answer_evaluations = false;
  c.Do(EvaluateJob{ReplyToken{90002}, EvaluateOf(id), c.clock().Now() + absl::Minutes(10)});
  c.Settle();
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Seconds(40));
  ASSERT_NE(c.ReplyTo(ReplyToken{90002}), nullptr) << "it waits a while, not for ever";
  EXPECT_THAT(std::string(c.ReplyTo(ReplyToken{90002})->status.message()), HasSubstr("ps-0"));
}

TEST(ClusterCore, EvaluateIsAskedOfWorkersThatWork) {
  Cluster c(1, 4);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.answer_evaluations = false;
  v1::DrainNodeRequest drain;
  drain.set_name("worker-0");
  c.Do(DrainNode{ReplyToken{90000}, drain});
  c.node("worker-1").silent = true;
  c.Pass(absl::Milliseconds(1500));  // less than its lease
  c.Do(EvaluateJob{ReplyToken{90001}, EvaluateOf(id), c.clock().Now() + absl::Minutes(10)});
  c.Settle();
  EXPECT_TRUE(c.node("worker-0").shards.empty()) << "it is drained";
  EXPECT_TRUE(c.node("worker-1").shards.empty()) << "it is silent";
  ASSERT_EQ(c.node("worker-2").shards.size(), 1u);
  EXPECT_EQ(c.node("worker-2").shards[0].shards(), 2u) << "one for each that works";
  c.answer_evaluations = true;
  c.Settle();
  ASSERT_NE(c.ReplyTo(ReplyToken{90001}), nullptr);
  EXPECT_TRUE(c.ReplyTo(ReplyToken{90001})->status.ok());
}

TEST(ClusterCore, AShardWhoseWorkerDoesNotAnswerIsAskedOfAnother) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.node("worker-1").stuck = true;
  const absl::Time begin = c.clock().Now();
  c.Do(EvaluateJob{ReplyToken{90001}, EvaluateOf(id), begin + absl::Hours(10)});
  c.Pass(absl::Seconds(5));
  EXPECT_EQ(c.ReplyTo(ReplyToken{90001}), nullptr) << "it may be at it";
  while (c.ReplyTo(ReplyToken{90001}) == nullptr && c.clock().Now() - begin < absl::Minutes(5))
    c.Pass(absl::Seconds(1));
  ASSERT_NE(c.ReplyTo(ReplyToken{90001}), nullptr);
  EXPECT_EQ(std::get<v1::EvaluateResponse>(c.ReplyTo(ReplyToken{90001})->body).sums().examples(), 16u);
  c.node("worker-1").stuck = false;
  c.Settle();  // too late, and counts for nothing

  // If all workers are slow, the first answer counts, and the shard is handed out again less and less often.
  c.answer_evaluations = false;
  c.Do(EvaluateJob{ReplyToken{90002}, EvaluateOf(id), c.clock().Now() + absl::Hours(10)});
  c.Pass(absl::Minutes(30));
  EXPECT_LE(c.node("worker-0").shards.size(), 8u);
  const v1::EvaluateShard first = c.node("worker-0").shards[0];
  c.node("worker-1").stuck = true;
  c.answer_evaluations = true;
  c.node("worker-0").shards = {first};
  c.Settle();
  EXPECT_EQ(c.ReplyTo(ReplyToken{90002}), nullptr) << "the other half";
  c.node("worker-1").stuck = false;
  c.Settle();
  ASSERT_NE(c.ReplyTo(ReplyToken{90002}), nullptr);
  EXPECT_EQ(std::get<v1::EvaluateResponse>(c.ReplyTo(ReplyToken{90002})->body).sums().examples(), 16u);
}

// A worker that fails at once is not asked again while another one may still be computing the shard.
TEST(ClusterCore, AShardWaitsForTheSlowWorkerWhereTheOtherFails) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.answer_evaluations = false;
  c.Do(EvaluateJob{ReplyToken{90001}, EvaluateOf(id), c.clock().Now() + absl::Hours(10)});
  c.Settle();
  ASSERT_EQ(c.node("worker-0").shards.size(), 1u);
  const v1::EvaluateShard slow = c.node("worker-0").shards[0], fast = c.node("worker-1").shards[0];
  Answer(c, "worker-1", fast, "");
  c.node("worker-1").shards.clear();
  int asked = 0;
  for (int i = 0; i < 600; ++i) {
    c.Pass(absl::Seconds(1));
    for (const v1::EvaluateShard& shard : std::exchange(c.node("worker-1").shards, {})) {
      ++asked;
      Answer(c, "worker-1", shard, "it does not see the data");
    }
  }
  EXPECT_EQ(asked, 1);
  ASSERT_EQ(c.ReplyTo(ReplyToken{90001}), nullptr) << "worker-0 may be at it";
  EXPECT_EQ(c.node("worker-0").shards.size(), 1u) << "and is not asked twice";
  Answer(c, "worker-0", slow, "");
  ASSERT_NE(c.ReplyTo(ReplyToken{90001}), nullptr);
  EXPECT_TRUE(c.ReplyTo(ReplyToken{90001})->status.ok());
}

// A worker of another release may split the data differently: its shard is empty.
TEST(ClusterCore, EvaluateGivesNoFiguresOfAPart) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.answer_evaluations = false;
  c.Do(EvaluateJob{ReplyToken{90001}, EvaluateOf(id), c.clock().Now() + absl::Minutes(10)});
  c.Settle();
  ASSERT_EQ(c.node("worker-0").shards.size(), 1u);
  ASSERT_EQ(c.node("worker-1").shards.size(), 1u);
  Answer(c, "worker-0", c.node("worker-0").shards[0], "");
  const v1::EvaluateShard other = c.node("worker-1").shards[0];
  v1::NodeMessage none;
  none.mutable_evaluated()->set_request_id(other.request_id());
  none.mutable_evaluated()->set_shard(other.shard());
  c.Say(c.node("worker-1"), none);
  ASSERT_NE(c.ReplyTo(ReplyToken{90001}), nullptr);
  EXPECT_EQ(c.ReplyTo(ReplyToken{90001})->status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(c.ReplyTo(ReplyToken{90001})->status.message()),
              HasSubstr("the workers evaluated 8 examples of the test split, which had 16"));
}

TEST(ClusterCore, EvaluateSaysWhyItCannot) {
  Cluster c(1, 1);
  const absl::Time deadline = c.clock().Now() + absl::Minutes(10);
  c.data.set_test_examples(0);
  c.Do(EvaluateJob{ReplyToken{90001}, EvaluateOf(5), deadline});
  EXPECT_EQ(c.ReplyTo(ReplyToken{90001})->status.code(), absl::StatusCode::kNotFound);
  const uint64_t id = c.SubmitOk(c.Spec(1)), queued = c.SubmitOk(c.Spec(1));
  c.Do(EvaluateJob{ReplyToken{90002}, EvaluateOf(id), deadline});
  EXPECT_EQ(c.ReplyTo(ReplyToken{90002})->status.code(), absl::StatusCode::kFailedPrecondition);
  c.Do(EvaluateJob{ReplyToken{90003}, EvaluateOf(queued, v1::TRAIN), deadline});
  EXPECT_EQ(c.ReplyTo(ReplyToken{90003})->status.code(), absl::StatusCode::kFailedPrecondition);
  c.Kill(c.node("worker-0"));
  c.Do(EvaluateJob{ReplyToken{90004}, EvaluateOf(id, v1::TRAIN), deadline});
  EXPECT_EQ(c.ReplyTo(ReplyToken{90004})->status.code(), absl::StatusCode::kUnavailable);
  c.AddWorker("worker-1");
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Seconds(1));
  c.Do(EvaluateJob{ReplyToken{90005}, EvaluateOf(id, v1::TRAIN), deadline});
  EXPECT_EQ(c.ReplyTo(ReplyToken{90005})->status.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cairn
