// Goal: ClusterCore takes jobs from submission to their end through losses, joins, restarts (its own too) and nonsense,
// disturbs no more than it must, and says why a job waits. Driven by a fake cluster on a manual clock.
#include "coordinator/cluster_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "tests/unit/coordinator/fake_cluster.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Cluster : FakeCluster {
  Cluster(int ps, int workers, int slots = 1) {
    for (int i = 0; i < ps; ++i) AddPs(absl::StrCat("ps-", i));
    for (int i = 0; i < workers; ++i) AddWorker(absl::StrCat("worker-", i), slots);
  }
  uint64_t SubmitOk(const v1::JobSpec& spec) {
    const ReplyToken token = Submit(spec);
    const Reply* reply = ReplyTo(token);
    EXPECT_NE(reply, nullptr);
    if (reply != nullptr) {
      EXPECT_TRUE(reply->status.ok()) << reply->status;
    }
    return SubmittedId(token);
  }
  std::vector<int32_t> Assigned(const std::string& worker, uint64_t job) {
    auto it = node(worker).assigned.find(job);
    if (it == node(worker).assigned.end()) return {};
    return {it->second.replicas().begin(), it->second.replicas().end()};
  }
  void Train(int steps) {
    for (int i = 0; i < steps; ++i) {
      TrainStep();
      Settle();
    }
  }
};

TEST(ClusterCore, SubmitTrainSucceed) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  ASSERT_EQ(id, 1u);
  v1::JobStatus job = c.Job(id);
  EXPECT_EQ(job.state(), v1::RUNNING);
  EXPECT_EQ(job.reason(), "");
  EXPECT_EQ(job.generation(), 1u);
  EXPECT_EQ(job.chief(), "worker-0");
  EXPECT_EQ(job.steps_per_epoch(), 5);
  EXPECT_EQ(job.total_steps(), 10);
  EXPECT_EQ(job.parameters(), 8 * 16 + 16 + 16 * 4 + 4);
  ASSERT_EQ(job.partitions_size(), 4);
  EXPECT_EQ(job.partitions(0).primary_address(), "ps-0:1000");
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1));
  EXPECT_THAT(c.Assigned("worker-1", id), ElementsAre(2, 3));
  EXPECT_EQ(c.node("ps-0").hosted.at(id).version.size(), 2u);

  c.Train(7);
  job = c.Job(id);
  EXPECT_EQ(job.step(), 7);
  EXPECT_EQ(job.epoch(), 1);
  ASSERT_EQ(job.epochs_size(), 1);
  EXPECT_EQ(job.epochs(0).train().examples(), 40u);
  EXPECT_EQ(job.epochs(0).train().metrics(0), 20);
  EXPECT_EQ(job.epochs(0).validation().examples(), 8u);
  EXPECT_EQ(job.epoch_sums().examples(), 16u);
  EXPECT_GT(job.images_per_second(), 0);

  c.Train(3);
  job = c.Job(id);
  EXPECT_EQ(job.state(), v1::SUCCEEDED) << job.reason();
  EXPECT_EQ(job.digest(), "d1e5");
  EXPECT_EQ(job.epochs_size(), 2);
  EXPECT_GT(job.finished_unix_ms(), 0);
  EXPECT_TRUE(c.node("worker-0").assigned.empty()) << "released";
  EXPECT_EQ(c.node("ps-0").hosted.at(id).version.size(), 2u) << "kept for export";
}

TEST(ClusterCore, DefaultsComeFromTheCluster) {
  Cluster c(2, 2, 3);
  v1::JobSpec spec = c.Spec(0);
  spec.set_partition_bytes(0);
  const uint64_t id = c.SubmitOk(spec);
  EXPECT_EQ(c.Job(id).spec().replicas(), 6);
  EXPECT_GT(c.Job(id).spec().partition_bytes(), 0);
  EXPECT_GE(c.Job(id).partitions_size(), 2) << "every ps has work";

  spec.set_strategy(v1::MIRRORED);
  spec.set_name("mirrored");
  EXPECT_EQ(c.core().ListJobs(absl::InfinitePast()).jobs(0).job_id(), id);
  Cluster d(1, 2, 3);
  const uint64_t mirrored = d.SubmitOk(spec);
  EXPECT_EQ(d.Job(mirrored).spec().replicas(), 3);
  EXPECT_THAT(d.Assigned("worker-0", mirrored), ElementsAre(0, 1, 2));
  EXPECT_TRUE(d.node("worker-1").assigned.empty());
}

