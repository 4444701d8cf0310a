// Goal: the parts that deal with losses keep their invariants by themselves: how a job ends, which copy replaces a lost
// one, what is said of missing ones, who is drained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/core/copies.h"
#include "coordinator/core/copy_watch.h"
#include "coordinator/core/crash_loops.h"
#include "coordinator/core/drains.h"
#include "coordinator/core/endings.h"
#include "coordinator/core/restores.h"
#include "coordinator/core/rollback.h"
#include "tests/unit/coordinator/core_parts.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

struct LossParts : CoreParts {
  using CoreParts::CoreParts;
  Endings endings{ground};
  Restores restores{ground, endings};
  Rollback rollback{ground, endings, restores};
  Copies copies{ground, endings, restores};
  CopyWatch watch{ground};
  CrashLoops crash_loops{ground, endings, copies};
  Drains drains{ground, crash_loops};
};

v1::CheckpointInfo Checkpoint(int64_t step) {
  v1::CheckpointInfo info;
  info.set_step(step);
  info.set_path(absl::StrCat("/runs/a/step-", step));
  return info;
}

TEST(Endings, WhatAJobEndsWithIsStoredBeforeItsWorkersAreTold) {
  LossParts parts(1, 1);
  Job& job = parts.AddRunning(1, 0);
  parts.nodes.Find("worker-0")->work.running[job.id()] = {};
  parts.endings.End(job, v1::CANCELLED, "cancelled by a user");
  EXPECT_EQ(job.state(), v1::CANCELLED);
  bool stored = false;
  for (const Effect& effect : parts.step.TakeEffects()) {
    stored = stored || std::holds_alternative<Store>(effect);
    const auto* send = std::get_if<SendCommand>(&effect);
    const bool drops = send != nullptr && send->message.has_drop_job();
    EXPECT_TRUE(stored || !drops);
  }
  EXPECT_TRUE(stored);
  EXPECT_EQ(parts.CountRaised<SlotsChanged>(), 1);
}

// A job in RUNNING cannot succeed: it goes on as if nobody had asked.
TEST(Endings, AnEndThatMayNotFollowChangesNothing) {
  LossParts parts(1, 1);
  Job& job = parts.AddRunning(1, 0);
  parts.endings.End(job, v1::SUCCEEDED, "all is well");
  EXPECT_EQ(job.state(), v1::RUNNING);
  EXPECT_TRUE(job.progress.has_value());
  EXPECT_EQ(job.status.replicas_size(), 1);
  EXPECT_EQ(job.status.reason(), "");
  EXPECT_TRUE(Only<Store>(parts.TakeEffects()).empty());
}

TEST(Endings, AJobWithAShortfallDoesNotEndInPlainSuccess) {
  LossParts parts(1, 1);
  Job& job = parts.AddRunning(1, 0);
  parts.jobs.Transition(job, v1::FINALIZING);
  NoteShortfall(job, 0, "model_checkpoint", "not saved: a.keras");
  parts.endings.EndComplete(job, "");
  EXPECT_EQ(job.state(), v1::ENDED_WITH_ERRORS);
  EXPECT_THAT(job.status.reason(), HasSubstr("not saved: a.keras"));
}

TEST(Restores, TheNewestCheckpointTakesThePlaceOfLostWeights) {
  LossParts parts(2, 1);
  Job& job = parts.AddRunning(1, 0);
  EXPECT_FALSE(parts.restores.RestoreInstead(job, "its ps is gone"));
  *job.status.add_checkpoints() = Checkpoint(5);
  *job.status.add_checkpoints() = Checkpoint(7);
  EXPECT_TRUE(parts.restores.RestoreInstead(job, "its ps is gone"));
  EXPECT_EQ(job.state(), v1::STARTING);
  EXPECT_EQ(job.restoring.from.front(), "/runs/a/step-7");
}

TEST(Rollback, PartitionsThatAreOneUpdateApartGoOn) {
  LossParts parts(2, 1);
  Job& job = parts.AddRunning(2, 0);
  job.partitions.hosting.held[0].set_version(4);
  job.partitions.hosting.held[1].set_version(5);
  EXPECT_FALSE(parts.rollback.FallBack(job));
}

