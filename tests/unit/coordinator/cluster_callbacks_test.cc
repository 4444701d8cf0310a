// Goal: a job with callbacks waits at the end of each epoch until its figures are in, decides once, stores the decision
// before sending it, and ends as the callbacks decide: early, with its files written, even if the coordinator or the
// chief dies in between. Best weights are tested in cluster_best_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/coordinator/callback_jobs.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

int OpenAt(Cluster& c, const std::string& worker, uint64_t id) { return c.node(worker).assigned.at(id).epochs_open(); }

TEST(ClusterCallbacks, AnEpochIsOpenedWhenTheFiguresAreIn) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(SpecWith("callbacks { early_stopping { patience: 100 } }"));
  EXPECT_EQ(OpenAt(c, "worker-0", id), 1);
  c.Train(kSteps);
  EXPECT_EQ(OpenAt(c, "worker-0", id), 2);
  EXPECT_EQ(OpenAt(c, "worker-1", id), 2);
  EXPECT_EQ(c.Job(id).epochs_open(), 2);
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
  EXPECT_EQ(c.Job(id).epochs_size(), 8);
  EXPECT_EQ(c.Job(id).reason(), "");
}

TEST(ClusterCallbacks, JobsWithoutThemRunFree) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(SpecWith("callbacks { csv_logger { filename: '/log.csv' } }"));
  EXPECT_EQ(OpenAt(c, "worker-0", id), 0);
  EXPECT_TRUE(c.RunToEnd(id));
  int next = 0;
  for (const v1::WriteSummaries& write : c.node("worker-0").summaries) {
    for (const v1::EpochResult& epoch : write.epochs()) EXPECT_EQ(epoch.epoch(), next++);
  }
  EXPECT_EQ(next, 8) << "each epoch once, in order";
}

TEST(ClusterCallbacks, EarlyStoppingEndsTheJobAfterItsEpoch) {
  Cluster c(2, 2);
  c.validation_loss = {{0, 2}, {1, 1}, {2, 1.5}, {3, 1.25}, {4, 0.5}};
  const uint64_t id = c.SubmitOk(SpecWith("callbacks { early_stopping { patience: 2 } }"));
  EXPECT_TRUE(c.RunToEnd(id));
  const v1::JobStatus job = c.Job(id);
  EXPECT_EQ(job.state(), v1::SUCCEEDED);
  EXPECT_EQ(job.epochs_size(), 4);
  EXPECT_EQ(job.total_steps(), 4 * kSteps);
  EXPECT_EQ(c.TrueStep(id), 4 * kSteps);
  EXPECT_EQ(job.reason(), "stopped early after epoch 4: val_loss did not improve on 0.5 for 2 epochs");
  EXPECT_THAT(NotesOf(job),
              ElementsAre("4 early_stopping: val_loss did not improve on 0.5 for 2 epochs; the job ends"));
}

TEST(ClusterCallbacks, TheSameEndWhereverTheCoordinatorDies) {
  const std::string callbacks =
      "callbacks { early_stopping { patience: 2 } } callbacks { reduce_lr_on_plateau { patience: 1 factor: 0.5 } }"
      "callbacks { csv_logger { filename: '/log.csv' } }";
  for (int at = 0;; ++at) {
    Cluster c(2, 2);
    c.validation_loss = {{0, 2}, {1, 1}, {2, 1.5}, {3, 1.25}, {4, 0.5}};
    const uint64_t id = c.SubmitOk(SpecWith(callbacks));
    c.CrashSoon(at);
    ASSERT_TRUE(c.RunToEnd(id)) << at;
    const v1::JobStatus job = c.Job(id);
    EXPECT_EQ(job.state(), v1::SUCCEEDED) << at;
    EXPECT_EQ(job.epochs_size(), 4) << at;
    EXPECT_EQ(c.TrueStep(id), 4 * kSteps) << at;
    std::vector<float> rates;
    for (const v1::EpochResult& epoch : job.epochs()) rates.push_back(epoch.learning_rate());
    EXPECT_THAT(rates, ElementsAre(0.01f, 0.01f, 0.01f, 0.005f)) << at;
    if (!c.crashed()) break;
  }
}

