// Goal: a job whose partitions lack backups says so, since when, and what is being done, until they are in sync again,
// whatever is restarted meanwhile. A ps is ready when the next one may be stopped: never before its copies are in sync,
// and never delayed by copies that cannot be made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/copies.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

struct Copies : Cluster {
  explicit Copies(int ps, int backups = 1) : Cluster(ps, 1) {
    id = SubmitOk(SpecWithCopies(200, backups));
    EXPECT_TRUE(Within10s(*this, [&] { return InSync(Job(id)) == 4 * backups; }));
    Pass(absl::Seconds(2));
    Train(3);
  }
  v1::JobStatus Now() const { return Job(id); }
  bool Ready(const std::string& ps) { return node(ps).not_ready == ""; }
  v1::NodeStatus Status(const std::string& ps) {
    const v1::ListNodesResponse all = core().ListNodes();
    return *std::find_if(all.nodes().begin(), all.nodes().end(), [&](auto& n) { return n.name() == ps; });
  }
  int Times(const std::string& part) const {
    const v1::JobStatus job = Now();
    return static_cast<int>(std::count_if(job.events().begin(), job.events().end(),
                                          [&](auto& e) { return e.text().find(part) != std::string::npos; }));
  }
  bool Told(const std::string& part) const { return Times(part) > 0; }
  uint64_t id = 0;
};

TEST(ClusterDegraded, ALostPsLeavesAJobDegradedUntilItsCopiesAreInSyncAgain) {
  Copies c(2);
  EXPECT_FALSE(c.Now().has_degraded());
  EXPECT_FALSE(c.Told("degraded")) << "copies of a new job are no event";
  const int64_t killed_ms = absl::ToUnixMillis(c.clock().Now());
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(3));
  const v1::Degraded degraded = c.Now().degraded();
  EXPECT_EQ(degraded.partitions(), 4);
  EXPECT_EQ(degraded.text(),
            "4 of 4 partitions lack a backup in sync (backups: 1); 1 ps that may hold copies, 2 are needed: start ps "
            "\"ps-1\" again, "
            "or another one");
  EXPECT_NEAR(static_cast<double>(degraded.since_unix_ms()), static_cast<double>(killed_ms), 1000);
  EXPECT_TRUE(c.Told("degraded: 4 of 4 partitions"));
  EXPECT_EQ(c.core().JobRows(c.clock().Now())[0].degraded().partitions(), 4) << "rows of lists show it, too";
  // A restarted coordinator knows since when.
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Pass(absl::Seconds(8));
  EXPECT_EQ(c.Now().degraded().since_unix_ms(), degraded.since_unix_ms());
  c.replicate = false;
  c.Restart(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(c.Now().degraded().text(),
            "4 of 4 partitions lack a backup in sync (backups: 1); copies are being filled on ps \"ps-1\"");
  c.replicate = true;
  ASSERT_TRUE(Within10s(c, [&] { return InSync(c.Now()) == 4; }));
  c.Pass(absl::Milliseconds(200));
  EXPECT_FALSE(c.Now().has_degraded());
  EXPECT_TRUE(c.Told("every partition has its backups in sync again"));
}

// The loss was an event, so its end is one, too.
TEST(ClusterDegraded, TheEndOfAShortLossIsToldOnce) {
  Copies c(2);
  for (int times = 1; times <= 2; ++times) {
    c.Kill(c.node("ps-1"));
    c.Restart(c.node("ps-1"));
    ASSERT_TRUE(Within10s(c, [&] { return InSync(c.Now()) == 4; }));
    c.Pass(absl::Seconds(3));
    EXPECT_EQ(c.Times("every partition has its backups in sync again, after "), times);
  }
  EXPECT_FALSE(c.Told("degraded: ")) << "it was too short for that";
}

// There may be hundreds of ended jobs.
TEST(ClusterDegraded, TheEndOfAShortLossIsNoEventOfAnEndedJob) {
  Copies c(2);
  CancelJob cancel{ReplyToken{999}, {}};
  cancel.job.set_job_id(c.id);
  c.Do(cancel);
  c.Pass(absl::Seconds(2));
  ASSERT_EQ(c.Now().state(), v1::CANCELLED);
  c.Kill(c.node("ps-1"));
  c.Restart(c.node("ps-1"));
  ASSERT_TRUE(Within10s(c, [&] { return InSync(c.Now()) == 4; }));
  c.Pass(absl::Seconds(3));
  EXPECT_EQ(c.Told("every partition has its backups in sync again"), c.Told("degraded: "));
}

