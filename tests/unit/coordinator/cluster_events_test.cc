// Goal: whatever happens to a job appears once among its events, with the node concerned. Events are bounded, stored
// with the job, and survive a crash of the coordinator at any moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/copies.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

std::vector<std::string> Events(const v1::JobStatus& job) {
  std::vector<std::string> texts;
  for (const v1::JobEvent& event : job.events()) texts.push_back(event.text());
  return texts;
}

int Count(const v1::JobStatus& job, const std::string& part) {
  const std::vector<std::string> texts = Events(job);
  return static_cast<int>(
      std::count_if(texts.begin(), texts.end(), [&](auto& t) { return t.find(part) != std::string::npos; }));
}

v1::JobEvent EventOf(const v1::JobStatus& job, const std::string& part) {
  for (const v1::JobEvent& event : job.events()) {
    if (event.text().find(part) != std::string::npos) return event;
  }
  ADD_FAILURE() << "no event says " << part << ": " << ::testing::PrintToString(Events(job));
  return {};
}

v1::JobSpec LongSpec(int replicas = 4) {
  v1::JobSpec spec = FakeCluster::Spec(replicas);
  spec.set_epochs(200);
  return spec;
}

TEST(ClusterEvents, ALostWorkerAndWhereItsReplicasGo) {
  Cluster c(1, 2, 2);
  const uint64_t id = c.SubmitOk(LongSpec());
  c.Train(2);
  ASSERT_EQ(c.Assigned("worker-1", id).size(), 2u);
  const int before = c.Job(id).events_size();
  c.Kill(c.node("worker-1"));
  c.Pass(absl::Seconds(1));
  const v1::JobStatus job = c.Job(id);
  ASSERT_EQ(job.events_size(), before + 1) << ::testing::PrintToString(Events(job));
  const v1::JobEvent& event = *job.events().rbegin();
  EXPECT_EQ(event.text(), "worker \"worker-1\" is gone; replicas 2,3 go to worker \"worker-0\"");
  EXPECT_TRUE(event.warning());
  EXPECT_NEAR(static_cast<double>(event.unix_ms()), static_cast<double>(absl::ToUnixMillis(c.clock().Now())), 1000);
  c.Kill(c.node("worker-0"));
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(c.Job(id).events().rbegin()->text(), "worker \"worker-0\" is gone; replicas 0-3 wait for another");
}

TEST(ClusterEvents, ALostPsIsOneEventHoweverManyPartitionsItHad) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWithCopies(200, 1));
  ASSERT_TRUE(Within10s(c, [&] { return InSync(c.Job(id)) == 4; }));
  c.Train(2);
  const int lost = PrimariesOn(c.Job(id), "ps-1");
  ASSERT_GE(lost, 2);
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  const v1::JobEvent event = EventOf(c.Job(id), "ps \"ps-1\" is gone; served");
  EXPECT_EQ(event.text(),
            absl::StrFormat("ps \"ps-1\" is gone; served from now on: %d partitions by ps \"ps-0\"", lost));
  EXPECT_TRUE(event.warning());
  EXPECT_EQ(Count(c.Job(id), "ps \"ps-1\" is gone; served"), 1);
}

TEST(ClusterEvents, APsWithoutAnotherCopyIsWaitedForAndComesBack) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(LongSpec());
  c.Train(2);
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Seconds(1));
  EXPECT_TRUE(EventOf(c.Job(id), "waits for ps \"ps-0\"").warning());
  c.Restart(c.node("ps-0"));
  c.Pass(absl::Seconds(1));
  EXPECT_FALSE(EventOf(c.Job(id), "ps \"ps-0\" is back: its partitions are recovered from its disk").warning());
}

// It is back before its broken session counted as a loss.
TEST(ClusterEvents, AWorkerThatIsStartedAnewAtOnceIsAnEventToo) {
  Cluster c(1, 2, 2);
  const uint64_t id = c.SubmitOk(LongSpec());
  c.Train(2);
  c.Kill(c.node("worker-1"));
  c.Restart(c.node("worker-1"));
  c.Settle();
  EXPECT_EQ(Count(c.Job(id), "worker \"worker-1\" was restarted and computes its replicas 2,3 again"), 1);
  c.Kill(c.node("worker-1"));
  c.node("worker-1").fault = "its device is lost";  // it takes up nothing
  DrainNode drain{ReplyToken{998}, {}};
  drain.request.set_name("worker-1");
  c.Do(drain);
  c.Restart(c.node("worker-1"));
  c.Settle();
  EXPECT_EQ(Count(c.Job(id), "was restarted"), 1) << ::testing::PrintToString(Events(c.Job(id)));
}

