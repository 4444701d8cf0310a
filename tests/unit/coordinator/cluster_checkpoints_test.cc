// Goal: the coordinator knows which checkpoints exist and which is the best, and fills partitions from one before a job
// runs. The generation fences every attempt but the last; if the worker is lost, another one restores; a job that lost
// every copy of a partition goes on from its newest checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

v1::JobSpec SpecWithCheckpoints(const std::string& save_best = "") {
  v1::JobSpec spec = FakeCluster::Spec();
  spec.set_epochs(8);  // 40 steps
  spec.set_backups(0);
  spec.mutable_checkpoints()->set_dir("/shared/run");
  spec.mutable_checkpoints()->set_keep_max(2);
  if (!save_best.empty()) spec.mutable_checkpoints()->set_save_best(save_best);
  return spec;
}

v1::NodeMessage Written(uint64_t id, int64_t step, const std::vector<int64_t>& deleted = {}) {
  v1::NodeMessage message;
  v1::CheckpointReport& report = *message.mutable_checkpoint();
  report.set_job_id(id);
  report.mutable_checkpoint()->set_step(step);
  report.mutable_checkpoint()->set_written_unix_ms(1000 + step);
  report.mutable_deleted_steps()->Assign(deleted.begin(), deleted.end());
  return message;
}

std::vector<int64_t> StepsOf(const v1::JobStatus& job) {
  std::vector<int64_t> steps;
  for (const v1::CheckpointInfo& info : job.checkpoints()) steps.push_back(info.step());
  return steps;
}

v1::NodeMessage RestoredReply(const v1::Restore& restore, int64_t step) {
  v1::NodeMessage message;
  v1::RestoreReply& reply = *message.mutable_restored();
  reply.set_request_id(restore.request_id());
  reply.set_job_id(restore.job_id());
  reply.set_step(step);
  reply.set_path(restore.path());
  return message;
}

// Sets what the ps hold to what the worker restored.
void Fill(Cluster& c, uint64_t id, uint64_t version) {
  for (const char* name : {"ps-0", "ps-1"}) {
    auto hosted = c.node(name).hosted.find(id);
    if (hosted == c.node(name).hosted.end()) continue;
    for (auto& [p, v] : hosted->second.version) v = version;
  }
}

TEST(ClusterCheckpoints, ThoseThatExistAreKnownAlsoAfterARestart) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(SpecWithCheckpoints());
  c.Say(c.node("worker-0"), Written(id, 5));
  c.Say(c.node("worker-0"), Written(id, 10));
  c.Say(c.node("worker-0"), Written(id, 10));
  EXPECT_THAT(StepsOf(c.Job(id)), ElementsAre(5, 10)) << "a repetition is not a second one";
  c.Say(c.node("worker-0"), Written(id, 15, {5}));
  EXPECT_THAT(StepsOf(c.Job(id)), ElementsAre(10, 15));
  v1::NodeMessage error;
  error.mutable_checkpoint()->set_job_id(id);
  error.mutable_checkpoint()->set_error("/shared/run: no space left on device");
  c.Say(c.node("worker-0"), error);
  EXPECT_EQ(c.Job(id).checkpoint_error(), "/shared/run: no space left on device");
  EXPECT_EQ(c.State(id), v1::RUNNING) << "training goes on";
  // An impossible step changes nothing.
  c.Say(c.node("worker-0"), Written(id, -1));
  c.Say(c.node("worker-0"), Written(id, 1'000'000));
  c.Say(c.node("worker-0"), Written(id + 7, 5));
  c.Say(c.node("ps-0"), Written(id, 20));
  EXPECT_THAT(StepsOf(c.Job(id)), ElementsAre(10, 15));
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Settle();
  EXPECT_THAT(StepsOf(c.Job(id)), ElementsAre(10, 15));
  c.Say(c.node("worker-0"), Written(id, 20));
  EXPECT_EQ(c.Job(id).checkpoint_error(), "") << "one was written since";
  // A new chief is told of all checkpoints.
  c.Kill(c.node("worker-0"));
  c.Pass(absl::Seconds(1));
  const v1::AssignReplicas& chief = c.node("worker-1").assigned.at(id);
  EXPECT_TRUE(chief.chief());
  EXPECT_EQ(chief.checkpoints_size(), 3);
  for (int64_t step = 1; step < 40; ++step) c.Say(c.node("worker-1"), Written(id, step));
  EXPECT_LE(c.Job(id).checkpoints_size(), 2 + 24) << "those of a chief that deletes none are bounded";
}

