// Goal: digests of steps that a worker reports are kept with the job: in order, the newest, once each, also over a
// restart. What does not fit the job is ignored, and a step that has other bits the second time is told to the user.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "coordinator/core/limits.h"
#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Digest(char digit) { return std::string(32, digit); }

void Report(Cluster& c, uint64_t id, int64_t step, const std::string& digest, const char* worker = "worker-0") {
  v1::NodeMessage message;
  v1::StepDigestReport& report = *message.mutable_step_digest();
  report.set_job_id(id);
  report.set_generation(c.Job(id).generation());
  report.mutable_digest()->set_step(step);
  report.mutable_digest()->set_digest(digest);
  c.Say(c.node(worker), message);
}

std::vector<int64_t> Steps(const Cluster& c, uint64_t id) {
  std::vector<int64_t> steps;
  const v1::JobStatus job = c.Job(id);
  for (const v1::StepDigest& digest : job.step_digests()) steps.push_back(digest.step());
  return steps;
}

v1::JobSpec LongSpec() {
  v1::JobSpec spec = FakeCluster::Spec();
  spec.set_epochs(200);  // 1,000 steps
  return spec;
}

TEST(ClusterDigests, AreKeptInOrderAndStored) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(LongSpec());
  for (const int64_t step : {20, 10, 30, 20}) Report(c, id, step, Digest('a'));
  EXPECT_THAT(Steps(c, id), ElementsAre(10, 20, 30));
  c.Pass(absl::Seconds(2));
  Report(c, id, 40, Digest('b'), "worker-1");  // a new chief
  c.RestartCoordinator();
  EXPECT_THAT(Steps(c, id), ElementsAre(10, 20, 30, 40));
  EXPECT_EQ(c.Job(id).step_digests(3).digest(), Digest('b'));
  EXPECT_THAT(c.core().ListJobs(c.clock().Now()).jobs(0).step_digests(), IsEmpty()) << "they are not in lists";
}

TEST(ClusterDigests, OnlyTheNewest) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(LongSpec());
  for (int64_t step = 1; step <= kStepDigestsKept + 10; ++step) Report(c, id, step, Digest('a'));
  const std::vector<int64_t> steps = Steps(c, id);
  ASSERT_EQ(steps.size(), static_cast<size_t>(kStepDigestsKept));
  EXPECT_EQ(steps.front(), 11);
  EXPECT_EQ(steps.back(), kStepDigestsKept + 10);
}

TEST(ClusterDigests, WhatDoesNotFitIsIgnored) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(LongSpec());
  for (const int64_t step : {int64_t{-1}, int64_t{0}, int64_t{1001}, INT64_MAX}) Report(c, id, step, Digest('a'));
  Report(c, id, 10, "abc");
  Report(c, id, 10, Digest('x'));
  EXPECT_THAT(Steps(c, id), IsEmpty());
  EXPECT_TRUE(c.Logged("sent a digest that does not fit it"));
  v1::JobSpec spec = LongSpec();
  spec.set_digest_every_steps(0);
  Cluster none(1, 1);
  const uint64_t without = none.SubmitOk(spec);
  Report(none, without, 10, Digest('a'));
  EXPECT_THAT(Steps(none, without), IsEmpty());
}

TEST(ClusterDigests, OtherBitsTheSecondTimeAreTold) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(LongSpec());
  Report(c, id, 10, Digest('a'));
  Report(c, id, 10, Digest('b'));
  EXPECT_EQ(c.Job(id).step_digests(0).digest(), Digest('b'));
  ASSERT_GT(c.Job(id).events_size(), 0);
  const v1::JobStatus job = c.Job(id);
  EXPECT_THAT(job.events().rbegin()->text(), HasSubstr("after step 10, which had " + Digest('a')));
  EXPECT_TRUE(job.events().rbegin()->warning());
}

int Warnings(const Cluster& c, uint64_t id) {
  const v1::JobStatus job = c.Job(id);
  return static_cast<int>(std::count_if(job.events().begin(), job.events().end(), [](const v1::JobEvent& event) {
    return absl::StrContains(event.text(), "its bits are not the same");
  }));
}

TEST(ClusterDigests, OtherBitsAreToldOnceAGeneration) {
  Cluster c(2, 1);
  v1::JobSpec spec = LongSpec();
  spec.set_backups(1);
  const uint64_t id = c.SubmitOk(spec);
  c.Pass(absl::Milliseconds(300));
  c.Train(3);
  for (const int64_t step : {10, 20, 30}) Report(c, id, step, Digest('a'));
  for (const int64_t step : {20, 30}) Report(c, id, step, Digest('b'));
  EXPECT_EQ(Warnings(c, id), 1);
  const uint64_t generation = c.Job(id).generation();
  c.Kill(c.node("ps-1"));  // its backup takes its place
  c.Pass(absl::Seconds(1));
  Report(c, id, 20, Digest('c'));
  ASSERT_GT(c.Job(id).generation(), generation);
  EXPECT_EQ(Warnings(c, id), 2);
}

}  // namespace
}  // namespace cairn