// There may be hundreds of ended jobs: the log has one line for all.
TEST(ClusterEvents, WhatHappensToEndedJobsIsNoWarningForEachOfThem) {
  Cluster c(2, 1);
  std::vector<uint64_t> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(c.SubmitOk(SpecWithCopies(2, 1)));
    ASSERT_TRUE(c.RunToEnd(ids.back()));
  }
  c.Pass(absl::Seconds(5));
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(10));
  EXPECT_TRUE(c.Logged("ps \"ps-1\" held weights of 3 jobs that have ended"));
  for (const uint64_t id : ids) {
    EXPECT_EQ(Count(c.Job(id), "ps \"ps-1\" is gone; served from now on"), 1);
    EXPECT_FALSE(c.Logged(absl::StrCat("job ", id, ": ps \"ps-1\" is gone")));
  }
}

TEST(ClusterEvents, ADrainBeginsAndEnds) {
  Cluster c(3, 1);
  const uint64_t id = c.SubmitOk(SpecWithCopies(200, 1));
  ASSERT_TRUE(Within10s(c, [&] { return InSync(c.Job(id)) == 4; }));
  ASSERT_TRUE(c.Job(id).partitions(0).primary() == "ps-0");
  DrainNode drain{ReplyToken{999}, {}};
  drain.request.set_name("ps-0");
  c.Do(drain);
  EXPECT_EQ(Count(c.Job(id), "ps \"ps-0\" is drained: its copies of"), 1);
  ASSERT_TRUE(Within10s(c, [&] { return Count(c.Job(id), "ps \"ps-0\" holds nothing of the job any more") == 1; }));
  const v1::JobStatus job = c.Job(id);
  for (const v1::PartitionPlacement& p : job.partitions()) EXPECT_NE(p.primary(), "ps-0");
}

TEST(ClusterEvents, MovesAreOneEventHoweverManyPartitionsMove) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(LongSpec());
  const int moving = PrimariesOn(c.Job(id), "ps-1");
  ASSERT_GE(moving, 2);
  DrainNode drain{ReplyToken{999}, {}};
  drain.request.set_name("ps-1");
  c.Do(drain);
  const std::string text = absl::StrFormat("moved: %d partitions from ps \"ps-1\" to \"ps-0\"", moving);
  ASSERT_TRUE(Within10s(c, [&] { return Count(c.Job(id), "moved: ") > 0; }));
  EXPECT_FALSE(EventOf(c.Job(id), text).warning());
  // A ps that joins takes some.
  c.AddPs("ps-2");
  ASSERT_TRUE(Within10s(c, [&] { return PrimariesOn(c.Job(id), "ps-2") > 0; }));
  ASSERT_TRUE(Within10s(c, [&] { return Count(c.Job(id), "from ps \"ps-0\" to \"ps-2\"") > 0; }));
  EXPECT_EQ(Count(c.Job(id), "moved: "), 2) << ::testing::PrintToString(Events(c.Job(id)));
}

TEST(ClusterEvents, ADrainOfBackupsAloneIsAMoveToo) {
  Cluster c(3, 1);
  v1::JobSpec spec = SpecWithCopies(200, 1);
  spec.set_partition_bytes(4 << 20);  // one partition
  const uint64_t id = c.SubmitOk(spec);
  ASSERT_TRUE(Within10s(c, [&] { return InSync(c.Job(id)) == 1; }));
  const std::string primary = c.Job(id).partitions(0).primary(), from = c.Job(id).partitions(0).backups(0).node();
  DrainNode drain{ReplyToken{999}, {}};
  drain.request.set_name(from);
  c.Do(drain);
  ASSERT_TRUE(Within10s(c, [&] { return Count(c.Job(id), "moved: ") > 0; }));
  const std::string to = c.Job(id).partitions(0).backups(0).node();
  EXPECT_EQ(EventOf(c.Job(id), "moved: ").text(),
            absl::StrFormat("moved: 1 backup from ps \"%s\" to \"%s\"", from, to));
  EXPECT_NE(to, primary);
  EXPECT_NE(to, from);
}