TEST(ClusterCore, BadDataIsRefusedAtSubmission) {
  Cluster c(1, 1);
  c.data_error = "data.path: \"/data/test.csv\" does not exist";
  ReplyToken token = c.Submit(c.Spec());
  ASSERT_NE(c.ReplyTo(token), nullptr);
  EXPECT_EQ(c.ReplyTo(token)->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(c.ReplyTo(token)->status.message()), HasSubstr("does not exist"));
  c.data_error.clear();
  c.data.clear_example_shape();
  c.data.add_example_shape(9);
  token = c.Submit(c.Spec());
  ASSERT_NE(c.ReplyTo(token), nullptr);
  EXPECT_EQ(c.ReplyTo(token)->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(c.core().ListJobs(absl::InfinitePast()).jobs_size(), 0);
}

TEST(ClusterCore, TheSameRequestKeyIsTheSameJob) {
  Cluster c(1, 1);
  c.answer_inspections = false;
  const ReplyToken a = c.Submit(c.Spec(), "key"), b = c.Submit(c.Spec(), "key");
  EXPECT_EQ(c.ReplyTo(a), nullptr) << "the data was not looked at yet";
  c.answer_inspections = true;
  c.Settle();
  EXPECT_EQ(c.SubmittedId(a), 1u);
  EXPECT_EQ(c.SubmittedId(b), 1u);
  EXPECT_EQ(c.SubmittedId(c.Submit(c.Spec(), "key")), 1u);
  EXPECT_EQ(c.SubmittedId(c.Submit(c.Spec(), "other")), 2u);
  const ReplyToken longkey = c.Submit(c.Spec(), std::string(129, 'x'));
  EXPECT_EQ(c.ReplyTo(longkey)->status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(ClusterCore, WithoutWorkersAJobIsQueuedAndItsDataCheckedLater) {
  Cluster c(1, 0);
  const uint64_t good = c.SubmitOk(c.Spec(0));
  EXPECT_EQ(c.State(good), v1::QUEUED);
  EXPECT_THAT(c.Job(good).reason(), HasSubstr("waits for a worker to look at the data"));
  c.AddWorker("worker-0", 2);
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(c.State(good), v1::RUNNING) << c.Job(good).reason();
  EXPECT_EQ(c.Job(good).spec().replicas(), 2);

  Cluster d(1, 0);
  const uint64_t bad = d.SubmitOk(d.Spec());
  d.data_error = "no such file";
  d.AddWorker("worker-0");
  d.Pass(absl::Seconds(1));
  EXPECT_EQ(d.State(bad), v1::FAILED);
  EXPECT_THAT(d.Job(bad).reason(), HasSubstr("no such file"));
}

TEST(ClusterCore, InspectionGoesToAnotherWorker) {
  Cluster c(1, 3);
  c.answer_inspections = false;
  const ReplyToken token = c.Submit(c.Spec());
  EXPECT_EQ(c.node("worker-0").inspections.size(), 1u);
  c.Kill(c.node("worker-0"));
  c.Settle();
  EXPECT_EQ(c.node("worker-1").inspections.size(), 1u) << "after a loss";
  c.Pass(c.options.inspect_timeout + absl::Seconds(1));
  EXPECT_EQ(c.node("worker-2").inspections.size(), 1u) << "after the timeout";
  c.Pass(c.options.inspect_timeout + absl::Seconds(1));
  ASSERT_NE(c.ReplyTo(token), nullptr) << "no call waits for ever";
  EXPECT_EQ(c.ReplyTo(token)->status.code(), absl::StatusCode::kUnavailable);
}

TEST(ClusterCore, ALostWorkersReplicasMoveAndNothingElse) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(3);
  c.ClearCommands();
  c.Kill(c.node("worker-1"));
  c.Pass(absl::Milliseconds(400));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1)) << "it has half a second to come back";
  c.Pass(absl::Milliseconds(300));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(c.Logged("job 1: replicas 2,3 move from worker \"worker-1\" to \"worker-0\""));
  EXPECT_EQ(c.Job(id).generation(), 1u) << "the routes are the same";
  EXPECT_EQ(c.node("ps-0").commands + c.node("ps-1").commands, 0);
  EXPECT_EQ(c.node("worker-0").commands, 1);
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
  EXPECT_EQ(c.TrueStep(id), 10);
}

TEST(ClusterCore, ASilentWorkerIsLostWithItsLease) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  // Its session stays open, but nothing is heard of it.
  const SessionToken session = c.node("worker-1").session;
  c.node("worker-1").session = {};
  c.Pass(absl::Seconds(2.5));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1));
  c.Pass(absl::Seconds(1));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1, 2, 3));
  // What it says on the old session is not listened to.
  v1::NodeMessage message;
  message.mutable_job_error()->set_job_id(id);
  c.Do(NodeSays{session, message});
  EXPECT_EQ(c.State(id), v1::RUNNING);
}

