// Goal: the checkpoint of the best epoch is kept, whatever happens to the chief that is asked to keep it. Its weights
// are restored once, before the job ends. A damaged checkpoint, or a ps that fails meanwhile, does not fail the job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/callback_jobs.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::JobSpec RestoringBest(v1::Durability durability) {
  v1::JobSpec spec = SpecWith(
      "checkpoints { dir: '/run' keep_max: 5 } callbacks { early_stopping { patience: 2 restore_best_weights: true } "
      "}");
  spec.set_durability(durability);
  return spec;
}

// Runs a round of a job whose best epoch is the second of four. Returns the number of restores.
int RoundWithRestore(Cluster& c, uint64_t id, bool train) {
  int restored = 0;
  c.ReconnectAll();
  c.Settle();
  for (const char* name : {"worker-0", "worker-1"}) {
    for (const v1::Restore& restore : std::exchange(c.node(name).restores, {})) {
      EXPECT_EQ(restore.path(), "/run/step-10");
      EXPECT_FALSE(restore.weights_only());
      for (const char* ps : {"ps-0", "ps-1"}) {
        for (auto& [p, version] : c.node(ps).hosted.at(id).version) version = 10;
      }
      ++restored;
      v1::NodeMessage message;
      message.mutable_restored()->set_request_id(restore.request_id());
      message.mutable_restored()->set_job_id(id);
      message.mutable_restored()->set_step(10);
      message.mutable_restored()->set_path(restore.path());
      c.Say(c.node(name), message);
    }
  }
  c.Pass(absl::Milliseconds(100));
  if (train && restored == 0) c.TrainStep();
  return restored;
}

TEST(ClusterBest, TheBestWeightsAreRestoredBeforeTheDigestIsTaken) {
  for (int at = -1; at < 400; at = at < 0 ? 0 : at + 1) {  // also where the coordinator dies on the way
    Cluster c(2, 2);
    c.write_checkpoints = true;
    c.validation_loss = {{0, 2}, {1, 1}, {2, 1.5}, {3, 1.25}};
    const uint64_t id = c.SubmitOk(RestoringBest(v1::DURABILITY_UNSPECIFIED));
    if (at >= 0) c.CrashSoon(at * 7);
    int restored = 0;
    for (int round = 0; round < 600 && c.State(id) != v1::SUCCEEDED; ++round) {
      EXPECT_TRUE(restored > 0 || (c.node("worker-0").finalizes.empty() && c.node("worker-1").finalizes.empty()));
      restored += RoundWithRestore(c, id, restored == 0);
    }
    ASSERT_EQ(c.State(id), v1::SUCCEEDED) << at << " " << c.Job(id).reason();
    EXPECT_GT(restored, 0);
    EXPECT_EQ(c.Job(id).epochs_size(), 4) << "what was trained stays told";
    EXPECT_EQ(c.Job(id).total_steps(), 20);
    EXPECT_THAT(c.Job(id).reason(), HasSubstr("stopped early after epoch 4"));
    if (at < 0) {
      ASSERT_FALSE(c.node("worker-0").marks.empty());
      EXPECT_EQ(c.node("worker-0").marks.back().step(), 10);
      EXPECT_EQ(c.node("worker-0").marks.back().monitored(), 0.5);
    }
    if (at >= 0 && !c.crashed()) break;
  }
}

// Without the mark, the checkpoint of the best epoch would be removed as the oldest, and its weights with it.
TEST(ClusterBest, TheBestCheckpointIsMarkedAlsoWhereTheCommandWasLost) {
  Cluster c(1, 1);
  c.write_checkpoints = true;
  c.SubmitOk(RestoringBest(v1::LOGGED));
  c.Train(kSteps);
  FakeNode& chief = c.node("worker-0");
  ASSERT_EQ(chief.marks.size(), 1u);
  c.BreakSession(chief);
  c.Connect(chief);
  c.Pass(absl::Milliseconds(300));
  EXPECT_EQ(chief.marks.size(), 2u);
  EXPECT_EQ(chief.marks.back().step(), kSteps);
}

v1::NodeMessage Written(uint64_t id, int64_t step, bool best, const std::string& error = "") {
  v1::NodeMessage message;
  v1::CheckpointReport& report = *message.mutable_checkpoint();
  report.set_job_id(id);
  report.set_error(error);
  report.mutable_checkpoint()->set_step(step);
  report.mutable_checkpoint()->set_best(best);
  return message;
}