TEST(Rollback, WithoutALogAllGoBackToAVersionThatAllHave) {
  LossParts parts(2, 1);
  Job& job = parts.AddRunning(2, 0);
  job.status.mutable_spec()->set_durability(v1::SNAPSHOT);
  job.partitions.hosting.held[0].set_version(8);
  job.partitions.hosting.held[0].set_version_min(8);
  job.partitions.hosting.held[0].add_versions(4);
  job.partitions.hosting.held[1].set_version(6);
  job.partitions.hosting.held[1].set_version_min(6);
  job.partitions.hosting.held[1].add_versions(4);
  EXPECT_TRUE(parts.rollback.FallBack(job));
  EXPECT_EQ(job.partitions.rollback.to, 4u);
  EXPECT_TRUE(job.partitions.rollback.under_way);
  EXPECT_EQ(job.status.generation(), 2u);
}

TEST(Copies, ABackupInSyncIsPromotedAndOneBehindIsNot) {
  LossParts parts(3, 1);
  Job& job = parts.AddRunning(1, 2);
  job.status.mutable_partitions(0)->mutable_backups(0)->set_in_sync(false);
  parts.Lose("ps-0");
  EXPECT_TRUE(parts.copies.Settle(job));
  EXPECT_EQ(job.status.partitions(0).primary(), "ps-2");
  EXPECT_EQ(job.status.generation(), 2u);
}

TEST(Copies, WithoutACopyInSyncTheLostPsIsWaitedFor) {
  LossParts parts(2, 1);
  Job& job = parts.AddRunning(1, 1);
  job.status.mutable_partitions(0)->mutable_backups(0)->set_in_sync(false);
  parts.Lose("ps-0");
  EXPECT_FALSE(parts.copies.Settle(job));
  EXPECT_EQ(job.status.partitions(0).primary(), "ps-0");
  EXPECT_THAT(parts.copies.WaitText(job), HasSubstr("waits for ps \"ps-0\" to come back"));
}

TEST(CopyWatch, ALackIsToldOnceItLasts) {
  LossParts parts(2, 1);
  Job& job = parts.AddRunning(1, 1);
  job.status.mutable_partitions(0)->mutable_backups(0)->set_in_sync(false);
  parts.watch.Note(CopiesChanged{job.id()});
  parts.watch.Tick();
  EXPECT_FALSE(job.status.has_degraded());
  parts.step.Begin(parts.step.now() + absl::Seconds(2));
  parts.watch.Tick();
  EXPECT_TRUE(job.status.has_degraded());
  job.status.mutable_partitions(0)->mutable_backups(0)->set_in_sync(true);
  parts.watch.Note(CopiesChanged{job.id()});
  parts.watch.Tick();
  EXPECT_FALSE(job.status.has_degraded());
}

TEST(CrashLoops, AWorkerThatDiesAtOneStepIsLeftOutAtTheThirdTime) {
  LossParts parts(1, 2);
  Job& job = parts.AddRunning(1, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(job.workers.left_out.nodes.empty());
    parts.crash_loops.NoteEnd("worker-0", false);
    parts.crash_loops.QuarantineCrashLoopingWorker(*parts.nodes.Find("worker-0"));
  }
  EXPECT_TRUE(job.workers.left_out.nodes.contains("worker-0"));
  EXPECT_GT(parts.CountRaised<SlotsChanged>(), 0);
}

TEST(Drains, ALastPsThatHoldsPartitionsIsNotDrained) {
  LossParts parts(1, 1);
  parts.AddRunning(1, 0);
  DrainNode drain;
  drain.request.set_name("ps-0");
  parts.drains.OnDrain(drain);
  const std::vector<Reply> refused = Only<Reply>(parts.TakeEffects());
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].status.code(), absl::StatusCode::kFailedPrecondition);
  parts.Join("ps-1", v1::PS);
  parts.TakeEffects();
  parts.drains.OnDrain(drain);
  EXPECT_TRUE(parts.nodes.Find("ps-0")->draining);
  EXPECT_EQ(parts.CountRaised<SlotsChanged>(), 1);
}

}  // namespace
}  // namespace cairn
