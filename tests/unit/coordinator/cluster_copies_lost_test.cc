// Goal: no copy in sync of a partition is left: the job waits, says for whom, and goes on from a common version, or
// fails and says what to do. The fake cluster checks at every step that no partition lost or doubled an update.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/coordinator/copies.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

v1::JobSpec SpecWith(int backups, v1::Durability durability = v1::REPLICATED, int replicas = 4) {
  return SpecWithCopies(8, backups, durability, replicas);  // 40 steps
}

TEST(ClusterCopiesLost, BothLostWithALog) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(SpecWith(1, v1::LOGGED_AND_REPLICATED));
  c.Pass(absl::Milliseconds(300));
  c.Train(5);
  c.Kill(c.node("ps-0"));
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("waits for ps \"ps-0\", \"ps-1\" to come back"));
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("restart them"));
  c.Restart(c.node("ps-1"));
  EXPECT_EQ(c.Job(id).reason(), "") << "one of them has all that was acknowledged";
  c.Train(2);
  EXPECT_EQ(c.TrueStep(id), 7);
  c.Restart(c.node("ps-0"));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

TEST(ClusterCopiesLost, BothLostWithoutALogFallsBackToACommonVersion) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(9);
  EXPECT_EQ(c.Job(id).step(), 9);
  c.Kill(c.node("ps-0"));
  c.Kill(c.node("ps-1"));
  // The versions that their logs had reached.
  for (auto& [p, version] : c.node("ps-0").hosted.at(id).version) version = 4 + p;
  for (auto& [p, version] : c.node("ps-1").hosted.at(id).version) version = 6;
  for (const char* name : {"ps-0", "ps-1"}) c.node(name).version_min = 2;
  c.Restart(c.node("ps-0"));
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("ps-1")) << "it may know more";
  c.Restart(c.node("ps-1"));
  const v1::JobStatus job = c.Job(id);
  EXPECT_EQ(job.step(), 6) << job.reason();
  EXPECT_TRUE(c.Logged("falls back from step 9 to 6"));
  EXPECT_EQ(c.TrueStep(id), 6);
  c.Pass(absl::Milliseconds(300));
  EXPECT_EQ(c.Job(id).step(), 6) << "old reports and heartbeats are not believed";
  c.Train(1);
  EXPECT_EQ(c.Job(id).step(), 7);
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
  EXPECT_EQ(c.Job(id).epochs_size(), 8);
  EXPECT_EQ(c.Job(id).epochs(1).train().examples(), 40u) << "steps that were done twice count once";
}

TEST(ClusterCopiesLost, WithoutALogTheOtherIsNotWaitedForForEver) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(5);
  c.Kill(c.node("ps-0"));
  c.Kill(c.node("ps-1"));
  for (auto& [p, version] : c.node("ps-0").hosted.at(id).version) version = 3;
  c.Restart(c.node("ps-0"));
  c.Pass(absl::Seconds(3));
  EXPECT_NE(c.Job(id).reason(), "");
  c.Pass(absl::Seconds(3));
  EXPECT_EQ(c.Job(id).reason(), "");
  EXPECT_EQ(c.TrueStep(id), 3) << "the workers are told to go back";
}

TEST(ClusterCopiesLost, SnapshotsGoBackToImagesThatAllHave) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(0, v1::SNAPSHOT));
  c.Train(11);
  c.node("ps-0").kept_versions = {3, 6, 9};
  c.node("ps-1").kept_versions = {6, 9};
  c.Kill(c.node("ps-1"));
  for (auto& [p, version] : c.node("ps-1").hosted.at(id).version) version = 9;
  c.Restart(c.node("ps-1"));
  EXPECT_EQ(c.TrueStep(id), 9);
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

TEST(ClusterCopiesLost, NothingInCommonFailsAndSaysWhatToDo) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1));
  c.Pass(absl::Milliseconds(300));
  c.Train(9);
  c.Kill(c.node("ps-0"));
  c.Kill(c.node("ps-1"));
  for (const char* name : {"ps-0", "ps-1"}) {
    for (auto& [p, version] : c.node(name).hosted.at(id).version) version = 3 + 2 * p;
  }
  c.Restart(c.node("ps-0"));
  c.Restart(c.node("ps-1"));
  EXPECT_EQ(c.State(id), v1::FAILED);
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("LOGGED_AND_REPLICATED"));
}