// Its disk may have been full, or the command may have been lost.
TEST(ClusterBest, TheBestCheckpointIsMarkedUntilTheChiefSaysThatItIsKept) {
  Cluster c(1, 1);
  c.write_checkpoints = true;
  const uint64_t id = c.SubmitOk(RestoringBest(v1::LOGGED));
  c.Train(kSteps);
  FakeNode& chief = c.node("worker-0");
  ASSERT_EQ(chief.marks.size(), 1u);
  c.Pass(absl::Seconds(11));
  EXPECT_EQ(chief.marks.size(), 3u) << "every 5 s";
  c.Say(chief, Written(id, kSteps, true));
  c.Pass(absl::Minutes(1));
  EXPECT_EQ(chief.marks.size(), 3u);
}

TEST(ClusterBest, AChiefThatWasNotGivenTheJobYetIsNotAskedToKeepACheckpoint) {
  Cluster c(1, 1);
  c.write_checkpoints = true;
  c.SubmitOk(RestoringBest(v1::LOGGED));
  c.Train(kSteps);
  FakeNode& chief = c.node("worker-0");
  ASSERT_THAT(chief.kept, ElementsAre(kSteps));
  c.Kill(chief);
  c.RestartCoordinator();
  c.Restart(chief);
  c.Pass(absl::Milliseconds(300));
  EXPECT_TRUE(chief.assigned.empty()) << "while the ps is away nobody is given anything";
  c.Connect(c.node("ps-0"));
  c.Pass(absl::Milliseconds(300));
  EXPECT_EQ(chief.marks.size(), chief.kept.size());
  EXPECT_THAT(chief.kept, ElementsAre(kSteps, kSteps));
}

TEST(ClusterBest, WhatWasTheBestInAnOldChiefsTimeIsNotTheBestNow) {
  Cluster c(1, 1);
  c.write_checkpoints = true;
  c.validation_loss = {{0, 2}, {1, 1}};
  const uint64_t id = c.SubmitOk(RestoringBest(v1::LOGGED));
  const auto best = [&] {
    const v1::JobStatus job = c.Job(id);
    for (const v1::CheckpointInfo& info : job.checkpoints()) {
      if (info.best()) return info.step();
    }
    return int64_t{-1};
  };
  c.Train(kSteps);
  c.Say(c.node("worker-0"), Written(id, kSteps, true));
  EXPECT_EQ(best(), kSteps);
  c.Train(kSteps);
  c.Say(c.node("worker-0"), Written(id, 2 * kSteps, true));
  EXPECT_EQ(best(), 2 * kSteps);
  c.Say(c.node("worker-0"), Written(id, kSteps, true));
  EXPECT_EQ(best(), 2 * kSteps);
}

// A chief that was cut off repeats which checkpoint it could not write; the coordinator waits for a later one.
TEST(ClusterBest, ALateWordOfAnEarlierFailureChangesNothing) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(SpecWith("callbacks { model_checkpoint { filepath: '/m-{epoch}.safetensors' } }", 3));
  c.Say(c.node("worker-0"), Written(id, kSteps, false, "no space left on device"));
  c.Train(kSteps);
  ASSERT_EQ(c.Job(id).epochs_open(), 2);
  c.Train(kSteps - 1);
  c.Say(c.node("worker-0"), Written(id, 2 * kSteps, false, "no space left on device"));
  c.Say(c.node("worker-1"), Written(id, kSteps, false, "no space left on device"));
  c.Train(1);
  EXPECT_EQ(c.Job(id).epochs_open(), 3) << c.Job(id).reason();
}

// Trains, and answers every restore with an error, until the job is over or `until` holds. Returns the number of
// restores.
int FailRestores(Cluster& c, uint64_t id, const std::string& error, const std::string& until) {
  int asked = 0;
  for (int round = 0; round < 600 && c.Job(id).finished_unix_ms() == 0 && !c.Logged(until); ++round) {
    c.Pass(absl::Milliseconds(100));
    c.TrainStep();
    for (const char* name : {"worker-0", "worker-1"}) {
      for (const v1::Restore& restore : std::exchange(c.node(name).restores, {})) {
        ++asked;
        v1::NodeMessage message;
        message.mutable_restored()->set_request_id(restore.request_id());
        message.mutable_restored()->set_job_id(id);
        message.mutable_restored()->set_error(error);
        c.Say(c.node(name), message);
      }
    }
  }
  return asked;
}

