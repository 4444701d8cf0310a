// Goal: two ps that the coordinator sees and that cannot reach each other: the primary continues without that backup,
// by one new generation, the backup is not promoted any more, another ps takes its place, and the two are joined again
// later without a generation every few seconds. And former copies: the last good copy is not thrown away while nothing
// was acknowledged without it, and never taken once something may have been.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/copies.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

v1::JobSpec SpecWith(int backups, v1::Durability durability = v1::REPLICATED) {
  return SpecWithCopies(40, backups, durability);  // 200 steps
}

TEST(ClusterLinks, EachPrimaryGoesOnAloneAndTheTwoAreJoinedAgainLater) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(2);
  c.CutLink("ps-0", "ps-1");
  c.Train(1);
  EXPECT_EQ(c.TrueStep(id), 2) << "nothing is acknowledged without the backup's word";
  c.Pass(absl::Seconds(4));
  c.Train(2);
  EXPECT_EQ(c.TrueStep(id), 4);
  v1::JobStatus job = c.Job(id);
  EXPECT_EQ(PrimariesOn(job, "ps-0"), 2) << "each keeps its own";
  EXPECT_EQ(PrimariesOn(job, "ps-1"), 2);
  EXPECT_EQ(InSync(job), 0);
  EXPECT_LE(job.generation(), 3u);
  EXPECT_THAT(job.reason(), HasSubstr("cannot reach ps"));
  EXPECT_THAT(job.reason(), HasSubstr("(no answer for 3 s): 4 partitions lack a backup"));
  const uint64_t generation = job.generation();
  c.Pass(absl::Minutes(20));
  EXPECT_EQ(c.Job(id).generation(), generation) << "trying again costs none";
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("no step was finished for a while")) << "and it was not trained";
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("cannot reach ps"));
  c.Train(1);
  EXPECT_EQ(c.TrueStep(id), 5);
  c.HealLink("ps-0", "ps-1");
  c.Pass(absl::Minutes(5) + absl::Seconds(3));
  job = c.Job(id);
  EXPECT_EQ(InSync(job), 4);
  EXPECT_EQ(job.generation(), generation);
  c.Train(1);
  c.Pass(absl::Milliseconds(200));
  EXPECT_EQ(c.Job(id).reason(), "");
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

// Its primaries report that ps-1 is busy: they continue without it, it is tried again after the shortest pause each
// time, and the network is not blamed.
TEST(ClusterLinks, ABusyPsIsTriedAgainSoonAndTheReasonGoes) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(2);
  for (int i = 0; i < 6; ++i) {
    c.replicate = false;
    const v1::JobStatus job = c.Job(id);
    v1::NodeMessage message;
    v1::BackupReport& report = *message.mutable_backup_report();
    report.set_job_id(id);
    report.set_generation(job.generation());
    report.set_partition(0);
    report.set_node(job.partitions(0).backups(0).node());
    report.set_lost("no answer for 10 s, though its connection is alive");
    report.set_busy(true);
    c.Say(c.node(job.partitions(0).primary()), message);
    c.Pass(absl::Seconds(1));
    EXPECT_THAT(c.Job(id).reason(), HasSubstr("which is busy (no answer for 10 s"));
    EXPECT_THAT(c.Job(id).reason(), testing::Not(HasSubstr("network")));
    c.replicate = true;
    c.Pass(absl::Seconds(12));
    EXPECT_EQ(InSync(c.Job(id)), 4) << "round " << i;
    EXPECT_EQ(c.Job(id).reason(), "") << "round " << i;
  }
}

TEST(ClusterLinks, AnEndedJobDoesNotKeepAReasonThatPasses) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWithCopies(2, 1));
  c.Pass(absl::Milliseconds(300));
  c.CutLink("ps-0", "ps-1");
  c.Pass(absl::Seconds(6));
  ASSERT_THAT(c.Job(id).reason(), HasSubstr("cannot reach ps"));
  ASSERT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
  EXPECT_EQ(c.Job(id).reason(), "");
}