TEST(ClusterDegraded, ACopyThatWasStillFilledIsNoLoss) {
  Copies c(2);
  c.replicate = false;
  c.AddPs("ps-2");
  const auto on_new = [&] {
    int copies = 0;
    const v1::JobStatus job = c.Now();
    for (const v1::PartitionPlacement& p : job.partitions()) {
      for (const v1::BackupPlacement& b : p.backups()) copies += b.node() == "ps-2";
    }
    return copies;
  };
  ASSERT_TRUE(Within10s(c, [&] { return on_new() > 0; })) << "some are to move there";
  ASSERT_EQ(InSync(c.Now()), 4);
  c.Kill(c.node("ps-2"));
  ASSERT_TRUE(Within10s(c, [&] { return on_new() == 0; }));
  c.Pass(absl::Seconds(3));
  EXPECT_EQ(InSync(c.Now()), 4);
  EXPECT_FALSE(c.Told("every partition has its backups in sync again"));
}

TEST(ClusterDegraded, BackupsThatCannotBeReachedAreAnEventOfTheJob) {
  Copies c(3);
  const v1::PartitionPlacement p = c.Now().partitions(0);
  const std::string primary = p.primary(), backup = p.backups(0).node();
  c.CutLink(primary, backup);
  ASSERT_TRUE(Within10s(c, [&] { return c.Told(absl::StrCat("on ps \"", backup, "\"")); }));
  EXPECT_TRUE(c.Told("behind: what serves the partitions cannot reach them"));
  ASSERT_TRUE(Within10s(c, [&] { return c.Told("every partition has its backups in sync again"); }));
  EXPECT_EQ(InSync(c.Now()), 4);
}

TEST(ClusterDegraded, WithoutAnyCopyNoneIsPromised) {
  Copies c(3);
  c.Kill(c.node("ps-0"));
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(5));
  ASSERT_TRUE(c.Now().has_degraded());
  const std::string text = c.Now().degraded().text();
  EXPECT_THAT(text, HasSubstr("no copy is there: start ps \"ps-0\", \"ps-1\" again, on the same data directory"));
}

TEST(ClusterDegraded, AnEndedJobSaysItInItsOwnWords) {
  Copies c(2);
  CancelJob cancel{ReplyToken{999}, {}};
  cancel.job.set_job_id(c.id);
  c.Do(cancel);
  c.Pass(absl::Seconds(2));
  ASSERT_EQ(c.Now().state(), v1::CANCELLED);
  EXPECT_FALSE(c.Now().has_degraded());
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(3));
  EXPECT_THAT(c.Now().degraded().text(),
              HasSubstr("the weights of 4 of 4 partitions are on fewer ps than was asked for (backups: 1)"));
  EXPECT_TRUE(c.Ready("ps-0")) << c.Status("ps-0").not_ready();
  c.Restart(c.node("ps-1"));
  EXPECT_TRUE(Within10s(c, [&] { return !c.Now().has_degraded(); }));
  c.Pass(absl::Milliseconds(200));
  EXPECT_TRUE(c.Ready("ps-0") && c.Ready("ps-1")) << c.Status("ps-0").not_ready() << c.Status("ps-1").not_ready();
}

TEST(ClusterDegraded, AJobWithoutBackupsIsNever) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(SpecWithCopies(200, 0, v1::LOGGED));
  c.Train(2);
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Seconds(3));
  EXPECT_FALSE(c.Job(id).has_degraded());
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("waits for ps \"ps-0\""));
}

TEST(ClusterDegraded, APsIsReadyWhenItsCopiesAreInSyncAndNotBefore) {
  Copies c(2);
  EXPECT_TRUE(c.Ready("ps-0"));
  EXPECT_TRUE(c.Ready("ps-1"));
  c.replicate = false;
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(2));
  EXPECT_TRUE(c.Ready("ps-0")) << "there is nothing to be in sync with";
  EXPECT_EQ(c.Status("ps-1").not_ready(), "") << "it is dead";
  c.Restart(c.node("ps-1"));
  for (int i = 0; i < 50; ++i) {
    c.Pass(absl::Milliseconds(100));
    EXPECT_FALSE(c.Ready("ps-1"));
    EXPECT_FALSE(c.Ready("ps-0")) << "what it serves could have another copy, and has none";
  }
  EXPECT_THAT(c.Status("ps-1").not_ready(), HasSubstr("4 partitions of job 1 are not up to date on it yet"));
  EXPECT_THAT(c.Status("ps-0").not_ready(), HasSubstr("4 partitions of job 1 lack a backup in sync"));
  c.replicate = true;
  EXPECT_TRUE(Within10s(c, [&] { return c.Ready("ps-0") && c.Ready("ps-1"); }));
  EXPECT_EQ(InSync(c.Now()), 4);
}