TEST(ClusterCore, AQuickReconnectDisturbsNothing) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(2);
  c.ClearCommands();
  for (const char* name : {"worker-0", "worker-1", "ps-0", "ps-1"}) {
    c.BreakSession(c.node(name));
    c.Pass(absl::Milliseconds(200));
    c.Connect(c.node(name));
    c.Settle();
    EXPECT_EQ(c.node(name).commands, 0) << name;
  }
  EXPECT_EQ(c.Job(id).generation(), 1u);
  EXPECT_TRUE(c.RunToEnd(id));
}

TEST(ClusterCore, AWorkerThatJoinsTakesItsShare) {
  Cluster c(1, 1);
  v1::JobSpec spec = c.Spec();
  const uint64_t id = c.SubmitOk(spec);
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1, 2, 3));
  c.Train(2);
  c.AddWorker("worker-1");
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1));
  EXPECT_THAT(c.Assigned("worker-1", id), ElementsAre(2, 3));
  EXPECT_TRUE(c.RunToEnd(id));

  spec.set_max_workers(1);
  Cluster d(1, 1);
  const uint64_t limited = d.SubmitOk(spec);
  d.AddWorker("worker-1");
  EXPECT_THAT(d.Assigned("worker-0", limited), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(d.node("worker-1").assigned.empty());
  d.Kill(d.node("worker-0"));
  d.Pass(absl::Seconds(1));
  EXPECT_THAT(d.Assigned("worker-1", limited), ElementsAre(0, 1, 2, 3)) << "in its place";
}

TEST(ClusterCore, WithoutAnyWorkerAJobWaitsAndGoesOn) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(2);
  c.Kill(c.node("worker-0"));
  c.Pass(absl::Seconds(2));
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("waits for a worker"));
  c.AddWorker("worker-9");
  EXPECT_EQ(c.Job(id).reason(), "");
  EXPECT_EQ(c.Job(id).chief(), "worker-9");
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

TEST(ClusterCore, APsThatReturnRaisesTheGeneration) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(3);
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_EQ(c.Job(id).reason(), "waits for ps \"ps-1\" to come back (its data directory holds 2 partitions); restart it");
  c.ClearCommands();
  c.Restart(c.node("ps-1"), "ps-1:2000");
  EXPECT_EQ(c.Job(id).generation(), 2u);
  EXPECT_EQ(c.Job(id).reason(), "");
  EXPECT_EQ(c.node("ps-0").hosted.at(id).generation, 2u) << "all ps learn the generation";
  for (const char* worker : {"worker-0", "worker-1"}) {
    const v1::AssignReplicas& assign = c.node(worker).assigned.at(id);
    EXPECT_EQ(assign.generation(), 2u);
    EXPECT_EQ(assign.routes(1).address(), "ps-1:2000");
    EXPECT_EQ(c.node(worker).commands, 1);
  }
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

TEST(ClusterCore, APsThatLostItsDataFailsTheJob) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(3);
  c.Kill(c.node("ps-0"));
  c.node("ps-0").hosted.clear();
  c.Restart(c.node("ps-0"));
  EXPECT_EQ(c.State(id), v1::FAILED);
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("ps \"ps-0\" came back without partition"));
  EXPECT_TRUE(c.node("worker-0").assigned.empty());

  Cluster d(2, 1);
  const uint64_t old = d.SubmitOk(d.Spec());
  d.Train(2);
  const FakeNode::Hosted copy = d.node("ps-0").hosted.at(old);
  d.Train(4);
  d.Kill(d.node("ps-0"));
  d.node("ps-0").hosted[old] = copy;
  d.Restart(d.node("ps-0"));
  EXPECT_EQ(d.State(old), v1::FAILED);
  EXPECT_THAT(d.Job(old).reason(), HasSubstr("old copy"));
}

TEST(ClusterCore, BeforeTheFirstStepPartitionsArePlacedElsewhere) {
  Cluster c(2, 1);
  // ps-1 hears its command and dies before it answers.
  c.Do(Tick{});
  c.answer_inspections = false;
  const ReplyToken token = c.Submit(c.Spec());
  c.Kill(c.node("ps-1"));  // the session is broken, the node not yet dead
  c.Pass(absl::Milliseconds(100));
  c.answer_inspections = true;
  c.Settle();
  c.Pass(absl::Seconds(1));
  const uint64_t id = c.SubmittedId(token);
  EXPECT_EQ(c.State(id), v1::RUNNING) << c.Job(id).reason();
  const v1::JobStatus job = c.Job(id);
  for (const auto& p : job.partitions()) EXPECT_EQ(p.primary(), "ps-0");
}