TEST(ClusterBest, ABestCheckpointThatIsDamagedCostsItsWeightsAndNotTheJob) {
  Cluster c(2, 2);
  c.write_checkpoints = true;
  c.validation_loss = {{0, 2}, {1, 1}, {2, 1.5}, {3, 1.25}};
  const uint64_t id = c.SubmitOk(RestoringBest(v1::LOGGED));
  EXPECT_EQ(FailRestores(c, id, "/run/step-10/model.safetensors: it was altered", "never"), 3);
  const v1::JobStatus job = c.Job(id);
  EXPECT_EQ(job.state(), v1::ENDED_WITH_ERRORS) << "its best weights were asked for: " << job.reason();
  EXPECT_EQ(job.digest(), "d1e5");
  EXPECT_EQ(job.total_steps(), 20);
  for (const char* ps : {"ps-0", "ps-1"}) {
    for (const auto& [p, version] : c.node(ps).hosted.at(id).version) EXPECT_EQ(version, 20u);
  }
  EXPECT_THAT(NotesOf(job).back(), AllOf(HasSubstr("2 early_stopping: its weights are not restored from /run/step-10, "
                                                   "the job ends with those of its last epoch"),
                                         HasSubstr("/run/step-10/model.safetensors: it was altered")));
}

// The job goes on with the remaining ps, although they are too few for all copies.
TEST(ClusterBest, APsThatFailsWhileTheBestWeightsAreRestoredDoesNotEndTheJob) {
  Cluster c(2, 2);
  c.write_checkpoints = true;
  c.validation_loss = {{0, 2}, {1, 1}, {2, 1.5}, {3, 1.25}};
  v1::JobSpec spec = RestoringBest(v1::REPLICATED);
  spec.set_backups(1);
  const uint64_t id = c.SubmitOk(spec);
  for (int round = 0; round < 600 && c.State(id) != v1::STARTING; ++round) {
    c.Pass(absl::Milliseconds(100));
    c.TrainStep();
  }
  v1::NodeMessage message;
  message.mutable_job_error()->set_job_id(id);
  message.mutable_job_error()->set_message("/data: no space left on device");
  c.Say(c.node("ps-1"), message);
  c.Settle();
  ASSERT_EQ(c.State(id), v1::STARTING) << c.Job(id).reason();
  for (const v1::JobStatus job = c.Job(id); const auto& p : job.partitions()) EXPECT_EQ(p.primary(), "ps-0");
}

// An attempt may have filled one ps before it failed: the ps then hold weights of different epochs.
TEST(ClusterBest, WeightsThatAreMixedAreNotTheLastOnes) {
  Cluster c(2, 2);
  c.write_checkpoints = true;
  c.validation_loss = {{0, 2}, {1, 1}, {2, 1.5}, {3, 1.25}};
  const uint64_t id = c.SubmitOk(RestoringBest(v1::LOGGED));
  for (int round = 0; round < 600 && c.State(id) != v1::STARTING; ++round) {
    c.Pass(absl::Milliseconds(100));
    c.TrainStep();
  }
  for (auto& [p, version] : c.node("ps-0").hosted.at(id).version) version = 10;
  EXPECT_EQ(FailRestores(c, id, "it was altered", "its weights are not restored"), 3);
  c.Pass(absl::Milliseconds(200));
  ASSERT_EQ(c.State(id), v1::STARTING) << c.Job(id).reason();
  ASSERT_EQ(c.node("worker-0").restores.size(), 1u);
  EXPECT_EQ(c.node("worker-0").restores[0].path(), "/run/step-20") << "it goes on from its newest checkpoint";
}