// The other ps may have died together with the coordinator: this is unknown until it has reported.
TEST(ClusterDegraded, AfterARestartNoPsIsReadyBeforeAllWereHeardOf) {
  Copies c(2);
  c.RestartCoordinator();
  c.Connect(c.node("ps-0"));
  c.Connect(c.node("worker-0"));
  c.Pass(absl::Milliseconds(500));
  EXPECT_THAT(c.Status("ps-0").not_ready(), HasSubstr("nothing has been heard yet from ps \"ps-1\""));
  EXPECT_EQ(c.Status("ps-1").not_ready(), "") << "it is not known whether it is there";
  EXPECT_EQ(c.Now().reason(), "nothing has been heard yet from ps \"ps-1\", since the coordinator was started");
  c.Connect(c.node("ps-1"));
  c.Pass(absl::Milliseconds(500));
  EXPECT_TRUE(c.Ready("ps-0") && c.Ready("ps-1"));
  EXPECT_EQ(c.Now().reason(), "");
  c.RestartCoordinator();
  c.Connect(c.node("ps-0"));
  c.Connect(c.node("worker-0"));
  c.Pass(absl::Seconds(8));
  EXPECT_TRUE(c.Ready("ps-0")) << "the other one is dead, and there is nothing to be in sync with";
}

// The ps are killed one after the other, each as soon as all are ready: the job never waits.
TEST(ClusterDegraded, ARollingRestartByReadinessLosesNoStep) {
  for (const int ps : {2, 3, 5}) {
    Copies c(ps);
    for (int round = 0; round < 2 * ps; ++round) {
      FakeNode& next = c.node(absl::StrCat("ps-", round % ps));
      const std::string name = next.hello.name();
      c.Kill(next);
      for (int i = 0; i < 10; ++i) {
        c.Pass(absl::Milliseconds(100));
        c.TrainStep();
        EXPECT_THAT(c.Now().reason(), ::testing::Not(HasSubstr("waits for ps"))) << name << " of " << ps;
      }
      c.Restart(next);
      ASSERT_TRUE(Within10s(c, [&] { return c.Ready(name); })) << name << " of " << ps;
      const v1::JobStatus job = c.Now();
      for (const v1::PartitionPlacement& p : job.partitions()) {
        EXPECT_EQ(std::count_if(p.backups().begin(), p.backups().end(), [](auto& b) { return b.in_sync(); }), 1)
            << "ready too early";
      }
    }
    EXPECT_EQ(c.State(c.id), v1::RUNNING);
  }
}

TEST(ClusterDegraded, AloneOrWithoutJobsAPsIsReady) {
  Cluster c(1, 1);
  EXPECT_EQ(c.node("ps-0").not_ready, std::nullopt) << "it was not told yet";
  c.Pass(absl::Milliseconds(200));
  EXPECT_EQ(c.node("ps-0").not_ready, "");
  const uint64_t id = c.SubmitOk(SpecWithCopies(200, 0, v1::LOGGED));
  c.Train(2);
  c.Pass(absl::Milliseconds(200));
  EXPECT_EQ(c.node("ps-0").not_ready, "");
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Seconds(2));
  c.Restart(c.node("ps-0"));
  EXPECT_TRUE(Within10s(c, [&] { return c.node("ps-0").not_ready == ""; }));
  EXPECT_EQ(c.State(id), v1::RUNNING);
}

// Two backups are wanted and two ps are left: the missing copies delay nothing, and the job says what is missing.
TEST(ClusterDegraded, WhatCannotBeHadHoldsNobodyUp) {
  Copies c(3, 2);
  c.Kill(c.node("ps-2"));
  EXPECT_TRUE(Within10s(c, [&] { return c.Now().has_degraded(); }));
  EXPECT_TRUE(Within10s(c, [&] { return c.Ready("ps-0") && c.Ready("ps-1"); }));
  EXPECT_THAT(c.Now().degraded().text(), HasSubstr("2 ps that may hold copies, 3 are needed: start ps \"ps-2\" again"));
}

}  // namespace
}  // namespace cairn
