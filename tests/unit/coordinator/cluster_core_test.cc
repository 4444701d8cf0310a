// Goal: ClusterCore takes jobs from submission to their end, in the order of the queue, counts their figures once, and
// says why a job waits. Driven by a fake cluster on a manual clock.
#include "coordinator/core/cluster_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/limits.h"
#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

  EXPECT_FALSE(job.has_images_per_second()) << "not measured yet";

  for (int i = 0; i < 7; ++i) {
    c.Pass(absl::Milliseconds(100));
    c.Train(1);
  }
  job = c.Job(id);
  EXPECT_EQ(job.step(), 7);
  EXPECT_EQ(job.epoch(), 1);
  ASSERT_EQ(job.epochs_size(), 1);
  EXPECT_EQ(job.epochs(0).train().examples(), 40u);
  EXPECT_EQ(job.epochs(0).train().metrics(0), 20);
  EXPECT_EQ(job.epochs(0).validation().examples(), 8u);
  EXPECT_EQ(job.epoch_sums().examples(), 16u);
  EXPECT_NEAR(job.images_per_second(), 80, 1);

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
  spec.clear_partition_bytes();
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

TEST(ClusterCore, AWorkerThatDoesNotSeeTheDataIsNoReasonToRefuse) {
  Cluster c(1, 3);
  c.node("worker-0").blind = "data.path: /data/x: no such file";
  const ReplyToken token = c.Submit(c.Spec());
  const Reply* reply = c.ReplyTo(token);
  ASSERT_NE(reply, nullptr);
  ASSERT_TRUE(reply->status.ok()) << reply->status;
  const uint64_t id = c.SubmittedId(token);
  const auto& response = std::get<v1::SubmitResponse>(reply->body);
  ASSERT_EQ(response.warnings_size(), 1);
  EXPECT_EQ(response.warnings(0),
            "continues without worker \"worker-0\", which cannot work for it: data.path: /data/x: no such file");
  EXPECT_TRUE(c.node("worker-0").assigned.empty());
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("continues without worker \"worker-0\", which cannot work for it"));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);

  for (const char* name : {"worker-0", "worker-1", "worker-2"}) c.node(name).blind = "data.path: /data/x: no such file";
  reply = c.ReplyTo(c.Submit(c.Spec()));
  ASSERT_NE(reply, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(reply->status));
  EXPECT_EQ(reply->status.message(),
            "data.path: /data/x: no such file (as workers \"worker-0\", \"worker-1\", \"worker-2\" see it)");
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
  EXPECT_TRUE(c.node("worker-0").cancelled.contains(id)) << "so that it gives up what it is writing";
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

