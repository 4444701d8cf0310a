// Goal: copies of partitions. Only a copy in sync takes the place of a lost primary; lost copies are replaced.
// If none is left: cluster_copies_lost_test.cc. The fake cluster checks at every step that no partition lost or doubled
// an update.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/coordinator/copies.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

v1::JobSpec SpecWith(int backups, v1::Durability durability = v1::REPLICATED, int replicas = 4) {
  return SpecWithCopies(8, backups, durability, replicas);  // 40 steps
}

// No ps holds two copies of a partition, and the ps hold what the status says.
void ExpectSound(Cluster& c, uint64_t id) {
  const v1::JobStatus job = c.Job(id);
  for (const auto& p : job.partitions()) {
    std::set<std::string> holders{p.primary()};
    for (const auto& b : p.backups()) EXPECT_TRUE(holders.insert(b.node()).second) << b.node();
    for (const std::string& holder : holders) {
      const FakeNode& node = c.node(holder);
      if (!node.running) continue;
      ASSERT_TRUE(node.hosted.contains(id)) << holder;
      EXPECT_EQ(node.hosted.at(id).backup.contains(p.partition()), holder != p.primary()) << holder;
    }
  }
}

TEST(ClusterCopies, BackupsCatchUpAndAreShown) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  v1::JobStatus job = c.Job(id);
  EXPECT_EQ(job.state(), v1::RUNNING) << job.reason();
  ASSERT_EQ(job.partitions_size(), 4);
  EXPECT_EQ(InSync(job), 0) << "nobody has said so";
  c.Pass(absl::Milliseconds(300));
  job = c.Job(id);
  EXPECT_EQ(InSync(job), 4);
  EXPECT_EQ(job.generation(), 1u) << "catching up disturbs nothing";
  ExpectSound(c, id);
  for (const v1::ListNodesResponse list = c.core().ListNodes(); const v1::NodeStatus& node : list.nodes()) {
    if (node.role() != v1::PS) continue;
    EXPECT_EQ(node.partitions(), 4);
    EXPECT_EQ(node.primaries(), 2);
  }
  c.ClearCommands();
  c.Pass(absl::Seconds(1));
  for (const char* name : {"ps-0", "ps-1", "worker-0"}) EXPECT_EQ(c.node(name).commands, 0) << "told again: " << name;
}

TEST(ClusterCopies, ABackupTakesThePlaceOfADeadPrimary) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(3);
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  v1::JobStatus job = c.Job(id);
  EXPECT_EQ(job.reason(), "");
  EXPECT_EQ(job.generation(), 2u);
  for (const auto& p : job.partitions()) {
    EXPECT_EQ(p.primary(), "ps-0");
    EXPECT_EQ(p.backups_size(), 0) << "there is no other ps";
  }
  c.Train(3);
  EXPECT_EQ(c.TrueStep(id), 6) << "it continues without ps-1";
  c.Restart(c.node("ps-1"), "ps-1:2000");
  c.Pass(absl::Seconds(1));
  job = c.Job(id);
  EXPECT_EQ(InSync(job), 4) << "it is back as a backup";
  EXPECT_EQ(job.partitions(0).backups(0).address(), "ps-1:2000");
  c.Pass(absl::Seconds(10));
  int primaries = 0;
  for (const v1::JobStatus now = c.Job(id); const auto& p : now.partitions()) primaries += p.primary() == "ps-1";
  EXPECT_EQ(primaries, 2) << "and takes its share again";
  ExpectSound(c, id);
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
  EXPECT_EQ(c.TrueStep(id), 40);
}

TEST(ClusterCopies, APrimaryThatRestartsIsNotTrusted) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(4);
  // It is back before its lease ends; its disk is behind, which REPLICATED allows.
  c.Kill(c.node("ps-0"));
  for (auto& [p, version] : c.node("ps-0").hosted.at(id).version) version = 1;
  c.Restart(c.node("ps-0"));
  const v1::JobStatus job = c.Job(id);
  EXPECT_EQ(job.generation(), 2u);
  for (const auto& p : job.partitions()) EXPECT_EQ(p.primary(), "ps-1");
  EXPECT_EQ(InSync(job), 0);
  EXPECT_EQ(job.partitions(0).backups(0).node(), "ps-0");
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

TEST(ClusterCopies, ABackupThatIsNotInSyncIsNeverPromoted) {
  Cluster c(2, 1);
  c.replicate = false;
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Train(2);
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("waits for ps \"ps-1\" to come back"));
  c.Pass(absl::Seconds(30));
  EXPECT_EQ(c.State(id), v1::RUNNING);
  c.replicate = true;
  c.Restart(c.node("ps-1"));
  c.Pass(absl::Milliseconds(200));
  EXPECT_EQ(c.Job(id).reason(), "");
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

// A report that was sent before its backup restarted describes a copy that no longer exists.
TEST(ClusterCopies, AStaleReportIsNotBelieved) {
  Cluster c(2, 1);
  c.replicate = false;
  const uint64_t id = c.SubmitOk(SpecWith(1));
  v1::NodeMessage message;
  v1::BackupReport& report = *message.mutable_backup_report();
  report.set_job_id(id);
  report.set_generation(c.Job(id).generation());
  report.set_partition(0);
  report.set_node("ps-1");
  ASSERT_EQ(c.Job(id).partitions(0).primary(), "ps-0");
  c.Kill(c.node("ps-1"));
  c.Restart(c.node("ps-1"));
  c.Say(c.node("ps-0"), message);
  c.Pass(absl::Milliseconds(200));
  EXPECT_EQ(InSync(c.Job(id)), 0);
  report.set_generation(c.Job(id).generation());
  c.Say(c.node("worker-0"), message);
  c.Say(c.node("ps-1"), message);  // not the primary
  report.set_partition(99);
  c.Say(c.node("ps-0"), message);
  report.set_partition(0);
  report.set_node("ps-7");
  c.Say(c.node("ps-0"), message);
  c.Pass(absl::Milliseconds(200));
  EXPECT_EQ(InSync(c.Job(id)), 0);
  report.set_node("ps-1");
  c.Say(c.node("ps-0"), message);
  c.Pass(absl::Milliseconds(200));
  EXPECT_EQ(InSync(c.Job(id)), 1);
}