TEST(ClusterCore, QueueGoesByPriorityThenAge) {
  Cluster c(1, 1);
  v1::JobSpec spec = c.Spec(1);
  const uint64_t running = c.SubmitOk(spec);
  const uint64_t first = c.SubmitOk(spec);
  const uint64_t second = c.SubmitOk(spec);
  spec.set_priority(5);
  const uint64_t urgent = c.SubmitOk(spec);
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(c.State(running), v1::RUNNING);
  EXPECT_THAT(c.Job(urgent).reason(), HasSubstr("waits for free slots"));
  EXPECT_TRUE(c.RunToEnd(running));
  EXPECT_EQ(c.State(urgent), v1::RUNNING);
  EXPECT_EQ(c.State(first), v1::QUEUED);
  EXPECT_TRUE(c.RunToEnd(urgent));
  EXPECT_EQ(c.State(first), v1::RUNNING);
  EXPECT_EQ(c.State(second), v1::QUEUED);
}

TEST(ClusterCore, JobsShareAClusterWithFreeSlots) {
  Cluster c(1, 2, 2);
  const uint64_t a = c.SubmitOk(c.Spec(2)), b = c.SubmitOk(c.Spec(2));
  EXPECT_EQ(c.State(a), v1::RUNNING);
  EXPECT_EQ(c.State(b), v1::RUNNING);
  const v1::ListNodesResponse list = c.core().ListNodes();
  for (const v1::NodeStatus& node : list.nodes()) {
    EXPECT_EQ(node.slots_used(), node.role() == v1::WORKER ? 2 : 0) << node.name();
    EXPECT_EQ(node.partitions(), node.role() == v1::PS ? 8 : 0) << node.name();
  }
  EXPECT_EQ(c.State(c.SubmitOk(c.Spec(2))), v1::QUEUED);
}

TEST(ClusterCore, MinWorkers) {
  Cluster c(1, 1);
  v1::JobSpec spec = c.Spec(4);
  spec.set_min_workers(2);
  const uint64_t id = c.SubmitOk(spec);
  EXPECT_EQ(c.State(id), v1::QUEUED);
  EXPECT_EQ(c.Job(id).reason(), "waits for workers: 1 alive, min_workers is 2");
  EXPECT_EQ(c.State(c.SubmitOk(c.Spec(1))), v1::RUNNING)
      << "the cluster is too small for the first one: others need not wait";
  c.AddWorker("worker-1");
  EXPECT_EQ(c.State(id), v1::QUEUED) << "worker-0 is busy";
  EXPECT_TRUE(c.RunToEnd(2));
  c.Pass(absl::Milliseconds(200));
  EXPECT_EQ(c.State(id), v1::RUNNING);
}

TEST(ClusterCore, CancelAndDelete) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(c.Spec(1)), queued = c.SubmitOk(c.Spec(1));
  c.Train(2);
  v1::GetJobRequest request;
  request.set_job_id(id);
  c.Do(DeleteJob{ReplyToken{9001}, request});
  EXPECT_EQ(c.ReplyTo(ReplyToken{9001})->status.code(), absl::StatusCode::kFailedPrecondition);
  for (uint64_t token : {9002, 9003}) {  // idempotent
    c.Do(CancelJob{ReplyToken{token}, request});
    c.Settle();
    EXPECT_EQ(std::get<v1::JobStatus>(c.ReplyTo(ReplyToken{token})->body).state(), v1::CANCELLED);
  }
  EXPECT_FALSE(c.node("worker-0").assigned.contains(id));
  EXPECT_TRUE(c.node("ps-0").hosted.contains(id)) << "the weights reached are kept";
  EXPECT_EQ(c.State(queued), v1::RUNNING) << "its slots are free";
  c.Do(DeleteJob{ReplyToken{9004}, request});
  c.Settle();
  EXPECT_TRUE(c.ReplyTo(ReplyToken{9004})->status.ok());
  EXPECT_FALSE(c.node("ps-0").hosted.contains(id));
  EXPECT_FALSE(c.disk.contains("job/1"));
  c.Do(DeleteJob{ReplyToken{9005}, request});
  EXPECT_TRUE(c.ReplyTo(ReplyToken{9005})->status.ok()) << "idempotent";
  c.Do(CancelJob{ReplyToken{9006}, request});
  EXPECT_EQ(c.ReplyTo(ReplyToken{9006})->status.code(), absl::StatusCode::kNotFound);
  request.Clear();
  request.set_name("test");
  c.Do(CancelJob{ReplyToken{9007}, request});
  EXPECT_EQ(std::get<v1::JobStatus>(c.ReplyTo(ReplyToken{9007})->body).job_id(), queued) << "by name";
}