TEST(ClusterCallbacks, TheRatesAreSentWithTheEpoch) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(SpecWith("callbacks { reduce_lr_on_plateau { patience: 1 factor: 0.5 } }"));
  c.Train(3 * kSteps);
  const auto& rates = c.node("worker-0").assigned.at(id).learning_rates();
  EXPECT_THAT(std::vector<float>(rates.begin(), rates.end()), ElementsAre(0.01f, 0.01f, 0.005f, 0.0025f));
  EXPECT_EQ(c.Job(id).learning_rate(), 0.0025f);
  EXPECT_EQ(c.Job(id).epochs(1).learning_rate(), 0.01f);
  v1::GetJobRequest ref;
  ref.set_job_id(id);
  c.Do(CancelJob{ReplyToken{900}, ref});
  c.Settle();
  EXPECT_EQ(c.State(id), v1::CANCELLED);
  EXPECT_EQ(c.Job(id).learning_rate(), 0.0025f) << "a replay of the epoch needs it";
}

TEST(ClusterCallbacks, AWorkerThatComesBackIsToldAgain) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(SpecWith("callbacks { early_stopping { patience: 100 } }"));
  c.Train(kSteps - 1);
  // The decision is stored, and the coordinator dies before it is sent.
  for (int at = 0; !c.crashed() && at < 50; ++at) {
    c.CrashSoon(at);
    c.Train(1);
    c.Pass(absl::Milliseconds(100));
  }
  c.ReconnectAll();
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.Job(id).epochs_size(), 8);
}

TEST(ClusterCallbacks, ModelFilesAreMadeOfTheEpochsCheckpoint) {
  Cluster c(2, 2);
  c.write_checkpoints = true;
  c.validation_loss = {{0, 2}, {1, 1}, {2, 1.5}};
  const uint64_t id = c.SubmitOk(SpecWith(
      "callbacks { model_checkpoint { filepath: '/m-{epoch:02d}-{val_loss:.2f}.safetensors' save_best_only: true } }",
      3));
  EXPECT_TRUE(c.RunToEnd(id));
  std::vector<std::string> paths;
  for (const v1::SaveModel& save : c.node("worker-0").saves)
    paths.push_back(absl::StrCat(save.step(), " ", save.path()));
  EXPECT_THAT(paths, ElementsAre("5 /m-01-1.00.safetensors", "10 /m-02-0.50.safetensors"));
  EXPECT_THAT(NotesOf(c.Job(id)), ElementsAre("1 model_checkpoint: saved /m-01-1.00.safetensors",
                                              "2 model_checkpoint: saved /m-02-0.50.safetensors"));
}

TEST(ClusterCallbacks, TheNextChiefSavesWhatTheKilledOneDidNot) {
  Cluster c(1, 2);
  c.write_checkpoints = true;
  c.answer_files = false;
  const uint64_t id =
      c.SubmitOk(SpecWith("callbacks { model_checkpoint { filepath: '/m-{epoch}.safetensors' } }"
                          "callbacks { csv_logger { filename: '/log.csv' } }",
                          3));
  c.Train(kSteps);
  ASSERT_EQ(c.node("worker-0").saves.size(), 1u);
  ASSERT_EQ(c.node("worker-0").summaries.size(), 1u);
  c.Kill(c.node("worker-0"));
  c.answer_files = true;
  EXPECT_TRUE(c.RunToEnd(id));
  std::vector<std::string> paths;
  for (const v1::SaveModel& save : c.node("worker-1").saves) paths.push_back(save.path());
  EXPECT_THAT(paths, ElementsAre("/m-1.safetensors", "/m-2.safetensors", "/m-3.safetensors"));
  int next = 0;
  for (const v1::WriteSummaries& write : c.node("worker-1").summaries) {
    for (const v1::EpochResult& epoch : write.epochs()) EXPECT_EQ(epoch.epoch(), next++);
  }
  EXPECT_EQ(next, 3);
}

TEST(ClusterCallbacks, ANewerEpochOfOneFileIsSavedWhenTheOlderOneIsWritten) {
  Cluster c(1, 1);
  c.write_checkpoints = true;
  c.answer_files = false;
  const uint64_t id = c.SubmitOk(SpecWith("callbacks { model_checkpoint { filepath: '/best.safetensors' } }", 3));
  c.Train(2 * kSteps);
  ASSERT_EQ(c.node("worker-0").saves.size(), 1u) << "it is still at the first one";
  c.answer_files = true;
  v1::NodeMessage late;
  late.mutable_model_saved()->set_job_id(id);
  late.mutable_model_saved()->set_step(kSteps);
  late.mutable_model_saved()->set_path("/best.safetensors");
  c.Say(c.node("worker-0"), late);
  EXPECT_TRUE(c.RunToEnd(id));
  std::vector<int64_t> steps;
  for (const v1::SaveModel& save : c.node("worker-0").saves) steps.push_back(save.step());
  EXPECT_THAT(steps, ElementsAre(5, 10, 15));
}

