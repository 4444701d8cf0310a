// Goal: an epoch's figures are the same bits whatever reports they came in, also for a coordinator that was started
// anew and is told again; a job that waits at the end of epochs has its validation whole.
#include "coordinator/job_progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/base/exact_sum.h"

namespace cairn {
namespace {

constexpr int kReplicas = 3, kSteps = 20;
const absl::Duration kGrace = absl::Seconds(2);

v1::JobStatus Status(bool gated) {
  v1::JobStatus status;
  status.mutable_spec()->set_replicas(kReplicas);
  status.mutable_spec()->set_epochs(2);
  status.mutable_spec()->set_validation_freq(1);
  status.mutable_data()->set_validation_examples(6);
  status.set_steps_per_epoch(kSteps);
  status.set_total_steps(2 * kSteps);
  if (gated) status.set_epochs_open(1);
  return status;
}

double LossOf(int replica, int64_t step) {
  return RoundForSum(1.0 / (1.0 + replica + 0.37 * static_cast<double>(step)));
}

v1::ReplicaReport Report(int replica, int64_t first, int64_t last) {
  v1::ReplicaReport report;
  report.set_replica(replica);
  report.set_first_step(first);
  report.set_last_step(last);
  for (int64_t step = first; step <= last; ++step) {
    report.mutable_train()->set_examples(report.train().examples() + 4);
    report.mutable_train()->set_loss(report.train().loss() + LossOf(replica, step));
  }
  return report;
}

v1::ReplicaReport Validation(int replica, int epoch) {
  v1::ReplicaReport report;
  report.set_replica(replica);
  report.set_validation_epoch(epoch);
  report.mutable_validation()->set_examples(2);
  report.mutable_validation()->set_loss(RoundForSum(1.0 / (3 + replica)));
  return report;
}

// The first epoch in random pieces, repeated and out of order between replicas.
std::vector<v1::ReplicaReport> Pieces(std::mt19937_64& random) {
  std::vector<v1::ReplicaReport> reports;
  for (int r = 0; r < kReplicas; ++r) {
    for (int64_t step = 0; step < kSteps;) {
      const int64_t last = std::min<int64_t>(kSteps - 1, step + static_cast<int64_t>(random() % 5));
      reports.push_back(Report(r, step, last));
      step = last + 1;
    }
    reports.push_back(Validation(r, 0));
  }
  const size_t once = reports.size();
  for (size_t i = 0; i < once; i += 3) reports.push_back(reports[i]);
  std::shuffle(reports.begin(), reports.end(), random);
  return reports;
}

TEST(JobProgress, FiguresDoNotDependOnTheReports) {
  std::mt19937_64 random(5);
  double loss = 0;
  for (int r = 0; r < kReplicas; ++r) {
    for (int64_t step = 0; step < kSteps; ++step) loss += LossOf(r, step);
  }
  for (int round = 0; round < 100; ++round) {
    v1::JobStatus status = Status(round % 2 == 0);
    const absl::Time now = absl::FromUnixSeconds(100);
    std::optional<JobProgress> progress;
    progress.emplace(status, std::vector<int64_t>{}, std::vector<bool>{}, now);
    std::vector<v1::ReplicaReport> reports = Pieces(random);
    for (size_t i = 0; i < reports.size(); ++i) {
      ASSERT_TRUE(progress->Count(reports[i], status, now).ok());
      if (round % 3 != 0 || i != reports.size() / 2) continue;
      // The coordinator is started anew, with the steps that it had stored and no sums; the workers tell it again.
      progress.emplace(status, std::vector<int64_t>(progress->replica_step()), std::vector<bool>{}, now);
      for (size_t again = 0; again <= i; ++again) ASSERT_TRUE(progress->Count(reports[again], status, now).ok());
    }
    ASSERT_EQ(progress->CloseEpochs(now, kGrace, status), 1);
    EXPECT_EQ(status.epochs(0).train().loss(), loss);
    EXPECT_EQ(status.epochs(0).train().examples(), 4u * kReplicas * kSteps);
    EXPECT_EQ(status.epochs(0).validation().examples(), 6u);
  }
}

TEST(JobProgress, WhatIsMissingIsWaitedForFromTheTrainingForAWhileFromTheValidationForGood) {
  v1::JobStatus status = Status(true);
  absl::Time now = absl::FromUnixSeconds(100);
  JobProgress progress(status, {}, {}, now);
  for (int r = 0; r < kReplicas; ++r) {
    // A worker was killed: steps 5 to 7 of replica 1 are told by nobody.
    ASSERT_TRUE(progress.Count(Report(r, 0, r == 1 ? 4 : 7), status, now).ok());
    ASSERT_TRUE(progress.Count(Report(r, 8, kSteps - 1), status, now).ok());
  }
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 0);
  for (int r = 0; r < 2; ++r) ASSERT_TRUE(progress.Count(Validation(r, 0), status, now).ok());
  now += absl::Hours(1);
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 0) << "a share of the validation is missing";
  ASSERT_TRUE(progress.Count(Validation(2, 0), status, now).ok());
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
  EXPECT_EQ(status.epochs(0).train().examples(), 4u * (kReplicas * kSteps - 3));
  EXPECT_EQ(status.epochs(0).validation().examples(), 6u);
}