TEST(ClusterCore, AJobErrorNamesTheNode) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  v1::NodeMessage message;
  message.mutable_job_error()->set_job_id(id);
  message.mutable_job_error()->set_generation(77);
  message.mutable_job_error()->set_message("layer \"dense\": not a number");
  c.Say(c.node("worker-1"), message);
  EXPECT_EQ(c.State(id), v1::RUNNING) << "of another generation";
  message.mutable_job_error()->set_generation(1);
  c.Say(c.node("worker-1"), message);
  c.Settle();
  EXPECT_EQ(c.State(id), v1::FAILED);
  EXPECT_EQ(c.Job(id).reason(), "worker \"worker-1\": layer \"dense\": not a number");
  EXPECT_TRUE(c.node("worker-0").assigned.empty());
}

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
  EXPECT_EQ(std::get<v1::EvaluateResponse>(c.ReplyTo(ReplyToken{90002})->body).sums().examples(), 16u);

  c.answer_evaluations = false;
  c.Do(EvaluateJob{ReplyToken{90003}, EvaluateOf(id), c.clock().Now() + absl::Seconds(5)});
  c.Pass(absl::Seconds(6));
  ASSERT_NE(c.ReplyTo(ReplyToken{90003}), nullptr);
  EXPECT_EQ(c.ReplyTo(ReplyToken{90003})->status.code(), absl::StatusCode::kDeadlineExceeded);
}

void FailShards(Cluster& c, const std::string& worker) {
  for (const v1::EvaluateShard& shard : std::exchange(c.node(worker).shards, {})) {
    v1::NodeMessage failed;
    failed.mutable_evaluated()->set_request_id(shard.request_id());
    failed.mutable_evaluated()->set_shard(shard.shard());
    failed.mutable_evaluated()->set_error("ps \"ps-0\": connection refused");
    c.Say(c.node(worker), failed);
  }
}

// Workers that cannot reach a ps which is away, or was elsewhere when they were told, have not failed.
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

TEST(ClusterCore, TwinsAreRefusedUntilTheFirstIsGone) {
  Cluster c(1, 1);
  FakeNode& twin = c.AddWorker("worker-1");
  FakeNode first = twin;
  twin.hello.set_incarnation(4711);
  c.Connect(twin);
  ASSERT_TRUE(twin.closed.has_value());
  EXPECT_EQ(twin.closed->code(), absl::StatusCode::kAlreadyExists);
  c.Pass(absl::Seconds(4));  // nobody speaks on the first one's session any more
  c.Connect(twin);
  EXPECT_FALSE(twin.closed.has_value());
  // The same process on a new stream takes over at once.
  const SessionToken old = twin.session;
  c.Connect(twin);
  EXPECT_FALSE(twin.closed.has_value());
  c.Do(SessionClosed{old});
  c.Pass(absl::Seconds(1));
  const v1::ListNodesResponse list = c.core().ListNodes();
  for (const auto& node : list.nodes()) EXPECT_TRUE(node.alive()) << node.name();
}

TEST(ClusterCore, DeadNodesAreListedForAWhile) {
  Cluster c(0, 1);
  c.Kill(c.node("worker-0"));
  c.Pass(absl::Seconds(1));
  ASSERT_EQ(c.core().ListNodes().nodes_size(), 1);
  EXPECT_FALSE(c.core().ListNodes().nodes(0).alive());
  c.clock().Advance(absl::Hours(2));
  c.Do(Tick{});
  EXPECT_EQ(c.core().ListNodes().nodes_size(), 0);
}

TEST(ClusterCore, AStalledJobSaysSo) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(1);
  c.Pass(absl::Seconds(30));
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("no step was finished for a while: replicas 0-3 are behind, on worker-0"));
  c.Train(1);
  c.Pass(absl::Milliseconds(100));
  EXPECT_EQ(c.Job(id).reason(), "");
}

TEST(ClusterCore, FinishedJobsAreForgottenInTheEnd) {
  Cluster c(1, 0);
  v1::GetJobRequest request;
  for (int i = 0; i < kFinishedJobsKept + 5; ++i) {
    request.set_job_id(c.SubmitOk(c.Spec()));
    c.Do(CancelJob{ReplyToken{100000u + i}, request});
    c.clock().Advance(absl::Seconds(1));
  }
  EXPECT_EQ(c.core().ListJobs(absl::InfinitePast()).jobs_size(), kFinishedJobsKept);
  EXPECT_EQ(c.core().ListJobs(absl::InfinitePast()).jobs(0).job_id(), kFinishedJobsKept + 5u);
  EXPECT_FALSE(c.disk.contains("job/1"));
}