TEST(ClusterLinks, ALinkThatFlapsCostsFewGenerations) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(2);
  for (int i = 0; i < 240; ++i) {  // 40 minutes
    c.CutLink("ps-0", "ps-1");
    c.Pass(absl::Seconds(5));
    c.HealLink("ps-0", "ps-1");
    c.Pass(absl::Seconds(5));
  }
  // After 10 s, 20 s, ... 5 min, then every 5 min; two generations each time, for both are primaries.
  EXPECT_LE(c.Job(id).generation(), 1u + 2 * (5 + 8));
  EXPECT_GE(c.Job(id).generation(), 3u);
}

TEST(ClusterLinks, AnotherPsTakesThePlace) {
  Cluster c(3, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(2);
  c.CutLink("ps-0", "ps-1");
  c.Pass(absl::Seconds(6));
  c.Train(1);
  EXPECT_EQ(c.TrueStep(id), 3);
  const v1::JobStatus job = c.Job(id);
  EXPECT_EQ(InSync(job), job.partitions_size());
  for (const auto& p : job.partitions()) {
    EXPECT_NE(std::pair(p.primary(), p.backups(0).node()), std::pair(std::string("ps-0"), std::string("ps-1")));
    EXPECT_NE(std::pair(p.primary(), p.backups(0).node()), std::pair(std::string("ps-1"), std::string("ps-0")));
  }
  EXPECT_EQ(job.reason(), "");
}

TEST(ClusterLinks, ABackupThatWasTakenAwayIsNotPromoted) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(2);
  c.CutLink("ps-0", "ps-1");
  c.Pass(absl::Seconds(4));
  c.Train(3);
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(PrimariesOn(c.Job(id), "ps-1"), 2) << "its own and no other";
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("waits for ps \"ps-0\""));
  c.HealLink("ps-0", "ps-1");
  c.Restart(c.node("ps-0"));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

TEST(ClusterLinks, ACopyThatCannotCatchUpIsReplacedWithoutAGeneration) {
  Cluster c(3, 1);
  c.replicate = false;
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  ASSERT_EQ(InSync(c.Job(id)), 0);
  const uint64_t generation = c.Job(id).generation();
  c.CutLink("ps-0", "ps-1");
  c.CutLink("ps-1", "ps-2");
  c.replicate = true;
  c.Pass(absl::Seconds(6));
  const v1::JobStatus job = c.Job(id);
  EXPECT_EQ(job.generation(), generation);
  EXPECT_EQ(InSync(job), PrimariesOn(job, "ps-0") + PrimariesOn(job, "ps-2")) << "ps-1 reaches nobody";
}