TEST(ClusterCopies, ALostBackupIsReplacedAndNotWaitedFor) {
  Cluster c(3, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(2);
  c.Kill(c.node("ps-2"));
  c.Train(1);
  EXPECT_EQ(c.TrueStep(id), 2) << "nothing is acknowledged without its word";
  c.Pass(absl::Milliseconds(700));
  c.Train(1);
  EXPECT_EQ(c.TrueStep(id), 3);
  c.Pass(absl::Seconds(1));
  const v1::JobStatus job = c.Job(id);
  EXPECT_EQ(InSync(job), 4);
  for (const auto& p : job.partitions()) EXPECT_NE(p.backups(0).node(), "ps-2");
  ExpectSound(c, id);
}

TEST(ClusterCopies, AnotherHostWhereThereIsOne) {
  Cluster c(0, 1);
  c.AddPs("a", "rack-1");
  c.AddPs("b", "rack-1");
  c.AddPs("c", "rack-2");
  const uint64_t id = c.SubmitOk(SpecWith(1));
  for (const v1::JobStatus now = c.Job(id); const auto& p : now.partitions()) {
    EXPECT_NE(p.primary() == "c", p.backups(0).node() == "c") << p.primary() << " and " << p.backups(0).node();
  }
}

TEST(ClusterCopies, AnOldPrimaryThatWasCutOffFollows) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(2);
  c.BreakSession(c.node("ps-0"));
  c.Pass(absl::Seconds(1));
  for (const v1::JobStatus now = c.Job(id); const auto& p : now.partitions()) EXPECT_EQ(p.primary(), "ps-1");
  c.Train(2);
  EXPECT_EQ(c.TrueStep(id), 4);
  c.Connect(c.node("ps-0"));
  c.Settle();
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(InSync(c.Job(id)), 4);
  ExpectSound(c, id);
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

TEST(ClusterCopies, AQueuedJobWaitsForAsManyPs) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  EXPECT_EQ(c.State(id), v1::QUEUED);
  EXPECT_EQ(c.Job(id).reason(), "waits for ps: 1 alive, 2 are needed for backups: 1");
  c.AddPs("ps-1");
  c.Pass(absl::Milliseconds(200));
  EXPECT_EQ(c.State(id), v1::RUNNING);
}

TEST(ClusterCopies, AFinishedJobsWeightsSurviveToo) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  ASSERT_TRUE(c.RunToEnd(id));
  c.Pass(absl::Milliseconds(300));
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Seconds(1));
  for (const v1::JobStatus now = c.Job(id); const auto& p : now.partitions()) EXPECT_EQ(p.primary(), "ps-1");
  EXPECT_EQ(c.Job(id).reason(), "");
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

// A planned change of the primary: the old primary and the other backups in sync have every acknowledged update and
// stay in sync. If the new primary dies before it has brought them up to date, nothing is lost.
TEST(ClusterCopies, APlannedChangeKeepsCopiesInSync) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(4);
  c.AddPs("ps-2");  // a primary moves to it
  const v1::PartitionPlacement* moved = nullptr;
  v1::JobStatus job;
  for (int i = 0; i < 100 && moved == nullptr; ++i) {
    c.Pass(absl::Milliseconds(100));
    job = c.Job(id);
    for (const auto& p : job.partitions()) moved = p.primary() == "ps-2" ? &p : moved;
  }
  ASSERT_NE(moved, nullptr);
  const uint32_t partition = moved->partition();
  ASSERT_EQ(moved->backups_size(), 2) << "the old primary, too";
  for (const auto& b : moved->backups()) EXPECT_TRUE(b.in_sync()) << b.node();
  c.replicate = false;  // it dies before it has brought anybody up to date
  c.Kill(c.node("ps-2"));
  c.Pass(absl::Seconds(1));
  EXPECT_NE(c.Job(id).partitions(static_cast<int>(partition)).primary(), "ps-2");
  EXPECT_EQ(c.Job(id).reason(), "");
  c.Train(2);
  EXPECT_EQ(c.TrueStep(id), 6) << "and nothing is lost";
  c.replicate = true;
  c.Restart(c.node("ps-2"));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

TEST(ClusterCopies, APsWhoseStorageFailsIsLeftOut) {
  Cluster c(3, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  v1::NodeMessage message;
  message.mutable_job_error()->set_job_id(id);
  message.mutable_job_error()->set_message("storage failed: no space left on device");
  c.Say(c.node("ps-0"), message);
  c.Settle();
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("continues without ps \"ps-0\": storage failed"));
  c.Pass(absl::Seconds(5));
  for (const v1::JobStatus now = c.Job(id); const auto& p : now.partitions()) {
    EXPECT_NE(p.primary(), "ps-0");
    ASSERT_EQ(p.backups_size(), 1);
    EXPECT_NE(p.backups(0).node(), "ps-0");
  }
  c.Kill(c.node("ps-0"));
  c.Restart(c.node("ps-0"));
  c.Pass(absl::Milliseconds(100));
  EXPECT_EQ(c.Job(id).reason(), "") << "a restart may have mended it";
}

}  // namespace
}  // namespace cairn