TEST(ClusterCore, TheQueueIsBounded) {
  Cluster c(0, 0);
  for (int i = 0; i < kJobsQueuedMax; ++i) c.SubmitOk(c.Spec());
  EXPECT_EQ(c.ReplyTo(c.Submit(c.Spec()))->status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(ClusterCore, NonsenseFromNodesChangesNothing) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(c.Spec());
  const std::string before = c.Job(id).SerializeAsString();
  std::vector<v1::NodeMessage> messages(1);  // no kind at all
  messages.emplace_back().mutable_hello()->set_name("again");
  for (uint64_t job : {uint64_t{0}, uint64_t{99}, id}) {
    for (uint64_t generation : {0, 1, 99}) {
      for (int replica : {-1, 4, 1 << 30}) {
        v1::ReplicaReport& report = *messages.emplace_back().mutable_replica_report();
        report.set_job_id(job);
        report.set_generation(generation);
        report.set_replica(replica);
        report.mutable_train()->set_examples(1);
      }
      v1::ReplicaReport& steps = *messages.emplace_back().mutable_replica_report();
      steps.set_job_id(job);
      steps.set_first_step(3);
      steps.set_last_step(7);  // of two epochs
      steps.mutable_train()->set_examples(1);
      v1::ReplicaReport& far = *messages.emplace_back(messages.back()).mutable_replica_report();
      far.set_last_step(INT64_MAX);
      v1::ReplicaReport& validation = *messages.emplace_back().mutable_replica_report();
      validation.set_job_id(job);
      validation.set_validation_epoch(-5);
      validation.mutable_validation()->set_examples(1);
      v1::PartitionsReady& ready = *messages.emplace_back().mutable_partitions_ready();
      ready.set_job_id(job);
      ready.set_generation(generation);
      ready.add_partitions()->set_partition(UINT32_MAX);
    }
    messages.emplace_back().mutable_data_info()->set_request_id(job);
    messages.emplace_back().mutable_evaluated()->set_request_id(job);
    messages.emplace_back().mutable_evaluated()->set_shard(UINT32_MAX);
    messages.emplace_back().mutable_finalized()->set_job_id(job);
    v1::JobError& error = *messages.emplace_back().mutable_job_error();
    error.set_job_id(job);
    error.set_generation(12345);
  }
  for (const v1::NodeMessage& message : messages) {
    for (const char* name : {"ps-0", "worker-0"}) c.Say(c.node(name), message);
    c.Do(NodeSays{SessionToken{987654}, message});
  }
  c.Do(SessionClosed{SessionToken{987654}});
  EXPECT_EQ(c.Job(id).SerializeAsString(), before);
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

TEST(ClusterCore, BadHellosAreRefusedWithTheField) {
  Cluster c(0, 0);
  FakeNode& node = c.AddWorker("good");
  auto refused = [&](auto change) {
    FakeNode& bad = c.node("good");
    const v1::Hello good = bad.hello;
    change(bad.hello);
    c.Connect(bad);
    bad.hello = good;
    return bad.closed.has_value() ? std::string(bad.closed->message()) : std::string();
  };
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_name(""); }), HasSubstr("hello.name"));
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_name(std::string(64, 'x')); }), HasSubstr("hello.name"));
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_name("a b"); }), HasSubstr("hello.name"));
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_role(v1::COORDINATOR); }), HasSubstr("hello.role"));
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_slots(0); }), HasSubstr("hello.slots"));
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_slots(-1); }), HasSubstr("hello.slots"));
  EXPECT_THAT(refused([](v1::Hello& h) {
                h.set_role(v1::PS);
                h.set_name("p");
              }),
              HasSubstr("hello.address"));
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_device(std::string(5000, 'd')); }), HasSubstr("device"));
  c.Connect(node);
  EXPECT_FALSE(node.closed.has_value());
}

TEST(ClusterCore, ReportsCountOnceAndLostOnesDelayNothing) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(c.Spec(1));
  v1::NodeMessage message;
  v1::ReplicaReport& report = *message.mutable_replica_report();
  report.set_job_id(id);
  report.set_first_step(0);
  report.set_last_step(2);
  report.mutable_train()->set_examples(24);
  for (int i = 0; i < 3; ++i) c.Say(c.node("worker-0"), message);
  EXPECT_EQ(c.Job(id).step(), 3);
  EXPECT_EQ(c.Job(id).epoch_sums().examples(), 24u);
  // Steps 3 and 4 were reported by a worker that is gone; its heartbeat had said that the epoch was over.
  v1::NodeMessage beat;
  v1::JobProgress& progress = *beat.mutable_heartbeat()->add_progress();
  progress.set_job_id(id);
  progress.set_step(6);
  c.Say(c.node("worker-0"), beat);
  EXPECT_EQ(c.Job(id).step(), 6);
  EXPECT_EQ(c.Job(id).epochs_size(), 0) << "late reports have a moment";
  c.Pass(absl::Seconds(3));
  ASSERT_EQ(c.Job(id).epochs_size(), 1);
  EXPECT_EQ(c.Job(id).epochs(0).train().examples(), 24u);
}