// What was a primary is told as one, though its copy is a backup at last.
TEST(ClusterEvents, ADrainedPrimaryIsToldOnce) {
  Cluster c(3, 1);
  v1::JobSpec spec = SpecWithCopies(200, 1);
  spec.set_partition_bytes(4 << 20);
  const uint64_t id = c.SubmitOk(spec);
  ASSERT_TRUE(Within10s(c, [&] { return InSync(c.Job(id)) == 1; }));
  const std::string from = c.Job(id).partitions(0).primary(), to = c.Job(id).partitions(0).backups(0).node();
  DrainNode drain{ReplyToken{999}, {}};
  drain.request.set_name(from);
  c.Do(drain);
  ASSERT_TRUE(Within10s(c, [&] { return Count(c.Job(id), "holds nothing of the job any more") == 1; }));
  ASSERT_TRUE(Within10s(c, [&] { return Count(c.Job(id), "moved: ") > 0; }));
  EXPECT_EQ(EventOf(c.Job(id), "moved: ").text(),
            absl::StrFormat("moved: 1 partition from ps \"%s\" to \"%s\"", from, to));
  EXPECT_EQ(Count(c.Job(id), "moved: "), 1);
}

TEST(ClusterEvents, APsThatJoinsAndTakesNothingSaysWhy) {
  Cluster c(1, 1, 8);
  v1::JobSpec spec = LongSpec();
  spec.set_partition_bytes(4 << 20);  // one partition
  c.SubmitOk(spec);
  c.AddPs("ps-1");
  c.Pass(absl::Seconds(20));
  const auto told = [&](const std::string& text) {
    return std::count_if(c.log().begin(), c.log().end(),
                         [&](const std::string& line) { return line.find(text) != std::string::npos; });
  };
  EXPECT_EQ(told("ps \"ps-1\" holds no partitions: 1 running job keeps its partitions, since a move would bring no "
                 "balance"),
            1);
  EXPECT_EQ(told("ps \"ps-0\" holds no partitions"), 0);
  v1::JobSpec of_four = LongSpec();
  of_four.set_name("spread");
  const uint64_t spread = c.SubmitOk(of_four);
  ASSERT_GT(PrimariesOn(c.Job(spread), "ps-1"), 0) << "new jobs use it";
  c.AddPs("ps-2");
  c.Pass(absl::Seconds(20));
  EXPECT_EQ(told("holds no partitions"), 1) << "ps-2 has taken some";
}

TEST(ClusterEvents, TheyAreStoredAndACoordinatorsRestartIsOne) {
  Cluster c(1, 2, 2);
  const uint64_t id = c.SubmitOk(LongSpec());
  c.Train(2);
  c.Kill(c.node("worker-1"));
  c.Pass(absl::Seconds(1));
  const std::vector<std::string> before = Events(c.Job(id));
  c.RestartCoordinator();
  std::vector<std::string> after = Events(c.Job(id));
  ASSERT_EQ(after.size(), before.size() + 1);
  EXPECT_EQ(after.back(), "the coordinator was restarted, or another one leads now");
  after.pop_back();
  EXPECT_EQ(after, before);
}

TEST(ClusterEvents, TheNewestAreKept) {
  Cluster c(1, 2, 2);
  const uint64_t id = c.SubmitOk(LongSpec());
  for (int i = 0; i < 60; ++i) {
    c.Kill(c.node("worker-1"));
    c.Pass(absl::Seconds(1));
    c.Restart(c.node("worker-1"));
    c.Train(1);
  }
  const v1::JobStatus job = c.Job(id);
  EXPECT_EQ(job.events_size(), kEventsKept);
  for (int i = 1; i < job.events_size(); ++i) EXPECT_GE(job.events(i).unix_ms(), job.events(i - 1).unix_ms());
  EXPECT_THAT(Events(c.core().ListJobs(c.clock().Now()).jobs(0)), ElementsAre()) << "a list of jobs is without";
}

TEST(ClusterEvents, AQuietJobHasTwo) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(FakeCluster::Spec());
  ASSERT_TRUE(c.RunToEnd(id));
  EXPECT_THAT(Events(c.Job(id)), ElementsAre(StartsWith("starts, "), "replicas 0-3 go to worker \"worker-0\""));
}

}  // namespace
}  // namespace cairn