TEST(ClusterCopiesLost, AnEmptiedPrimaryIsNoLossWhileItsBackupIsThere) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1, v1::LOGGED_AND_REPLICATED));
  c.Pass(absl::Milliseconds(300));
  c.Train(3);
  for (const char* name : {"ps-0", "ps-1"}) c.Kill(c.node(name));
  c.node("ps-0").hosted.clear();
  c.Restart(c.node("ps-0"));
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(c.State(id), v1::RUNNING) << "ps-1 may come back";
  c.Restart(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();

  Cluster d(2, 1);
  const uint64_t lost = d.SubmitOk(SpecWith(1));
  d.Pass(absl::Milliseconds(300));
  for (const char* name : {"ps-0", "ps-1"}) {
    d.Kill(d.node(name));
    d.node(name).hosted.clear();
  }
  for (const char* name : {"ps-0", "ps-1"}) d.Restart(d.node(name));
  EXPECT_EQ(d.State(lost), v1::FAILED);
  EXPECT_THAT(d.Job(lost).reason(), HasSubstr("emptied or replaced"));
}

// A ps under a name that the cluster does not know, with what another one held.
FakeNode& Renamed(Cluster& c, const std::string& old, const std::string& name) {
  c.Kill(c.node(old));
  FakeNode& node = c.AddPs(name, "");
  c.Kill(node);
  node.hosted = c.node(old).hosted;
  for (auto& [job, hosted] : node.hosted) hosted.serving = false;
  c.Restart(node);
  return node;
}

TEST(ClusterCopiesLost, TheOnlyCopyUnderAnotherNameIsKept) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(0, v1::LOGGED));
  c.Train(5);
  FakeNode& renamed = Renamed(c, "ps-0", "ps-a1b2");
  c.Pass(absl::Seconds(10));
  EXPECT_FALSE(renamed.dropped.contains(id));
  EXPECT_TRUE(renamed.hosted.contains(id));
  EXPECT_TRUE(c.Logged("ps \"ps-a1b2\" holds partitions of job 1 of which no other copy is there, and keeps them"));
  EXPECT_TRUE(c.Logged("restart it with --name ps-0"));
  const v1::JobStatus job = c.Job(id);
  EXPECT_EQ(std::count_if(job.events().begin(), job.events().end(),
                          [](const auto& e) { return e.text().find("under another name") != std::string::npos; }),
            1)
      << "told once";
  EXPECT_THAT(job.reason(), HasSubstr("waits for ps \"ps-0\""));
  // Its directory is started under its own name.
  c.node("ps-0").hosted = renamed.hosted;
  c.Kill(renamed);
  c.Restart(c.node("ps-0"));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

TEST(ClusterCopiesLost, WhatIsKeptUnderAnotherNameGoesOnceACopyIsThere) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWith(0, v1::LOGGED));
  c.Train(5);
  FakeNode& renamed = Renamed(c, "ps-0", "ps-a1b2");
  c.Pass(absl::Seconds(10));
  ASSERT_FALSE(renamed.dropped.contains(id));
  c.Restart(c.node("ps-0"));
  c.Pass(absl::Seconds(1));
  EXPECT_TRUE(renamed.dropped.contains(id));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

TEST(ClusterCopiesLost, WhatWasReplacedOrDeletedIsDroppedUnderAnyName) {
  Cluster c(3, 1);
  const uint64_t id = c.SubmitOk(SpecWith(1, v1::LOGGED_AND_REPLICATED));
  c.Pass(absl::Milliseconds(300));
  c.Train(3);
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Seconds(10));
  FakeNode& renamed = Renamed(c, "ps-0", "ps-a1b2");
  EXPECT_TRUE(renamed.dropped.contains(id)) << "other copies serve";

  Cluster d(2, 1);
  const uint64_t lost = d.SubmitOk(SpecWith(0, v1::LOGGED));
  d.Train(5);
  FakeNode& other = Renamed(d, "ps-0", "ps-a1b2");
  d.Pass(absl::Seconds(10));
  ASSERT_FALSE(other.dropped.contains(lost));
  v1::GetJobRequest request;
  request.set_job_id(lost);
  d.Do(CancelJob{ReplyToken{900}, request});
  d.Pass(absl::Seconds(1));
  EXPECT_FALSE(other.dropped.contains(lost)) << "its weights can still be exported";
  d.Do(DeleteJob{ReplyToken{901}, request});
  d.Settle();
  EXPECT_TRUE(other.dropped.contains(lost));
}

// The old primary was cut off from the coordinator, not dead. It has all updates, but another copy is the primary.

}  // namespace
}  // namespace cairn