TEST(ClusterCore, FiguresLostForSeveralEpochsAreWaitedForOnce) {
  Cluster c(1, 1);
  v1::JobSpec spec = c.Spec(1);
  spec.set_epochs(20);
  const uint64_t id = c.SubmitOk(spec);
  // The reports of 19 epochs were lost with a session; then the worker says that it is done.
  v1::NodeMessage message;
  message.mutable_replica_report()->set_job_id(id);
  message.mutable_replica_report()->set_finished(true);
  c.Say(c.node("worker-0"), message);
  c.Pass(absl::Seconds(5));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
  EXPECT_EQ(c.Job(id).epochs_size(), 20);
}

TEST(ClusterCore, AnEpochsSecondsAreThoseOfItsTraining) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(c.Spec(1));
  auto report = [&](int first, int last, int validation_epoch, bool train) {
    v1::NodeMessage message;
    v1::ReplicaReport& r = *message.mutable_replica_report();
    r.set_job_id(id);
    if (train) {
      r.set_first_step(first);
      r.set_last_step(last);
      r.mutable_train()->set_examples(40);
    } else {
      r.set_validation_epoch(validation_epoch);
      r.mutable_validation()->set_examples(8);
    }
    c.Say(c.node("worker-0"), message);
  };
  c.Pass(absl::Seconds(4));
  report(0, 4, 0, true);
  c.Pass(absl::Seconds(3));
  EXPECT_EQ(c.Job(id).epochs_size(), 0) << "its validation is still computed";
  report(0, 0, 0, false);
  c.Pass(absl::Seconds(2));
  report(5, 9, 0, true);
  report(0, 0, 1, false);
  ASSERT_EQ(c.Job(id).epochs_size(), 2);
  EXPECT_NEAR(c.Job(id).epochs(0).seconds(), 4, 0.11);
  EXPECT_NEAR(c.Job(id).epochs(1).seconds(), 2, 0.11);
}

// ---- the coordinator's own restarts ----

TEST(ClusterCore, ARestartThatNobodyNotices) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(3);
  c.RestartCoordinator();
  c.Train(1);  // training goes on without it
  c.ClearCommands();
  c.ReconnectAll();
  c.Settle();
  c.Pass(absl::Seconds(1));
  for (const char* name : {"worker-0", "worker-1", "ps-0", "ps-1"}) EXPECT_EQ(c.node(name).commands, 0) << name;
  EXPECT_EQ(c.Job(id).generation(), 1u);
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_EQ(c.Job(id).reason(), "");
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
  EXPECT_EQ(c.TrueStep(id), 10);
}

TEST(ClusterCore, EverythingRestartsAtTheSameAddresses) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(3);
  const std::vector<std::string> names{"ps-0", "ps-1", "worker-0", "worker-1"};
  for (const std::string& name : names) c.Kill(c.node(name));
  c.RestartCoordinator();
  for (const std::string& name : names) c.Restart(c.node(name));
  EXPECT_TRUE(c.RunToEnd(id)) << c.Job(id).reason();
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

TEST(ClusterCore, NodesThatDoNotComeBackAfterARestartAreLost) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.node("worker-1").running = false;
  c.node("worker-1").assigned.clear();
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Settle();
  c.Pass(absl::Seconds(4));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1)) << "it is waited for";
  c.Pass(absl::Seconds(2));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1, 2, 3));
}

