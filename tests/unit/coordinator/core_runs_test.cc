// Goal: the parts that start, feed and finish jobs keep their invariants by themselves: who computes what, checkpoints,
// epochs, evaluations, reasons.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/core/assignments.h"
#include "coordinator/core/checkpoints.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/crash_loops.h"
#include "coordinator/core/epochs.h"
#include "coordinator/core/evaluations.h"
#include "coordinator/core/job_runs.h"
#include "coordinator/core/model_files.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/reconciler.h"
#include "coordinator/core/rollback.h"
#include "coordinator/core/schedule.h"
#include "coordinator/core/submissions.h"
#include "tests/unit/coordinator/core_parts.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct RunParts : CoreParts {
  using CoreParts::CoreParts;
  Endings endings{ground};
  Restores restores{ground, endings};
  Rollback rollback{ground, endings, restores};
  Copies copies{ground, endings, restores};
  Assignments assignments{ground};
  Schedule schedule{ground, endings, assignments};
  ModelFiles files{ground};
  Checkpoints checkpoints{ground, files};
  Epochs epochs{ground, endings, assignments, files};
  Evaluations evaluations{ground, copies};
  Reasons reasons{ground, endings, copies, evaluations};
  Submissions submissions{ground, endings, schedule, reasons};
  JobRuns runs{ground, {endings, restores, rollback, copies, assignments, files, checkpoints, epochs}};
  CrashLoops crash_loops{ground, endings, copies};
  Reconciler reconciler{ground, endings, copies, crash_loops, runs};
};

TEST(Assignments, AWorkerIsToldOnceAndNobodyBeforeThePrimariesAreReady) {
  RunParts parts(1, 2);
  Job& job = parts.AddRunning(1, 0);
  job.partitions.hosting.awaiting_ready = true;
  parts.assignments.Send(job);
  EXPECT_TRUE(Only<SendCommand>(parts.TakeEffects()).empty());
  job.partitions.hosting.awaiting_ready = false;
  parts.assignments.Send(job);
  EXPECT_EQ(parts.CountRaised<AssignmentsSent>(), 1);
  EXPECT_EQ(Only<SendCommand>(parts.TakeEffects()).size(), 1u);
  parts.assignments.Send(job);
  EXPECT_TRUE(Only<SendCommand>(parts.TakeEffects()).empty());
}

TEST(Assignments, ReplicasOfAWorkerThatIsGoneGoToOthersAndTheNumberIsRaised) {
  RunParts parts(1, 2);
  Job& job = parts.AddRunning(1, 0);
  const uint64_t before = job.assignment;
  parts.Lose("worker-0");
  parts.assignments.Rebalance(job, /*may_grow=*/false);
  EXPECT_EQ(job.status.replicas(0).worker(), "worker-1");
  EXPECT_EQ(job.status.chief(), "worker-1");
  EXPECT_GT(job.assignment, before);
  EXPECT_EQ(Only<Store>(parts.TakeEffects()).size(), 1u);
}

TEST(Schedule, LooksAtTheQueueOnlyWhereSomethingChanged) {
  RunParts parts(1, 1);
  parts.schedule.RunIfDue(/*tick=*/true);
  EXPECT_EQ(parts.CountRaised<QueueLookedAt>(), 0);
  parts.schedule.Note(QueueChanged{});
  parts.schedule.RunIfDue(/*tick=*/true);
  EXPECT_EQ(parts.CountRaised<QueueLookedAt>(), 1);
  parts.schedule.RunIfDue(/*tick=*/true);
  EXPECT_EQ(parts.CountRaised<QueueLookedAt>(), 0);
}

TEST(Checkpoints, OnlyTheChiefIsBelievedAndThePlaceIsComputed) {
  RunParts parts(1, 2);
  Job& job = parts.AddRunning(1, 0);
  job.status.mutable_spec()->mutable_checkpoints()->set_dir("/runs/a");
  job.status.mutable_spec()->mutable_checkpoints()->set_keep_max(3);
  v1::CheckpointReport report;
  report.set_job_id(job.id());
  report.mutable_checkpoint()->set_step(5);
  report.mutable_checkpoint()->set_path("/etc/passwd");
  parts.checkpoints.OnCheckpoint(*parts.nodes.Find("worker-1"), report);
  EXPECT_EQ(job.status.checkpoints_size(), 0);
  parts.checkpoints.OnCheckpoint(*parts.nodes.Find("worker-0"), report);
  ASSERT_EQ(job.status.checkpoints_size(), 1);
  EXPECT_THAT(job.status.checkpoints(0).path(), HasSubstr("/runs/a/"));
  EXPECT_EQ(parts.CountRaised<JobAdvanced>(), 1);
}