std::vector<std::string> PathsOf(const v1::JobStatus& job) {
  std::vector<std::string> paths;
  for (const v1::CheckpointInfo& info : job.checkpoints()) paths.push_back(info.path());
  return paths;
}

// The coordinator alone decides what the chief removes later: no worker can name paths, or say that a checkpoint is
// gone or newer.
TEST(ClusterCheckpoints, OnlyTheChiefIsBelievedAndOnlySteps) {
  Cluster c(1, 3);
  const uint64_t id = c.SubmitOk(SpecWithCheckpoints("val_loss"));
  ASSERT_EQ(c.Job(id).chief(), "worker-0");
  v1::NodeMessage chiefs = Written(id, 5);
  chiefs.mutable_checkpoint()->mutable_checkpoint()->set_path("/elsewhere");
  c.Say(c.node("worker-0"), chiefs);
  EXPECT_THAT(PathsOf(c.Job(id)), ElementsAre("/shared/run/step-5"));
  chiefs.mutable_checkpoint()->mutable_checkpoint()->set_best(true);
  c.Say(c.node("worker-0"), chiefs);
  EXPECT_THAT(PathsOf(c.Job(id)), ElementsAre("/shared/run/step-5", "/shared/run/best"));

  v1::NodeMessage error = Written(id, 10);
  error.mutable_checkpoint()->set_error("no space left on device");
  v1::NodeMessage best = Written(id, 6);
  best.mutable_checkpoint()->mutable_checkpoint()->set_best(true);
  const auto say_what_is_not_believed = [&](const char* worker) {
    c.Say(c.node(worker), error);
    c.Say(c.node(worker), best);
    c.Say(c.node(worker), Written(id, 5, {5}));
    EXPECT_THAT(StepsOf(c.Job(id)), ElementsAre(5, 5));
    EXPECT_EQ(c.Job(id).checkpoint_error(), "");
  };
  say_what_is_not_believed("worker-2");
  c.Say(c.node("worker-2"), Written(id, 20));
  EXPECT_THAT(PathsOf(c.Job(id)), ElementsAre("/shared/run/step-5", "/shared/run/best"));

  // A former chief may have written one; this does not push any other checkpoint out.
  c.BreakSession(c.node("worker-0"));
  c.Pass(absl::Seconds(1));
  ASSERT_EQ(c.Job(id).chief(), "worker-1");
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Settle();
  ASSERT_EQ(c.Job(id).chief(), "worker-1");
  say_what_is_not_believed("worker-0");
  c.Say(c.node("worker-0"), Written(id, 20));
  EXPECT_THAT(StepsOf(c.Job(id)), ElementsAre(5, 5, 20));
  for (int64_t step = 6; step < 40; ++step) c.Say(c.node("worker-0"), Written(id, step));
  EXPECT_EQ(StepsOf(c.Job(id)).front(), 5);
  EXPECT_LE(c.Job(id).checkpoints_size(), 2 + 24);
}

// The chief could not write a checkpoint at first; when it had written it, it was no longer the chief.
TEST(ClusterCheckpoints, AFormerChiefsCheckpointEndsItsError) {
  Cluster c(1, 3);
  const uint64_t id = c.SubmitOk(SpecWithCheckpoints());
  ASSERT_EQ(c.Job(id).chief(), "worker-0");
  v1::NodeMessage tries;
  tries.mutable_checkpoint()->set_job_id(id);
  tries.mutable_checkpoint()->set_error("the stream broke; it is tried again");
  c.Say(c.node("worker-0"), tries);
  EXPECT_THAT(c.Job(id).checkpoint_error(), HasSubstr("the stream broke"));
  c.BreakSession(c.node("worker-0"));
  c.Pass(absl::Seconds(1));
  ASSERT_EQ(c.Job(id).chief(), "worker-1");
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Settle();
  ASSERT_EQ(c.Job(id).chief(), "worker-1");
  v1::NodeMessage failed = Written(id, 10);
  failed.mutable_checkpoint()->set_error("no space left on device");
  c.Say(c.node("worker-1"), failed);
  c.Say(c.node("worker-0"), Written(id, 5));
  EXPECT_THAT(c.Job(id).checkpoint_error(), HasSubstr("no space left")) << "that is of a later one";
  c.Say(c.node("worker-0"), Written(id, 10));
  EXPECT_EQ(c.Job(id).checkpoint_error(), "");
  c.Say(c.node("worker-0"), Written(id, c.Job(id).total_steps()));
  c.Say(c.node("worker-1"), tries);
  EXPECT_EQ(c.Job(id).checkpoint_error(), "") << "the last one is there";
}