TEST(ClusterCallbacks, WhereNoCheckpointCanBeWrittenTheJobGoesOnAndSaysSo) {
  Cluster c(1, 1);
  c.write_checkpoints = true;
  c.checkpoint_error = "/run: no space left on device";
  const uint64_t id = c.SubmitOk(SpecWith("callbacks { model_checkpoint { filepath: '/m-{epoch}.safetensors' } }", 2));
  c.Train(2 * kSteps);
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::ENDED_WITH_ERRORS);
  EXPECT_TRUE(c.node("worker-0").saves.empty());
  EXPECT_EQ(c.Job(id).checkpoint_error(), c.checkpoint_error);
  EXPECT_THAT(NotesOf(c.Job(id))[0], HasSubstr("1 checkpoints: there is no checkpoint of this epoch's end"));
}

TEST(ClusterCallbacks, ACheckpointThatTakesItsTimeIsWaitedFor) {
  for (const bool restart : {false, true}) {
    Cluster c(1, 2);
    const uint64_t id =
        c.SubmitOk(SpecWith("callbacks { model_checkpoint { filepath: '/m-{epoch}.safetensors' } }", 2));
    c.Train(kSteps);
    c.Pass(absl::Minutes(5));
    if (restart) c.RestartCoordinator();
    if (restart) c.ReconnectAll();
    c.Pass(absl::Minutes(1));
    EXPECT_EQ(c.Job(id).epochs_open(), 1);
    EXPECT_TRUE(c.Job(id).notes().empty());
    EXPECT_THAT(c.Job(id).reason(), HasSubstr("waits for worker \"worker-0\" to write the checkpoint of epoch 1"));
    v1::NodeMessage written;
    written.mutable_checkpoint()->set_job_id(id);
    written.mutable_checkpoint()->mutable_checkpoint()->set_step(kSteps);
    c.Say(c.node("worker-0"), written);
    c.Settle();
    EXPECT_EQ(c.Job(id).epochs_open(), 2);
    EXPECT_EQ(c.node("worker-0").saves.size(), 1u);
    // A chief that reported its last step and no checkpoint has given the checkpoint up.
    c.Train(kSteps);
    c.Pass(absl::Seconds(50));
    EXPECT_EQ(c.State(id), v1::RUNNING) << "another chief may be at it";
    c.Pass(absl::Minutes(1));
    EXPECT_EQ(c.State(id), v1::ENDED_WITH_ERRORS) << c.Job(id).reason();
  }
}

TEST(ClusterCallbacks, AChiefThatHangsAtItsDiskIsNotWaitedForForEver) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(SpecWith("callbacks { model_checkpoint { filepath: '/m-{epoch}.safetensors' } }", 2));
  c.Train(kSteps);
  c.Pass(absl::Minutes(29));
  EXPECT_EQ(c.Job(id).epochs_open(), 1);
  c.Pass(absl::Minutes(2));
  EXPECT_EQ(c.Job(id).epochs_open(), 2);
  EXPECT_THAT(NotesOf(c.Job(id))[0], HasSubstr("1 checkpoints: there is no checkpoint of this epoch's end"));
}

TEST(ClusterCallbacks, AModelFileThatCouldNotBeWrittenIsTriedAgain) {
  const std::string callbacks = "callbacks { model_checkpoint { filepath: '/m-{epoch}.safetensors' } }";
  Cluster c(1, 1);
  c.write_checkpoints = true;
  c.file_failures = 2;
  const uint64_t id = c.SubmitOk(SpecWith(callbacks, 1));
  c.Train(kSteps);
  EXPECT_EQ(c.node("worker-0").saves.size(), 1u) << "not at once";
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
  EXPECT_EQ(c.node("worker-0").saves.size(), 3u);
  EXPECT_THAT(NotesOf(c.Job(id)), ElementsAre("1 model_checkpoint: saved /m-1.safetensors"));

  Cluster d(1, 1);
  d.write_checkpoints = true;
  d.file_failures = 1000;
  const uint64_t full = d.SubmitOk(SpecWith(callbacks, 1));
  EXPECT_TRUE(d.RunToEnd(full));
  EXPECT_EQ(d.State(full), v1::ENDED_WITH_ERRORS) << "the job goes on";
  EXPECT_LE(d.node("worker-0").saves.size(), 5u);
  EXPECT_THAT(NotesOf(d.Job(full)), ElementsAre("1 model_checkpoint: not saved: no space left on device"));
}