TEST(JobProgress, AClosedEpochStaysWholeWhenItIsToldAgain) {
  v1::JobStatus status = Status(true);
  const absl::Time now = absl::FromUnixSeconds(100);
  std::optional<JobProgress> progress;
  progress.emplace(status, std::vector<int64_t>{}, std::vector<bool>{}, now);
  for (int r = 0; r < kReplicas; ++r) {
    ASSERT_TRUE(progress->Count(Report(r, 0, kSteps - 1), status, now).ok());
    ASSERT_TRUE(progress->Count(Validation(r, 0), status, now).ok());
  }
  ASSERT_EQ(progress->CloseEpochs(now, kGrace, status), 1);
  const std::string whole = status.epochs(0).SerializeAsString();
  progress.emplace(status, std::vector<int64_t>(progress->replica_step()), std::vector<bool>{}, now);
  for (int r = 0; r < kReplicas; ++r) {
    ASSERT_TRUE(progress->Count(Report(r, 0, kSteps - 1), status, now).ok());
    ASSERT_TRUE(progress->Count(Validation(r, 0), status, now).ok());
    EXPECT_EQ(status.epochs(0).SerializeAsString(), whole) << "a decision may be made of it at any moment";
  }
}

// The coordinator and the workers that had finished are gone at once, and with them what their last validation came to: it is computed again.
TEST(JobProgress, NobodyHasFinishedWhileTheLastEpochIsNotClosed) {
  v1::JobStatus status = Status(true);
  const std::vector<int64_t> steps(kReplicas, 2 * kSteps);
  status.add_epochs();
  JobProgress open(status, steps, std::vector<bool>(kReplicas, true), absl::UnixEpoch());
  EXPECT_EQ(open.finished(), std::vector<bool>(kReplicas, false));
  EXPECT_EQ(open.step(), 2 * kSteps) << "its steps are done";
  EXPECT_FALSE(open.Done(absl::UnixEpoch() + absl::Hours(1), status));
  status.add_epochs();
  const JobProgress closed(status, steps, std::vector<bool>(kReplicas, true), absl::UnixEpoch());
  EXPECT_EQ(closed.finished(), std::vector<bool>(kReplicas, true));
}

TEST(JobProgress, AJobThatIsStoppedEndsWithItsEpoch) {
  v1::JobStatus status = Status(true);
  const absl::Time now = absl::FromUnixSeconds(100);
  JobProgress progress(status, {}, {}, now);
  for (int r = 0; r < kReplicas; ++r) {
    ASSERT_TRUE(progress.Count(Report(r, 0, kSteps - 1), status, now).ok());
    ASSERT_TRUE(progress.Count(Validation(r, 0), status, now).ok());
  }
  ASSERT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
  progress.EndAfter(1);
  EXPECT_FALSE(progress.Done(now, status));
  for (int r = 0; r < kReplicas; ++r) {
    v1::ReplicaReport report;
    report.set_replica(r);
    report.set_finished(true);
    ASSERT_TRUE(progress.Count(report, status, now).ok());
  }
  EXPECT_TRUE(progress.Done(now, status));
  EXPECT_EQ(progress.step(), kSteps);
}

}  // namespace
}  // namespace cairn