TEST(ClusterCheckpoints, TheBestIsMarkedOnceForEachChief) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(SpecWithCheckpoints("val_loss"));
  c.Train(5);
  c.Say(c.node("worker-0"), Written(id, 5));
  c.Pass(absl::Seconds(3));
  ASSERT_EQ(c.node("worker-0").marks.size(), 1u);
  EXPECT_EQ(c.node("worker-0").marks[0].step(), 5);
  EXPECT_DOUBLE_EQ(c.node("worker-0").marks[0].monitored(), 0.125);
  v1::NodeMessage best = Written(id, 5);
  best.mutable_checkpoint()->mutable_checkpoint()->set_best(true);
  best.mutable_checkpoint()->mutable_checkpoint()->set_monitored(0.125);
  c.Say(c.node("worker-0"), best);
  // The next epoch is not better.
  c.Train(5);
  c.Say(c.node("worker-0"), Written(id, 10));
  c.Pass(absl::Seconds(3));
  EXPECT_EQ(c.node("worker-0").marks.size(), 1u);
}

// The previous chief wrote it, and said so after another worker had become the chief.
TEST(ClusterCheckpoints, AChiefIsToldOfTheBestBeforeItIsToKeepIt) {
  Cluster c(1, 2);
  v1::JobSpec spec = SpecWithCheckpoints("val_loss");
  spec.set_strategy(v1::MIRRORED);  // one worker has it all
  const uint64_t id = c.SubmitOk(spec);
  c.Train(5);
  c.BreakSession(c.node("worker-0"));
  c.Pass(absl::Seconds(1));
  ASSERT_EQ(c.Job(id).chief(), "worker-1");
  c.Connect(c.node("worker-0"));
  c.Say(c.node("worker-0"), Written(id, 5));
  c.Pass(absl::Milliseconds(300));
  ASSERT_EQ(c.node("worker-1").marks.size(), 1u);
  EXPECT_EQ(c.node("worker-1").kept, std::vector<int64_t>{5});
}

// Writing a checkpoint takes several epochs, so that the next one exists before the first is marked to be kept.
TEST(ClusterCheckpoints, ABetterOneThatIsBeingKeptIsNotReplacedByAWorseOne) {
  Cluster c(1, 1);
  v1::JobSpec spec = SpecWithCheckpoints("val_loss");
  for (int epoch = 1; epoch < 8; ++epoch) c.validation_loss[epoch] = 0.5;
  const uint64_t id = c.SubmitOk(spec);
  c.Train(30);
  ASSERT_EQ(c.Job(id).epochs_size(), 6);
  c.Say(c.node("worker-0"), Written(id, 5));
  c.Settle();
  ASSERT_EQ(c.node("worker-0").marks.size(), 1u) << "that of the first epoch, though five have passed since";
  EXPECT_EQ(c.node("worker-0").marks[0].step(), 5);
  c.Say(c.node("worker-0"), Written(id, 30, {5}));
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(c.node("worker-0").marks.size(), 1u);
}