TEST(ClusterLinks, WhoIsBelieved) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(1);
  c.replicate = false;
  const v1::JobStatus job = c.Job(id);
  const std::string primary = job.partitions(0).primary(), backup = job.partitions(0).backups(0).node();
  v1::NodeMessage message;
  v1::BackupReport& report = *message.mutable_backup_report();
  report.set_job_id(id);
  report.set_generation(job.generation());
  report.set_node(primary);
  report.set_lost("it is mine");
  c.Say(c.node(backup), message);  // the backup says that the primary is away
  c.Pass(absl::Milliseconds(200));
  report.set_node(backup);
  c.Say(c.node(backup), message);  // it is not the primary
  report.set_generation(job.generation() - 1);
  c.Say(c.node(primary), message);
  report.set_generation(job.generation() + 1);
  c.Say(c.node(primary), message);
  c.Pass(absl::Milliseconds(200));
  EXPECT_EQ(c.Job(id).generation(), job.generation());
  EXPECT_EQ(InSync(c.Job(id)), 4);
  // The backup is silent here too: its lease decides.
  report.set_generation(job.generation());
  c.node(backup).silent = true;
  c.Pass(absl::Milliseconds(1500));
  c.Say(c.node(primary), message);
  c.Pass(absl::Milliseconds(200));
  EXPECT_EQ(c.Job(id).generation(), job.generation());
  c.node(backup).silent = false;
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(c.Job(id).generation(), job.generation());
  report.set_lost(std::string(100'000, 'x'));
  c.Say(c.node(primary), message);
  c.Pass(absl::Milliseconds(200));
  EXPECT_EQ(c.Job(id).generation(), job.generation() + 1);
  EXPECT_LT(c.Job(id).reason().size(), 1000u);
}

// A primary that is left out reports that it cannot reach its backup, which was restarted: the backup's disk is the
// only copy left.
TEST(ClusterLinks, APrimaryThatIsLeftOutTakesNobodyAway) {
  Cluster c(2, 1);
  v1::JobSpec spec = SpecWith(1);
  spec.set_partition_bytes(4 << 20);  // one partition, on ps-0
  const uint64_t id = c.SubmitOk(spec);
  c.Pass(absl::Milliseconds(300));
  c.Train(3);
  c.Kill(c.node("ps-1"));
  v1::NodeMessage message;
  message.mutable_job_error()->set_job_id(id);
  message.mutable_job_error()->set_message("/data: no space left on device");
  c.Say(c.node("ps-0"), message);
  c.Restart(c.node("ps-1"));
  c.CutLink("ps-0", "ps-1");
  c.Pass(absl::Seconds(10));
  EXPECT_EQ(PrimariesOn(c.Job(id), "ps-1"), 1) << c.Job(id).reason();
  c.Train(2);
  EXPECT_EQ(c.TrueStep(id), 5);
}

// ---- former copies ----

TEST(FormerCopies, TheOldPrimaryIsTakenAgainWhereItsHeirIsDead) {
  Cluster c(2, 1);
  const uint64_t id = PromoteADeadPs(c, SpecWith(1));
  for (const v1::JobStatus job = c.Job(id); const auto& p : job.partitions()) {
    ASSERT_EQ(p.backups_size(), 1);
    EXPECT_TRUE(p.backups(0).former() && !p.backups(0).in_sync());
  }
  c.Connect(c.node("ps-0"));
  EXPECT_TRUE(Within10s(c, [&] { return PrimariesOn(c.Job(id), "ps-0") == 1; })) << c.Job(id).reason();
  c.Train(3);
  EXPECT_EQ(c.TrueStep(id), 6);
  c.node("ps-1").silent = false;
  c.Kill(c.node("ps-1"));
  c.Restart(c.node("ps-1"));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

TEST(FormerCopies, AlsoOverARestartOfTheCoordinator) {
  Cluster c(2, 1);
  const uint64_t id = PromoteADeadPs(c, SpecWith(1));
  c.RestartCoordinator();
  c.Connect(c.node("ps-0"));
  c.Connect(c.node("worker-0"));
  EXPECT_TRUE(Within10s(c, [&] { return PrimariesOn(c.Job(id), "ps-0") == 1; })) << c.Job(id).reason();
  c.Train(2);
  EXPECT_EQ(c.TrueStep(id), 5);
}

TEST(FormerCopies, TheDiskOfOneThatWasStartedAnewWhereItHasALog) {
  Cluster c(2, 1);
  const uint64_t id = PromoteADeadPs(c, SpecWith(1, v1::LOGGED_AND_REPLICATED));
  c.Kill(c.node("ps-0"));
  c.Restart(c.node("ps-0"));
  EXPECT_TRUE(Within10s(c, [&] { return PrimariesOn(c.Job(id), "ps-0") == 1; })) << c.Job(id).reason();
  c.Train(2);
  EXPECT_EQ(c.TrueStep(id), 5);
}

TEST(FormerCopies, NoneIsTakenOnceTheHeirServes) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(3);
  c.BreakSession(c.node("ps-0"));
  ASSERT_TRUE(Within10s(c, [&] { return PrimariesOn(c.Job(id), "ps-1") == 4; }));
  for (const v1::JobStatus job = c.Job(id); const auto& p : job.partitions()) EXPECT_EQ(p.backups_size(), 0);
  c.Train(2);
  EXPECT_EQ(c.TrueStep(id), 5);
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  c.Connect(c.node("ps-0"));
  c.Pass(absl::Seconds(30));
  EXPECT_EQ(PrimariesOn(c.Job(id), "ps-0"), 0) << "it lacks two steps that were acknowledged";
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("waits for ps \"ps-1\""));
  c.Restart(c.node("ps-1"));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

}  // namespace
}  // namespace cairn
