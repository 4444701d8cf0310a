// Goal: what a former chief reports of checkpoints counts where it is still valid; what any chief has set aside is told
// once. A job that begins from a checkpoint of all its steps says that it does nothing.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/core/limits.h"
#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

v1::JobSpec SpecWithCheckpoints() {
  v1::JobSpec spec = FakeCluster::Spec();
  spec.set_epochs(1);
  spec.set_backups(0);
  spec.mutable_checkpoints()->set_dir("/shared/run");
  return spec;
}

v1::NodeMessage Written(uint64_t id, int64_t step) {
  v1::NodeMessage message;
  message.mutable_checkpoint()->set_job_id(id);
  message.mutable_checkpoint()->mutable_checkpoint()->set_step(step);
  return message;
}

// It does not try that step again, so nobody may wait for it. (Simulator, seed 7026682.)
TEST(ClusterFormerChiefs, WhatAFormerChiefCannotWriteIsNotAwaitedWhenItIsTheChiefAgain) {
  Cluster c(1, 3);
  const uint64_t id = c.SubmitOk(SpecWithCheckpoints());
  ASSERT_EQ(c.Job(id).chief(), "worker-0");
  c.BreakSession(c.node("worker-0"));
  c.Pass(absl::Seconds(1));
  c.ReconnectAll();
  c.Settle();
  ASSERT_EQ(c.Job(id).chief(), "worker-1");
  v1::NodeMessage failed = Written(id, c.Job(id).total_steps());
  failed.mutable_checkpoint()->set_error("no space left on device");
  c.Say(c.node("worker-0"), failed);
  EXPECT_EQ(c.Job(id).checkpoint_error(), "") << "another one is the chief";
  c.BreakSession(c.node("worker-1"));
  c.Pass(absl::Seconds(1));
  ASSERT_EQ(c.Job(id).chief(), "worker-0");
  EXPECT_EQ(c.Job(id).checkpoint_error(), "no space left on device");
}

// A job that begins at step 0 where another one has written: it may have been meant to resume that one.
TEST(ClusterFormerChiefs, OtherJobsThatWereRenamedAreEventsOfTheJobOnce) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(SpecWithCheckpoints());
  const auto told = [&](const std::string& part) {
    const v1::JobStatus job = c.Job(id);
    return std::count_if(job.events().begin(), job.events().end(), [&](const v1::JobEvent& event) {
      return event.warning() && event.text().find(part) != std::string::npos;
    });
  };
  const std::string text = "/shared/run/step-5 was a checkpoint of another job, 1 (\"a\"); it is kept as former-step-5";
  v1::NodeMessage report = Written(id, 5);
  report.mutable_checkpoint()->add_set_aside(text);
  c.Say(c.node("worker-1"), report);
  EXPECT_EQ(told(text), 0) << "it is not the chief";
  for (int i = 0; i < 2; ++i) c.Say(c.node("worker-0"), report);
  EXPECT_EQ(told(text), 1);
  EXPECT_EQ(c.Job(id).notes().rbegin()->text(), text);
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Settle();
  c.Say(c.node("worker-0"), report);
  EXPECT_EQ(told(text), 1) << "its event was stored";
  for (int i = 0; i < 100; ++i) report.mutable_checkpoint()->add_set_aside(absl::StrCat("former-", i));
  for (int i = 0; i < 2; ++i) c.Say(c.node("worker-0"), report);
  EXPECT_EQ(told("former-"), kSetAsideToldMax);
  EXPECT_EQ(told("further checkpoints of other jobs"), 1);
}

// Its events are newer ones by then; its notes still have it.
TEST(ClusterFormerChiefs, OtherJobsThatWereRenamedAreToldOnceInALongJob) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(SpecWithCheckpoints());
  v1::NodeMessage report = Written(id, 5);
  for (size_t i = 0; i < kSetAsideToldMax + 2; ++i)
    report.mutable_checkpoint()->add_set_aside(absl::StrCat("former-", i, "."));
  const auto told = [&](const std::string& part) {
    const v1::JobStatus job = c.Job(id);
    return std::count_if(job.events().begin(), job.events().end(),
                         [&](const v1::JobEvent& event) { return event.text().find(part) != std::string::npos; });
  };
  c.Say(c.node("worker-0"), report);
  ASSERT_EQ(told("former-"), kSetAsideToldMax);
  ASSERT_EQ(told("further checkpoints of other jobs"), 1);
  for (uint64_t i = 0; i < 200 && told("former-") + told("further checkpoints") > 0; ++i) {
    DrainNode drain{ReplyToken{900 + i}, {}};  // its replicas go away and come back
    drain.request.set_name("worker-1");
    drain.request.set_undo(i % 2 == 1);
    c.Do(drain);
    c.Settle();
  }
  ASSERT_EQ(told("former-") + told("further checkpoints"), 0);
  const int notes = c.Job(id).notes_size();
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Settle();
  c.Say(c.node("worker-0"), report);
  EXPECT_EQ(told("former-") + told("further checkpoints"), 0);
  EXPECT_EQ(c.Job(id).notes_size(), notes);
}

// `epochs` was not raised, as it has to be for a job that goes on from the end of another.
TEST(ClusterNothingToDo, AJobWhoseStepsAreAllInItsCheckpointSaysSo) {
  Cluster c(1, 1);
  v1::JobSpec spec = SpecWithCheckpoints();
  spec.set_replicas(1);
  spec.set_resume_from("/shared/old");
  const uint64_t id = c.SubmitOk(spec);
  ASSERT_EQ(c.node("worker-0").restores.size(), 1u);
  v1::NodeMessage restored;
  restored.mutable_restored()->set_request_id(c.node("worker-0").restores[0].request_id());
  restored.mutable_restored()->set_job_id(id);
  restored.mutable_restored()->set_step(5);
  restored.mutable_restored()->set_path("/shared/old/step-5");
  for (auto& [partition, version] : c.node("ps-0").hosted.at(id).version) version = 5;
  c.Say(c.node("worker-0"), restored);
  c.Settle();
  ASSERT_EQ(c.State(id), v1::RUNNING) << c.Job(id).reason();
  const std::string told =
      "nothing to do: /shared/old/step-5 is at step 5 of 5; `epochs` (1) counts from step 0: raise it to train on";
  const v1::JobStatus running = c.Job(id);
  EXPECT_EQ(std::count_if(running.events().begin(), running.events().end(),
                          [&](const v1::JobEvent& event) { return event.warning() && event.text() == told; }),
            1);
  v1::NodeMessage finished;
  finished.mutable_replica_report()->set_job_id(id);
  finished.mutable_replica_report()->set_generation(c.Job(id).generation());
  finished.mutable_replica_report()->set_finished(true);
  c.Say(c.node("worker-0"), finished);
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
  EXPECT_EQ(c.Job(id).reason(), told);
}

TEST(ClusterNothingToDo, AJobThatHasStepsLeftSaysNothing) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(SpecWithCheckpoints());
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.Job(id).reason(), "");
  EXPECT_FALSE(c.Logged("nothing to do"));
}

}  // namespace
}  // namespace cairn