TEST(ClusterCallbacks, FiguresOfStepsAreKeptUntilTheyAreWritten) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(SpecWith("callbacks { tensorboard { log_dir: '/logs' update_freq: '1' } }", 4));
  c.file_failures = 1;
  c.Train(3);
  c.Pass(absl::Milliseconds(200));
  EXPECT_EQ(c.file_failures, 0);
  c.answer_files = false;
  c.Pass(absl::Seconds(5));
  c.Train(3);
  c.Pass(absl::Seconds(2));
  EXPECT_GT(c.node("worker-0").summaries.size(), 1u);
  c.Kill(c.node("worker-0"));  // it was asked, and has not answered
  c.answer_files = true;
  EXPECT_TRUE(c.RunToEnd(id));
  std::vector<int64_t> steps;
  for (const v1::WriteSummaries& write : c.node("worker-1").summaries) {
    for (const v1::StepValidation& v : write.train_steps()) steps.push_back(v.step());
  }
  for (const int64_t step : {1, 2, 3, 4, 6, 7}) EXPECT_THAT(steps, ::testing::Contains(step));
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end())) << ::testing::PrintToString(steps);
  EXPECT_EQ(std::set<int64_t>(steps.begin(), steps.end()).size(), steps.size()) << "each once";
}

TEST(ClusterCallbacks, ValidationsAfterStepsAreWrittenOnce) {
  Cluster c(1, 1);
  const uint64_t id =
      c.SubmitOk(SpecWith("validation_freq_steps: 3 callbacks { tensorboard { log_dir: '/logs' } }", 2));
  for (int replica = 0; replica < 4; ++replica) {
    v1::NodeMessage message;
    v1::ReplicaReport& report = *message.mutable_replica_report();
    report.set_job_id(id);
    report.set_generation(1);
    report.set_replica(replica);
    report.set_validation_step(3);
    report.mutable_validation()->set_examples(2);
    report.mutable_validation()->set_loss(1);
    c.Say(c.node("worker-0"), message);
  }
  EXPECT_TRUE(c.RunToEnd(id));
  std::vector<int64_t> steps;
  for (const v1::WriteSummaries& write : c.node("worker-0").summaries) {
    for (const v1::StepValidation& v : write.validations()) steps.push_back(v.step());
  }
  EXPECT_THAT(steps, ElementsAre(3));
}

TEST(ClusterCallbacks, StepsSaveToo) {
  Cluster c(1, 1);
  c.write_checkpoints = true;  // after each epoch, that is steps 5, 10, ...
  const uint64_t id = c.SubmitOk(
      SpecWith("callbacks { model_checkpoint { filepath: '/m-{epoch}-{batch}.safetensors' save_freq: '10' } }", 4));
  EXPECT_EQ(OpenAt(c, "worker-0", id), 0) << "it does not wait";
  EXPECT_TRUE(c.RunToEnd(id));
  std::vector<std::string> paths;
  for (const v1::SaveModel& save : c.node("worker-0").saves) paths.push_back(save.path());
  EXPECT_THAT(paths, ElementsAre("/m-2-5.safetensors", "/m-4-5.safetensors"));
}

TEST(ClusterCallbacks, ALossThatIsNotFiniteFailsTheJob) {
  Cluster c(1, 1);
  const uint64_t id =
      c.SubmitOk(SpecWith("callbacks { terminate_on_nan { } } callbacks { csv_logger { filename: '/log.csv' } }"));
  c.train_loss[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::FAILED);
  EXPECT_EQ(c.Job(id).reason(), "the loss is not finite in epoch 1; lower optimizer.learning_rate, or check the data");
  ASSERT_EQ(c.node("worker-0").summaries.size(), 1u) << "its last epoch is written all the same";
}

TEST(ClusterCallbacks, ABackupIsRemovedAfterASuccess) {
  Cluster c(1, 1);
  c.write_checkpoints = true;
  const uint64_t id = c.SubmitOk(SpecWith("callbacks { backup_and_restore { backup_dir: '/b' } }", 2));
  EXPECT_EQ(OpenAt(c, "worker-0", id), 0) << "it does not wait";
  EXPECT_TRUE(c.RunToEnd(id));
  ASSERT_EQ(c.node("worker-0").drops.size(), 1u);
  const v1::DropJob& drop = c.node("worker-0").drops[0];
  EXPECT_TRUE(drop.remove_checkpoints_of_job());
  EXPECT_EQ(drop.spec().checkpoints().dir(), "/b");
  EXPECT_EQ(drop.submitted_unix_ms(), c.Job(id).submitted_unix_ms());
  EXPECT_TRUE(c.Job(id).checkpoints().empty());
}

}  // namespace
}  // namespace cairn