// A chief reports the end of its replicas when its last checkpoint is taken: a worker that had them before must not end
// the job in its place.
TEST(JobRuns, ThatAReplicaOfTheChiefIsDoneIsForTheChiefToSay) {
  for (const bool checkpoints : {true, false}) {
    SCOPED_TRACE(checkpoints);
    RunParts parts(1, 2);
    Job& job = parts.AddRunning(1, 0);
    if (checkpoints) job.status.mutable_spec()->mutable_checkpoints()->set_dir("/runs/a");
    v1::ReplicaReport report;
    report.set_job_id(job.id());
    report.set_generation(1);
    report.set_finished(true);
    parts.runs.OnReplicaReport(*parts.nodes.Find("worker-1"), report);
    EXPECT_EQ(job.progress->replicas().all_finished(), !checkpoints);
    EXPECT_EQ(job.progress->step(), 10) << "its steps are done";
    parts.runs.OnReplicaReport(*parts.nodes.Find("worker-0"), report);
    EXPECT_TRUE(job.progress->replicas().all_finished());
    report.set_replica(7);
    parts.runs.OnReplicaReport(*parts.nodes.Find("worker-1"), report);
    EXPECT_EQ(Only<LogLine>(parts.TakeEffects()).back().warning, true) << "there is no such replica";
  }
}

// The replica whose end the chief has not reported moves away; the remaining one was finished by another worker before.
// A chief that itself reported the end of a replica owes nothing, whatever it is given and loses later.
TEST(Epochs, AChiefThatIsLeftWithReplicasThatAreDoneIsWaitedFor) {
  for (const bool told : {false, true}) {
    SCOPED_TRACE(told);
    RunParts parts(1, 1);
    Job& job = parts.AddRunning(1, 0);
    v1::JobSpec& spec = *job.status.mutable_spec();
    spec.mutable_checkpoints()->set_dir("/runs/a");
    spec.mutable_checkpoints()->set_keep_max(3);
    spec.set_replicas(2);
    job.status.add_replicas()->set_worker("worker-0");
    job.status.mutable_replicas(1)->set_replica(1);
    job.progress.emplace(job.status, std::vector<int64_t>{10, 10}, std::vector<bool>{}, parts.step.now());
    v1::ReplicaReport report;
    report.set_job_id(job.id());
    report.set_generation(1);
    report.set_finished(true);
    if (told) {
      parts.runs.OnReplicaReport(*parts.nodes.Find("worker-0"), report);
    } else {
      ASSERT_TRUE(job.progress->Count(report, job.status, parts.step.now()).ok());
    }
    parts.Join("worker-1", v1::WORKER);
    parts.assignments.Rebalance(job, /*may_grow=*/true);
    ASSERT_EQ(job.status.chief(), "worker-0");
    ASSERT_EQ(job.ReplicasOf("worker-0"), std::vector<int32_t>{0});
    EXPECT_EQ(parts.epochs.LastCheckpointMayCome(job), !told);
    v1::CheckpointReport written;
    written.set_job_id(job.id());
    written.mutable_checkpoint()->set_step(4);  // a chief repeats its newest when it connects again
    parts.checkpoints.OnCheckpoint(*parts.nodes.Find("worker-0"), written);
    EXPECT_EQ(parts.epochs.LastCheckpointMayCome(job), !told);
    written.mutable_checkpoint()->set_step(10);
    parts.checkpoints.OnCheckpoint(*parts.nodes.Find("worker-0"), written);
    EXPECT_FALSE(parts.epochs.LastCheckpointMayCome(job));
  }
}

TEST(ModelFiles, AFileIsAskedOfOneWorkerAtATime) {
  RunParts parts(1, 2);
  Job& job = parts.AddRunning(1, 0);
  v1::CheckpointInfo& info = *job.status.add_checkpoints();
  info.set_step(5);
  parts.files.AddSave(job, 5, "a.keras");
  parts.files.SendSaves(job);
  parts.files.SendSaves(job);
  EXPECT_EQ(Only<SendCommand>(parts.TakeEffects()).size(), 1u);
  parts.files.ReleaseWorker("worker-0");
  parts.files.SendSaves(job);
  EXPECT_EQ(Only<SendCommand>(parts.TakeEffects()).size(), 1u);
}

TEST(Epochs, FiguresOfAnotherPsThanThePrimaryAreIgnored) {
  RunParts parts(2, 1);
  Job& job = parts.AddRunning(1, 0);
  v1::FiguresReport report;
  report.set_job_id(job.id());
  report.set_generation(1);
  parts.epochs.OnFigures(*parts.nodes.Find("ps-1"), report);
  EXPECT_EQ(parts.CountRaised<JobAdvanced>(), 0);
  EXPECT_TRUE(Only<LogLine>(parts.TakeEffects()).empty());
}