// The chief is told which checkpoints have been compared, and so need not be kept for that.
TEST(ClusterCheckpoints, TheChiefIsToldWhichWereCompared) {
  Cluster c(1, 1);
  v1::JobSpec spec = SpecWithCheckpoints("val_loss");
  for (int epoch = 2; epoch < 8; ++epoch) c.validation_loss[epoch] = 0.5;
  const uint64_t id = c.SubmitOk(spec);
  const auto compared = [&] {
    c.Settle();
    std::vector<int64_t> steps;
    for (const v1::CheckpointInfo& info : c.node("worker-0").assigned.at(id).checkpoints()) {
      if (info.compared()) steps.push_back(info.step());
    }
    return steps;
  };
  c.Say(c.node("worker-0"), Written(id, 5));  // before the figures of its epoch
  EXPECT_THAT(compared(), ElementsAre());
  c.Train(5);
  ASSERT_EQ(c.Job(id).epochs_size(), 1);
  ASSERT_EQ(c.node("worker-0").marks.size(), 1u);
  EXPECT_THAT(compared(), ElementsAre()) << "it is to be kept";
  v1::NodeMessage best = Written(id, 5);
  best.mutable_checkpoint()->mutable_checkpoint()->set_best(true);
  best.mutable_checkpoint()->mutable_checkpoint()->set_monitored(0.125);
  c.Say(c.node("worker-0"), best);
  EXPECT_THAT(compared(), ElementsAre(5));
  c.Train(10);
  ASSERT_EQ(c.Job(id).epochs_size(), 3);
  c.Say(c.node("worker-0"), Written(id, 10));  // after them
  c.Say(c.node("worker-0"), Written(id, 20));
  EXPECT_THAT(compared(), ElementsAre(5, 10)) << "worse than the first; the fourth epoch has not ended";
}

TEST(ClusterCheckpoints, AJobBeginsWithWhatAWorkerRestored) {
  Cluster c(2, 2);
  v1::JobSpec spec = SpecWithCheckpoints();
  spec.set_resume_from("/shared/old");
  const uint64_t id = c.SubmitOk(spec);
  ASSERT_EQ(c.State(id), v1::STARTING);
  ASSERT_EQ(c.node("worker-0").restores.size(), 1u);
  const v1::Restore restore = c.node("worker-0").restores[0];
  EXPECT_EQ(restore.path(), "/shared/old");
  EXPECT_EQ(restore.generation(), c.Job(id).generation());
  EXPECT_EQ(restore.routes_size(), c.Job(id).partitions_size());
  EXPECT_FALSE(restore.weights_only());
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("worker \"worker-0\" restores /shared/old"));
  // Answers that belong to another attempt.
  v1::NodeMessage other = RestoredReply(restore, 20);
  other.mutable_restored()->set_request_id(restore.request_id() + 1);
  c.Say(c.node("worker-0"), other);
  c.Say(c.node("worker-1"), RestoredReply(restore, 20));
  EXPECT_EQ(c.State(id), v1::STARTING);
  const uint64_t generation = c.Job(id).generation();
  Fill(c, id, 20);
  c.Say(c.node("worker-0"), RestoredReply(restore, 20));
  c.Settle();
  const v1::JobStatus job = c.Job(id);
  EXPECT_EQ(job.state(), v1::RUNNING) << job.reason();
  EXPECT_GT(job.generation(), generation) << "frames of the attempt are fenced";
  EXPECT_EQ(job.step(), 20);
  EXPECT_EQ(job.restored_step(), 20);
  EXPECT_EQ(job.restored_from(), "/shared/old");
  EXPECT_EQ(job.epochs_size(), 4) << "epochs before have no figures";
}

TEST(ClusterCheckpoints, AJobThatBeginsWithWeightsSaysSo) {
  Cluster c(2, 2);
  v1::JobSpec spec = SpecWithCheckpoints();
  spec.set_initial_weights("/w.keras");
  const uint64_t id = c.SubmitOk(spec);
  const v1::Restore restore = c.node("worker-0").restores.at(0);
  EXPECT_TRUE(restore.weights_only());
  Fill(c, id, 0);
  c.Say(c.node("worker-0"), RestoredReply(restore, 0));
  EXPECT_THAT(c.Job(id).ShortDebugString(), HasSubstr("text: \"begins with the weights of /w.keras\""));
}