TEST(ClusterBest, AGenerationInTheMiddleOfARestoreIsNoLoss) {
  Cluster c(2, 2);
  c.write_checkpoints = true;
  c.validation_loss = {{0, 2}, {1, 1}, {2, 1.5}, {3, 1.25}};
  const uint64_t id = c.SubmitOk(RestoringBest(v1::LOGGED));
  for (int round = 0; round < 600 && c.node("worker-0").restores.empty(); ++round) {
    c.Pass(absl::Milliseconds(100));
    c.TrainStep();
  }
  ASSERT_EQ(c.node("worker-0").restores.size(), 1u);
  for (const char* ps : {"ps-0", "ps-1"}) {
    for (auto& [p, version] : c.node(ps).hosted.at(id).version) version = 10;  // filled, and the worker has not said so
  }
  c.Kill(c.node("ps-0"));
  c.Restart(c.node("ps-0"));
  EXPECT_EQ(c.State(id), v1::STARTING) << c.Job(id).reason();
  for (int round = 0; round < 600 && c.Job(id).finished_unix_ms() == 0; ++round) RoundWithRestore(c, id, false);
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

// The job may end with the weights of its last epoch: they are given up only when those of the best one were read.
TEST(ClusterBest, CopiesOfAPsThatIsAwayAreKeptUntilTheBestWeightsWereRead) {
  for (const v1::Durability durability : {v1::LOGGED, v1::SNAPSHOT}) {
    Cluster c(2, 2);
    c.write_checkpoints = true;
    c.validation_loss = {{0, 2}, {1, 1}, {2, 1.5}, {3, 1.25}};
    const uint64_t id = c.SubmitOk(RestoringBest(durability));
    for (int round = 0; round < 600 && c.State(id) != v1::STARTING; ++round) {
      c.Pass(absl::Milliseconds(100));
      c.TrainStep();
    }
    c.Kill(c.node("ps-0"));
    c.Pass(absl::Minutes(20));
    ASSERT_EQ(c.State(id), v1::STARTING) << c.Job(id).reason();
    EXPECT_THAT(c.Job(id).reason(), HasSubstr("ps-0"));
    c.Restart(c.node("ps-0"));
    EXPECT_EQ(FailRestores(c, id, "it was altered", "never"), 3) << "no attempt was counted while the ps was away";
    EXPECT_EQ(c.State(id), v1::ENDED_WITH_ERRORS) << c.Job(id).reason();
    for (const char* ps : {"ps-0", "ps-1"}) {
      for (const auto& [p, version] : c.node(ps).hosted.at(id).version) EXPECT_EQ(version, 20u);
    }
  }
}

// The best weights take the place of what a disk has: nothing falls back for it.
TEST(ClusterBest, AnOldDiskWhileTheBestWeightsAreRestoredIsNoFallBack) {
  Cluster c(2, 2);
  c.write_checkpoints = true;
  c.validation_loss = {{0, 2}, {1, 1}, {2, 1.5}, {3, 1.25}};
  const uint64_t id = c.SubmitOk(RestoringBest(v1::SNAPSHOT));
  for (int round = 0; round < 600 && c.State(id) != v1::STARTING; ++round) {
    c.Pass(absl::Milliseconds(100));
    c.TrainStep();
  }
  c.Kill(c.node("ps-0"));
  for (auto& [p, version] : c.node("ps-0").hosted.at(id).version) version = 15;
  c.Restart(c.node("ps-0"));
  for (int round = 0; round < 600 && c.Job(id).finished_unix_ms() == 0; ++round) {
    EXPECT_NE(c.State(id), v1::RUNNING);
    RoundWithRestore(c, id, false);
  }
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
  EXPECT_EQ(c.Job(id).step(), 20);
  EXPECT_FALSE(c.Logged("falls back"));
}

// Its disk is lost: the best weights fill the partitions elsewhere, as long as they can be read.
TEST(ClusterBest, APsThatComesBackEmptyWhileTheBestWeightsAreRestoredCostsNothing) {
  Cluster c(2, 2);
  c.write_checkpoints = true;
  c.validation_loss = {{0, 2}, {1, 1}, {2, 1.5}, {3, 1.25}};
  const uint64_t id = c.SubmitOk(RestoringBest(v1::LOGGED));
  for (int round = 0; round < 600 && c.State(id) != v1::STARTING; ++round) {
    c.Pass(absl::Milliseconds(100));
    c.TrainStep();
  }
  c.Kill(c.node("ps-0"));
  c.node("ps-0").hosted.clear();
  c.Restart(c.node("ps-0"));
  for (int round = 0; round < 600 && c.Job(id).finished_unix_ms() == 0; ++round) {
    EXPECT_NE(c.State(id), v1::RUNNING);
    RoundWithRestore(c, id, true);
  }
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

// The restored weights are those of an earlier step. They are neither an old copy nor a reason to train again.
TEST(ClusterBest, APsThatRestartsBehindTheBestWeightsIsWaitedForAndNothingIsTrainedAgain) {
  for (const v1::Durability durability : {v1::LOGGED, v1::SNAPSHOT}) {
    for (const bool coordinator_too : {false, true}) {
      Cluster c(2, 2);
      c.write_checkpoints = true;
      c.validation_loss = {{0, 2}, {1, 1}, {2, 1.5}, {3, 1.25}};
      c.answer_finalizes = false;
      const uint64_t id = c.SubmitOk(RestoringBest(durability));
      for (int round = 0; round < 600 && c.State(id) != v1::FINALIZING; ++round) RoundWithRestore(c, id, true);
      ASSERT_EQ(c.State(id), v1::FINALIZING);
      if (coordinator_too) c.RestartCoordinator();
      c.Kill(c.node("ps-0"));
      if (durability == v1::SNAPSHOT) {
        for (auto& [p, version] : c.node("ps-0").hosted.at(id).version) version = 5;
      }
      c.Restart(c.node("ps-0"));
      c.answer_finalizes = true;
      for (int round = 0; round < 600 && c.Job(id).finished_unix_ms() == 0; ++round) {
        EXPECT_NE(c.State(id), v1::RUNNING);
        RoundWithRestore(c, id, false);
      }
      EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
      for (const char* ps : {"ps-0", "ps-1"}) {
        for (const auto& [p, version] : c.node(ps).hosted.at(id).version) EXPECT_EQ(version, 10u);
      }
    }
  }
}

}  // namespace
}  // namespace cairn