TEST(Evaluations, AJobWithoutWeightsIsRefused) {
  RunParts parts(1, 1);
  Job& job = parts.AddRunning(1, 0);
  job.status.clear_partitions();
  EvaluateJob event;
  event.reply = ReplyToken(1);
  event.request.mutable_job()->set_job_id(job.id());
  event.deadline = parts.step.now() + absl::Minutes(1);
  parts.evaluations.OnEvaluate(event);
  const std::vector<Reply> replies = Only<Reply>(parts.TakeEffects());
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_THAT(std::string(replies[0].status.message()), HasSubstr("has no weights"));
}

TEST(Reasons, SaysWhatIsWaitedForAndClearsIt) {
  RunParts parts(2, 1);
  Job& job = parts.AddRunning(2, 0);
  parts.Lose("ps-1");
  parts.reasons.Update(job);
  EXPECT_THAT(job.status.reason(), HasSubstr("waits for ps \"ps-1\""));
  parts.Join("ps-1", v1::PS);
  parts.reasons.Update(job);
  EXPECT_THAT(job.status.reason(), Not(HasSubstr("ps-1")));
}

TEST(Submissions, TheSameKeyGetsTheSameJob) {
  RunParts parts(1, 0);
  Job& job = parts.AddRunning(1, 0);
  job.queueing.request_key = "k";
  SubmitJob event;
  event.reply = ReplyToken(1);
  event.request_key = "k";
  event.job = std::make_shared<CheckedJob>();
  parts.submissions.OnSubmit(event);
  const std::vector<Reply> replies = Only<Reply>(parts.TakeEffects());
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(std::get<v1::SubmitResponse>(replies[0].body).job().job_id(), job.id());
  EXPECT_EQ(parts.jobs.all().size(), 1u);
}

TEST(JobRuns, NoDigestIsTakenWhileLastValuesAreInMemory) {
  RunParts parts(1, 1);
  Job& job = parts.AddRunning(1, 0);
  parts.jobs.Transition(job, v1::FINALIZING);
  job.partitions.hosting.held[0].set_version(10);
  job.partitions.hosting.held[0].set_in_memory(true);
  parts.runs.TryFinalize(job);
  EXPECT_TRUE(Only<SendCommand>(parts.TakeEffects()).empty());
  job.partitions.hosting.held[0].set_in_memory(false);
  parts.runs.TryFinalize(job);
  EXPECT_EQ(job.end.versions, std::vector<uint64_t>{10});
  const Effects effects = parts.TakeEffects();
  EXPECT_EQ(Only<Store>(effects).size(), 1u);
  EXPECT_EQ(Only<SendCommand>(effects).size(), 1u);
}

// A ps drops what it holds of a job that was not assigned to it, and is told again to hold what was.
TEST(Reconciler, APsDropsWhatIsNotItsToHold) {
  RunParts parts(2, 1);
  Job& job = parts.AddRunning(1, 0);
  v1::Hello hello;
  hello.set_name("ps-1");
  hello.add_held()->set_job_id(job.id());
  hello.add_held()->set_job_id(77);
  Membership::Admission admission;
  admission.node = parts.nodes.Find("ps-1");
  admission.was_alive = admission.same_process = true;
  parts.reconciler.ReconcilePs(admission, hello);
  const Effects effects = parts.TakeEffects();
  std::vector<uint64_t> dropped;
  for (const SendCommand& send : Only<SendCommand>(effects)) {
    if (send.message.has_drop_job()) dropped.push_back(send.message.drop_job().job_id());
  }
  EXPECT_EQ(dropped, (std::vector<uint64_t>{job.id(), 77}));
  ASSERT_EQ(Only<LogLine>(effects).size(), 2u);
  EXPECT_TRUE(Only<LogLine>(effects)[0].warning) << "of a job that was never given out";
  EXPECT_FALSE(Only<LogLine>(effects)[1].warning) << "others took its place";
}

TEST(Reconciler, AVersionBehindWhatWasReachedFailsTheJob) {
  RunParts parts(1, 1);
  Job& job = parts.AddRunning(1, 0);  // at version 3
  v1::PartitionsReady ready;
  ready.set_job_id(job.id());
  ready.set_generation(1);
  ready.add_partitions()->set_version(2);
  parts.reconciler.OnPartitionsReady(*parts.nodes.Find("ps-0"), ready);
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_THAT(job.status.reason(), HasSubstr("loaded version 2 of partition 0, but version 3 was reached"));
}

}  // namespace
}  // namespace cairn