TEST(ClusterCheckpoints, AnotherWorkerTakesOverAndStepsMustFit) {
  Cluster c(2, 2);
  v1::JobSpec spec = SpecWithCheckpoints();
  spec.set_resume_from("/shared/old");
  const uint64_t id = c.SubmitOk(spec);
  const v1::Restore first = c.node("worker-0").restores.at(0);
  c.Kill(c.node("worker-0"));
  c.Pass(absl::Seconds(1));
  ASSERT_FALSE(c.node("worker-1").restores.empty());
  const v1::Restore second = c.node("worker-1").restores.back();
  EXPECT_GT(second.generation(), first.generation());
  c.Say(c.node("worker-1"), RestoredReply(second, 41));
  c.Settle();
  EXPECT_EQ(c.State(id), v1::FAILED);
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("steps that the job does not have"));

  Cluster d(2, 2);
  const uint64_t torn = d.SubmitOk(spec);
  for (int attempt = 0; attempt < 2; ++attempt) {
    FakeNode& worker =
        d.node(d.node("worker-0").restores.size() > d.node("worker-1").restores.size() ? "worker-0" : "worker-1");
    v1::NodeMessage failed = RestoredReply(worker.restores.back(), 0);
    failed.mutable_restored()->set_error("/shared/old/step-20/manifest.json: torn");
    d.Say(worker, failed);
    d.Settle();
  }
  EXPECT_EQ(d.State(torn), v1::FAILED) << "each of two workers was asked";
  EXPECT_THAT(d.Job(torn).reason(), HasSubstr("could not be restored: worker"));
  EXPECT_THAT(d.Job(torn).reason(), HasSubstr("torn"));
}

TEST(ClusterCheckpoints, AJobThatLostAPartitionGoesOnFromItsNewestOne) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWithCheckpoints());
  c.Train(12);
  c.Say(c.node("worker-0"), Written(id, 5));
  c.Say(c.node("worker-0"), Written(id, 10));
  c.Kill(c.node("ps-1"));
  c.node("ps-1").hosted.clear();
  c.Restart(c.node("ps-1"));
  c.Settle();
  ASSERT_EQ(c.State(id), v1::STARTING) << c.Job(id).reason();
  ASSERT_FALSE(c.node("worker-0").restores.empty());
  const v1::Restore restore = c.node("worker-0").restores.back();
  EXPECT_EQ(restore.path(), "/shared/run/step-10");
  EXPECT_THAT(restore.fallbacks(), ElementsAre("/shared/run/step-5", "/shared/run"))
      << "at last what it has not heard of";
  Fill(c, id, 10);
  c.Say(c.node("worker-0"), RestoredReply(restore, 10));
  c.Settle();
  EXPECT_EQ(c.State(id), v1::RUNNING) << c.Job(id).reason();
  EXPECT_EQ(c.Job(id).step(), 10);
}

// The epoch waited for its checkpoint when the partition was lost. When the epoch is done again, it waits anew.
TEST(ClusterCheckpoints, AnEpochThatIsDoneOnceMoreWaitsForItsCheckpointAnew) {
  Cluster c(2, 1);
  v1::JobSpec spec = SpecWithCheckpoints();
  spec.mutable_checkpoints()->set_every_epochs(1);
  spec.add_callbacks()->mutable_model_checkpoint()->set_filepath("/models/{epoch}.keras");
  const uint64_t id = c.SubmitOk(spec);
  c.Train(5);
  c.Say(c.node("worker-0"), Written(id, 5));
  c.Settle();
  c.Train(5);
  c.Pass(absl::Minutes(1));
  ASSERT_THAT(c.Job(id).reason(), HasSubstr("to write the checkpoint of epoch 2"));
  c.Kill(c.node("ps-1"));
  c.node("ps-1").hosted.clear();
  c.Restart(c.node("ps-1"));
  c.Settle();
  ASSERT_EQ(c.State(id), v1::STARTING) << c.Job(id).reason();
  const v1::Restore restore = c.node("worker-0").restores.back();
  EXPECT_EQ(restore.path(), "/shared/run/step-5");
  Fill(c, id, 5);
  c.Say(c.node("worker-0"), RestoredReply(restore, 5));
  c.Settle();
  ASSERT_EQ(c.State(id), v1::RUNNING) << c.Job(id).reason();
  EXPECT_THAT(c.Job(id).reason(), Not(HasSubstr("to write the checkpoint")));
  c.Pass(absl::Minutes(30));  // as long as an epoch may take, and as it would wait at most
  c.Train(5);
  ASSERT_EQ(c.Job(id).step(), 10);
  c.Settle();
  EXPECT_EQ(c.Job(id).epochs_open(), 2) << "decided without the checkpoint";
  c.Say(c.node("worker-0"), Written(id, 10));
  c.Settle();
  EXPECT_EQ(c.Job(id).epochs_open(), 3);
}

}  // namespace
}  // namespace cairn