TEST(ClusterCore, AQueuedJobWaitsForTheClusterAfterARestart) {
  Cluster c(2, 2);
  c.answer_inspections = false;
  v1::JobSpec spec = c.Spec();
  const ReplyToken token = c.Submit(spec);
  c.Kill(c.node("worker-0"));
  c.Kill(c.node("worker-1"));
  c.Settle();
  const uint64_t id = c.SubmittedId(token);
  ASSERT_NE(id, 0u) << "accepted without a look at the data";
  c.answer_inspections = true;
  c.RestartCoordinator();
  for (const char* name : {"ps-0", "ps-1"}) c.Connect(c.node(name));
  for (const char* name : {"worker-0", "worker-1"}) c.Restart(c.node(name));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

// A run with a loss, a join, a ps restart and a finish; the coordinator dies before effect number `at`. True: it did.
bool RunWithCrash(int at) {
  FakeCluster c;
  c.CrashAt(at);
  for (const char* name : {"ps-0", "ps-1"}) c.AddPs(name);
  for (const char* name : {"worker-0", "worker-1"}) c.AddWorker(name);
  uint64_t id = 0;
  bool killed = false, joined = false, restarted = false;
  for (int round = 0; round < 1000; ++round) {
    c.ReconnectAll();
    c.Settle();
    if (id == 0) id = c.SubmittedId(c.Submit(c.Spec(), "key"));  // a client tries again with the same key
    if (id != 0 && c.State(id) == v1::SUCCEEDED) break;
    c.Pass(absl::Milliseconds(300));
    c.TrainStep();
    if (!killed && c.TrueStep(id) >= 3) {
      killed = true;
      c.Kill(c.node("worker-1"));
    }
    if (!joined && c.TrueStep(id) >= 5) {
      joined = true;
      c.AddWorker("worker-2");
    }
    if (!restarted && c.TrueStep(id) >= 7) {
      restarted = true;
      c.Kill(c.node("ps-0"));
      c.Restart(c.node("ps-0"), "ps-0:2000");
    }
  }
  EXPECT_NE(id, 0u);
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << JobStateText(c.State(id)) << ": " << c.Job(id).reason();
  EXPECT_EQ(c.TrueStep(id), 10);
  EXPECT_EQ(c.Job(id).epochs_size(), 2);
  EXPECT_EQ(c.core().ListJobs(absl::InfinitePast()).jobs_size(), 1);
  c.ReconnectAll();
  c.Settle();
  for (const char* name : {"worker-0", "worker-2"}) EXPECT_TRUE(c.node(name).assigned.empty()) << name;
  return c.crashed();
}

TEST(ClusterCore, ACrashAtAnyPointOfARun) {
  ASSERT_FALSE(RunWithCrash(-1));
  int at = 0;
  for (;; ++at) {
    SCOPED_TRACE(at);
    if (!RunWithCrash(at) || HasFailure()) break;
  }
  EXPECT_GT(at, 50) << "the run has that many effects";
}

// Kills, restarts, broken sessions, joins and the coordinator's own crashes in random order: every job ends well all
// the same, and what the nodes hold and run in the end is what the coordinator thinks.
TEST(ClusterCore, RandomFaults) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrFormat("seed %d", seed));
    std::mt19937_64 random(seed);
    FakeCluster c;
    std::vector<std::string> names;
    for (int i = 0; i < 2; ++i) c.AddPs(names.emplace_back(absl::StrCat("ps-", i)));
    for (int i = 0; i < 3; ++i)
      c.AddWorker(names.emplace_back(absl::StrCat("worker-", i)), 1 + static_cast<int>(random() % 3));
    std::vector<std::string> keys{"a", "b", "c"};
    std::map<std::string, uint64_t> ids;
    int faults = 12;
    bool done = false;
    for (int round = 0; round < 3000 && !done; ++round) {
      for (const std::string& key : keys) {
        if (ids[key] != 0) continue;
        v1::JobSpec spec = c.Spec(1 + static_cast<int>(random() % 8));
        spec.set_priority(static_cast<int>(random() % 3));
        if (random() % 4 == 0) spec.set_strategy(v1::MIRRORED);
        ids[key] = c.SubmittedId(c.Submit(spec, key));
      }
      if (faults > 0 && random() % 3 == 0) {
        --faults;
        FakeNode& node = c.node(names[random() % names.size()]);
        switch (random() % 5) {
          case 0:
            c.Kill(node);
            break;
          case 1:
            c.BreakSession(node);
            break;
          case 2:
            c.RestartCoordinator();
            break;
          case 3:
            c.CrashSoon(static_cast<int>(random() % 30));
            break;
          case 4:
            c.Kill(node);
            c.Restart(node, random() % 2 == 0 ? "" : absl::StrCat(node.hello.name(), ":", 2000 + round));
            break;
        }
      }
      for (const std::string& name : names) {
        FakeNode& node = c.node(name);
        if (!node.running && random() % 8 == 0) c.Restart(node);
        if (node.running && node.session.value == 0 && random() % 2 == 0) c.Connect(node);
      }
      c.Settle();
      c.Pass(absl::Milliseconds(100 * (1 + random() % 8)));
      if (random() % 2 == 0) c.TrainStep();
      c.Settle();
      done = true;
      for (const std::string& key : keys) done = done && ids[key] != 0 && c.State(ids[key]) == v1::SUCCEEDED;
    }
    for (const std::string& key : keys) {
      const v1::JobStatus job = c.Job(ids[key]);
      ASSERT_EQ(job.state(), v1::SUCCEEDED) << JobStateText(job.state()) << ": " << job.reason();
      EXPECT_EQ(job.epochs_size(), 2);
      EXPECT_EQ(c.TrueStep(ids[key]), 10);
    }
    for (const std::string& name : names) {
      if (!c.node(name).running) c.Restart(c.node(name));
    }
    c.ReconnectAll();
    c.Settle();
    for (const std::string& name : names) EXPECT_TRUE(c.node(name).assigned.empty()) << name;
    EXPECT_EQ(c.core().ListJobs(absl::InfinitePast()).jobs_size(), 3);
  }
}

}  // namespace
}  // namespace cairn