TEST(ClusterCore, TheQueueIsBounded) {
  Cluster c(0, 0);
  for (int i = 0; i < kJobsQueuedMax; ++i) c.SubmitOk(c.Spec());
  EXPECT_EQ(c.ReplyTo(c.Submit(c.Spec()))->status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(ClusterCore, FiguresAreThoseOfTheFirstPartition) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(c.Spec(1));
  v1::NodeMessage message;
  v1::ReplicaReport& report = *message.mutable_replica_report();
  report.set_job_id(id);
  report.set_last_step(2);
  for (int i = 0; i < 3; ++i) c.Say(c.node("worker-0"), message);
  c.SayFigures(id, 3, 0, 24);
  c.SayFigures(id, 3, 0, 24);
  EXPECT_EQ(c.Job(id).step(), 3);
  EXPECT_EQ(c.Job(id).epoch_sums().examples(), 24u);
  // Steps 3 and 4 are done, but the ps is away and has not reported them.
  c.BreakSession(c.node("ps-0"));
  v1::NodeMessage beat;
  v1::JobProgress& progress = *beat.mutable_heartbeat()->add_progress();
  progress.set_job_id(id);
  progress.set_step(6);
  c.Say(c.node("worker-0"), beat);
  EXPECT_EQ(c.Job(id).step(), 6);
  c.Pass(absl::Seconds(3));
  EXPECT_EQ(c.Job(id).epochs_size(), 0) << "its figures are waited for";
  c.SayFigures(id, 6, 0, 40);  // once it is back
  c.Connect(c.node("ps-0"));
  c.Pass(absl::Seconds(3));
  ASSERT_EQ(c.Job(id).epochs_size(), 1);
  EXPECT_EQ(c.Job(id).epochs(0).train().examples(), 40u);
}

// What a worker sent before it got more replicas does not describe these: a replica that is behind would count as being
// as far as the others.
TEST(ClusterCore, AHeartbeatIsOfTheReplicasThatItsAssignmentNames) {
  Cluster c(1, 2);
  v1::JobSpec spec = FakeCluster::Spec();
  spec.set_epochs(20);
  spec.set_strategy(v1::PARAMETER_SERVER);
  const uint64_t id = c.SubmitOk(spec);
  const auto beat = [&](uint64_t assignment, int64_t step) {
    v1::NodeMessage message;
    v1::JobProgress& progress = *message.mutable_heartbeat()->add_progress();
    progress.set_job_id(id);
    progress.set_generation(c.Job(id).generation());
    progress.set_assignment(assignment);
    progress.set_step(step);
    c.Say(c.node("worker-0"), message);
  };
  const uint64_t before = c.node("worker-0").assigned.at(id).assignment();
  c.Kill(c.node("worker-1"));
  c.Pass(absl::Seconds(10));
  const uint64_t now = c.node("worker-0").assigned.at(id).assignment();
  ASSERT_GT(now, before);
  const int64_t step = c.Job(id).step();
  beat(before, step + 5);
  EXPECT_EQ(c.Job(id).step(), step);
  beat(now, step + 3);
  EXPECT_EQ(c.Job(id).step(), step + 3);
  beat(0, step + 4);  // a worker of an earlier version
  EXPECT_EQ(c.Job(id).step(), step + 4);
}

TEST(ClusterCore, ValidationsLostForSeveralEpochsAreWaitedForOnce) {
  Cluster c(1, 1);
  v1::JobSpec spec = c.Spec(1);
  spec.set_epochs(20);
  const uint64_t id = c.SubmitOk(spec);
  // The reports of 19 epochs were lost with a session; then the worker reports that it is done.
  c.SayFigures(id, 100, 19, 40);
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
  auto report = [&](int last, int validation_epoch, bool train) {
    v1::NodeMessage message;
    v1::ReplicaReport& r = *message.mutable_replica_report();
    r.set_job_id(id);
    if (train) {
      r.set_last_step(last);
      c.SayFigures(id, static_cast<uint64_t>(last) + 1, last / 5, 40);
    } else {
      r.set_validation_epoch(validation_epoch);
      r.mutable_validation()->set_examples(8);
    }
    c.Say(c.node("worker-0"), message);
  };
  c.Pass(absl::Seconds(4));
  report(4, 0, true);
  c.Pass(absl::Seconds(3));
  EXPECT_EQ(c.Job(id).epochs_size(), 0) << "its validation is still computed";
  report(0, 0, false);
  c.Pass(absl::Seconds(2));
  report(9, 0, true);
  report(0, 1, false);
  ASSERT_EQ(c.Job(id).epochs_size(), 2);
  EXPECT_NEAR(c.Job(id).epochs(0).seconds(), 4, 0.11);
  EXPECT_NEAR(c.Job(id).epochs(1).seconds(), 2, 0.11);
}

// The coordinator has not noticed that the old session broke; answers that were sent in it are lost.
TEST(ClusterCore, AWorkerWithANewerSessionIsAskedAgain) {
  Cluster c(1, 1);
  c.answer_finalizes = false;
  const uint64_t id = c.SubmitOk(c.Spec());
  for (int round = 0; round < 200 && c.State(id) != v1::FINALIZING; ++round) {
    c.Pass(absl::Milliseconds(100));
    c.TrainStep();
  }
  c.Settle();
  ASSERT_EQ(c.node("worker-0").finalizes.size(), 1u);
  c.node("worker-0").finalizes.clear();
  c.Connect(c.node("worker-0"));
  c.Settle();
  EXPECT_EQ(c.node("worker-0").finalizes.size(), 1u);
}

}  // namespace
}  // namespace cairn
