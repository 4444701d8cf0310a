// Goal: the figures of an epoch are those that the first partition has of all its steps, also for a restarted
// coordinator; a job that waits at the end of an epoch has the whole validation.
#include "coordinator/core/job_progress.h"

#include <gtest/gtest.h>

#include <optional>

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

double LossOf(int64_t step) { return RoundForSum(1.0 / (1.0 + 0.37 * static_cast<double>(step))); }

v1::ReplicaReport Report(int replica, int64_t last) {
  v1::ReplicaReport report;
  report.set_replica(replica);
  report.set_last_step(last);
  return report;
}

// A report of the first partition after so many steps, with the epochs that are not stored.
v1::FiguresReport Figures(uint64_t version, int stored = 0, uint64_t generation = 1) {
  v1::FiguresReport report;
  report.set_generation(generation);
  report.set_version(version);
  for (int64_t step = int64_t{stored} * kSteps; step < static_cast<int64_t>(version); ++step) {
    const auto epoch = static_cast<int32_t>(step / kSteps);
    if (report.epochs().empty() || report.epochs().rbegin()->epoch() != epoch) report.add_epochs()->set_epoch(epoch);
    v1::EpochFigures& figures = *report.mutable_epochs(report.epochs_size() - 1);
    figures.mutable_train()->set_examples(figures.train().examples() + 4 * kReplicas);
    figures.mutable_train()->set_loss(figures.train().loss() + LossOf(step));
    figures.set_replica_steps(figures.replica_steps() + kReplicas);
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

// Old and repeated reports, and those of an earlier generation, change nothing.
TEST(JobProgress, TheNewestFiguresCount) {
  v1::JobStatus status = Status(false);
  absl::Time now = absl::FromUnixSeconds(100);
  JobProgress progress(status, {}, {}, now);
  EXPECT_TRUE(*progress.TakeFigures(Figures(kSteps + 3), status, now));
  EXPECT_FALSE(*progress.TakeFigures(Figures(kSteps), status, now));
  EXPECT_TRUE(*progress.TakeFigures(Figures(kSteps - 1, 0, 2), status, now)) << "of a later generation";
  EXPECT_FALSE(*progress.TakeFigures(Figures(2 * kSteps), status, now));
  for (int r = 0; r < kReplicas; ++r) {
    ASSERT_TRUE(progress.Count(Report(r, kSteps - 1), status, now).ok());
    ASSERT_TRUE(progress.Count(Validation(r, 0), status, now).ok());
    ASSERT_TRUE(progress.Count(Validation(r, 0), status, now).ok()) << "repeated";
  }
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 0) << "a step's figures are missing";
  EXPECT_TRUE(progress.WantsFigures(now, status));
  progress.AskedForFigures(1, now);
  EXPECT_FALSE(progress.WantsFigures(now, status)) << "once";
  now += absl::Hours(1);
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 0) << "its ps is away; the figures are waited for";
  EXPECT_TRUE(progress.WantsFigures(now, status));
  EXPECT_TRUE(*progress.TakeFigures(Figures(kSteps, 0, 2), status, now));
  ASSERT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
  double loss = 0;
  for (int64_t step = 0; step < kSteps; ++step) loss += LossOf(step);
  EXPECT_EQ(status.epochs(0).train().loss(), loss);
  EXPECT_EQ(status.epochs(0).train().examples(), 4u * kReplicas * kSteps);
  EXPECT_EQ(status.epochs(0).validation().examples(), 6u);
  EXPECT_FALSE(progress.WantsFigures(now + absl::Seconds(1), status));
}

TEST(JobProgress, OfAnAsynchronousJobAllStepsOfTheEpochAreCounted) {
  v1::JobStatus status = Status(false);
  status.mutable_spec()->set_strategy(v1::PARAMETER_SERVER);
  status.mutable_data()->set_validation_examples(0);
  absl::Time now = absl::FromUnixSeconds(100);
  JobProgress progress(status, {}, {}, now);
  for (int r = 0; r < kReplicas; ++r) ASSERT_TRUE(progress.Count(Report(r, kSteps - 1), status, now).ok());
  v1::FiguresReport report = Figures(kSteps);
  report.set_version(kReplicas * kSteps - 1);
  report.mutable_epochs(0)->set_replica_steps(kReplicas * kSteps - 1);
  ASSERT_TRUE(progress.TakeFigures(report, status, now).ok());
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 0);
  report.set_version(kReplicas * kSteps + 5);
  report.mutable_epochs(0)->set_replica_steps(kReplicas * kSteps);
  ASSERT_TRUE(progress.TakeFigures(report, status, now).ok());
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
  // A ps that reports later has no figures of the next epoch: it started without counting.
  for (int r = 0; r < kReplicas; ++r) ASSERT_TRUE(progress.Count(Report(r, 2 * kSteps - 1), status, now).ok());
  report.set_version(2 * kReplicas * kSteps);
  ASSERT_TRUE(progress.TakeFigures(report, status, now).ok());
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 0);
  now += absl::Seconds(4);
  ASSERT_TRUE(progress.TakeFigures(report, status, now).ok());
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
}

// A report may be under way for as long as a link is slow or its reader stalls. That its epoch ended long before it
// arrived does not make it the last one.
TEST(JobProgress, OnlyAnAnswerEndsTheWaitForFigures) {
  v1::JobStatus status = Status(false);
  status.mutable_spec()->set_strategy(v1::PARAMETER_SERVER);
  status.mutable_data()->set_validation_examples(0);
  const absl::Time passed = absl::FromUnixSeconds(100);
  JobProgress progress(status, {}, {}, passed);
  for (int r = 0; r < kReplicas; ++r) ASSERT_TRUE(progress.Count(Report(r, kSteps - 1), status, passed).ok());
  ASSERT_EQ(progress.CloseEpochs(passed, kGrace, status), 0);
  v1::FiguresReport report = Figures(kSteps);
  report.mutable_epochs(0)->set_replica_steps(kReplicas * kSteps - 1);
  const auto close_after = [&](uint64_t answers, absl::Duration later) {
    report.set_answers(answers);
    EXPECT_TRUE(progress.TakeFigures(report, status, passed + later).ok());
    return progress.CloseEpochs(passed + later, kGrace, status);
  };
  EXPECT_EQ(close_after(0, absl::Minutes(1)), 0) << "it answers nothing";
  EXPECT_EQ(close_after(77, absl::Minutes(1)), 0) << "nor what this coordinator has asked";
  progress.AskedForFigures(5, passed + absl::Seconds(1));
  progress.AskedForFigures(6, passed + absl::Minutes(2));
  EXPECT_EQ(close_after(5, absl::Minutes(2)), 0) << "asked a moment after the epoch's end";
  EXPECT_EQ(close_after(6, absl::Minutes(2)), 1) << "its ps has no more";
}

TEST(JobProgress, FiguresThatDoNotFitAreRefused) {
  const v1::JobStatus status = Status(false);
  const absl::Time now = absl::FromUnixSeconds(100);
  JobProgress progress(status, {}, {}, now);
  std::vector<v1::FiguresReport> bad(4, Figures(kSteps + 1));
  bad[0].mutable_epochs(0)->set_epoch(-1);
  bad[1].mutable_epochs(1)->set_epoch(0);
  bad[2].mutable_epochs(1)->set_epoch(2);
  bad[3].mutable_epochs(0)->mutable_train()->add_metrics(1);
  for (const v1::FiguresReport& report : bad) {
    EXPECT_EQ(progress.TakeFigures(report, status, now).status().code(), absl::StatusCode::kInvalidArgument)
        << report.DebugString();
  }
}

double Rate(const JobProgress& progress, absl::Time now) {
  v1::JobStatus status;
  progress.Fill(now, status);
  return status.has_images_per_second() ? status.images_per_second() : -1;
}

// A restarted coordinator is told of whole epochs at once: this is not a speed.
TEST(JobProgress, TheRateIsOfWhatWasDoneInThisLife) {
  v1::JobStatus status = Status(false);
  status.mutable_spec()->set_batch_size(4 * kReplicas);
  absl::Time now = absl::FromUnixSeconds(100);
  JobProgress progress(status, std::vector<int64_t>(kReplicas, 0), {}, now);
  progress.GoesOn(now, now - absl::Seconds(7));
  EXPECT_EQ(Rate(progress, now), -1);
  now += absl::Seconds(1);
  for (int r = 0; r < kReplicas; ++r) ASSERT_TRUE(progress.Count(Report(r, 7), status, now).ok());
  EXPECT_EQ(Rate(progress, now), -1) << "not measured yet";
  for (int64_t step = 8; step < 18; ++step) {
    now += absl::Milliseconds(200);
    for (int r = 0; r < kReplicas; ++r) ASSERT_TRUE(progress.Count(Report(r, step), status, now).ok());
    progress.Reached({0, 1, 2}, step + 1, now);
  }
  EXPECT_NEAR(Rate(progress, now), 4 * kReplicas * 5, 1);
  EXPECT_EQ(Rate(progress, now + absl::Seconds(10)), 0) << "it stands still";
  for (int r = 0; r < kReplicas; ++r) {
    ASSERT_TRUE(progress.Count(Report(r, kSteps - 1), status, now).ok());
    ASSERT_TRUE(progress.Count(Validation(r, 0), status, now).ok());
  }
  ASSERT_TRUE(progress.TakeFigures(Figures(2 * kSteps), status, now).ok());
  ASSERT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
  EXPECT_NEAR(status.epochs(0).seconds(), 7 + 1 + 2, 1e-6) << "of the whole epoch";
  progress.GoesOn(now, std::nullopt);
  for (int r = 0; r < kReplicas; ++r) {
    ASSERT_TRUE(progress.Count(Report(r, 2 * kSteps - 1), status, now).ok());
    ASSERT_TRUE(progress.Count(Validation(r, 1), status, now).ok());
  }
  ASSERT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
  EXPECT_EQ(status.epochs(1).seconds(), 0) << "not known";
  EXPECT_EQ(status.epochs(1).images_per_second(), 0);
}

// One heartbeat reports the end of both epochs, 8 s after the start: it is unknown when the first one ended.
TEST(JobProgress, EpochsThatAreToldOfTogetherShareTheTime) {
  v1::JobStatus status = Status(false);
  status.mutable_data()->clear_validation_examples();
  absl::Time now = absl::FromUnixSeconds(100);
  JobProgress progress(status, {}, {}, now);
  now += absl::Seconds(8);
  progress.Reached({0, 1, 2}, 2 * kSteps, now);
  ASSERT_TRUE(*progress.TakeFigures(Figures(2 * kSteps), status, now));
  ASSERT_EQ(progress.CloseEpochs(now, kGrace, status), 2);
  for (const v1::EpochResult& epoch : status.epochs()) {
    EXPECT_DOUBLE_EQ(epoch.seconds(), 4);
    EXPECT_DOUBLE_EQ(epoch.images_per_second(), kSteps * 4 * kReplicas / 4.0);
  }
}

// The report covers half of the next epoch too: that epoch began long before.
TEST(JobProgress, TimeIsSharedOutBySteps) {
  v1::JobStatus status = Status(false);
  status.mutable_data()->clear_validation_examples();
  absl::Time now = absl::FromUnixSeconds(100);
  JobProgress progress(status, {}, {}, now);
  now += absl::Seconds(6);
  progress.Reached({0, 1, 2}, kSteps + kSteps / 2, now);
  ASSERT_TRUE(*progress.TakeFigures(Figures(kSteps + kSteps / 2), status, now));
  ASSERT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
  EXPECT_DOUBLE_EQ(status.epochs(0).seconds(), 4);
  now += absl::Seconds(2);
  progress.Reached({0, 1, 2}, 2 * kSteps, now);
  ASSERT_TRUE(*progress.TakeFigures(Figures(2 * kSteps), status, now));
  ASSERT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
  EXPECT_DOUBLE_EQ(status.epochs(1).seconds(), 4);
}

// Its steps before the checkpoint count as examples but took no time here.
TEST(JobProgress, AnEpochThatIsGoneOnWithInItsMidstTakesTheTimeSinceThen) {
  v1::JobStatus status = Status(false);
  status.set_restored_step(kSteps - 5);
  status.mutable_data()->clear_validation_examples();
  absl::Time now = absl::FromUnixSeconds(100);
  JobProgress progress(status, std::vector<int64_t>(kReplicas, kSteps - 5), {}, now);
  now += absl::Seconds(1);
  progress.Reached({0, 1, 2}, kSteps, now);
  ASSERT_TRUE(*progress.TakeFigures(Figures(kSteps), status, now));
  ASSERT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
  EXPECT_DOUBLE_EQ(status.epochs(0).seconds(), 1);
  EXPECT_DOUBLE_EQ(status.epochs(0).images_per_second(), 5 * 4 * kReplicas);
  now += absl::Seconds(5);
  progress.Reached({0, 1, 2}, 2 * kSteps, now);
  ASSERT_TRUE(*progress.TakeFigures(Figures(2 * kSteps), status, now));
  ASSERT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
  EXPECT_DOUBLE_EQ(status.epochs(1).seconds(), 5);
  EXPECT_DOUBLE_EQ(status.epochs(1).images_per_second(), kSteps * 4 * kReplicas / 5.0);
}

TEST(JobProgress, AJobThatFallsBackForgetsFigures) {
  v1::JobStatus status = Status(false);
  status.mutable_data()->set_validation_examples(0);
  const absl::Time now = absl::FromUnixSeconds(100);
  JobProgress progress(status, {}, {}, now);
  ASSERT_TRUE(progress.TakeFigures(Figures(kSteps + 3), status, now).ok());
  progress.RollBack(4, now);
  for (int r = 0; r < kReplicas; ++r) ASSERT_TRUE(progress.Count(Report(r, kSteps - 1), status, now).ok());
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 0);
  ASSERT_TRUE(progress.TakeFigures(Figures(kSteps, 0, 2), status, now).ok());
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
}

// The ps were lost when only the figures of the epoch were missing. Its steps are done again much later, and their
// first report is not the last one.
TEST(JobProgress, FiguresOfStepsThatAreDoneOnceMoreAreWaitedForAnew) {
  v1::JobStatus status = Status(true);
  status.mutable_data()->set_validation_examples(0);
  absl::Time now = absl::FromUnixSeconds(100);
  JobProgress progress(status, {}, {}, now);
  for (int r = 0; r < kReplicas; ++r) ASSERT_TRUE(progress.Count(Report(r, kSteps - 1), status, now).ok());
  ASSERT_EQ(progress.CloseEpochs(now, kGrace, status), 0);
  now += absl::Minutes(1);
  progress.RollBack(4, now);
  now += absl::Milliseconds(100);
  ASSERT_TRUE(progress.TakeFigures(Figures(kSteps - 5, 0, 2), status, now).ok());
  for (int r = 0; r < kReplicas; ++r) ASSERT_TRUE(progress.Count(Report(r, kSteps - 1), status, now).ok());
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 0) << "five steps' figures are missing";
  EXPECT_TRUE(progress.WantsFigures(now, status));
  ASSERT_TRUE(progress.TakeFigures(Figures(kSteps, 0, 2), status, now).ok());
  ASSERT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
  EXPECT_EQ(status.epochs(0).train().examples(), 4 * kReplicas * kSteps);
}

TEST(JobProgress, TheValidationOfAJobThatWaitsIsWaitedForForGood) {
  v1::JobStatus status = Status(true);
  absl::Time now = absl::FromUnixSeconds(100);
  JobProgress progress(status, {}, {}, now);
  ASSERT_TRUE(progress.TakeFigures(Figures(kSteps), status, now).ok());
  for (int r = 0; r < kReplicas; ++r) ASSERT_TRUE(progress.Count(Report(r, kSteps - 1), status, now).ok());
  for (int r = 0; r < 2; ++r) ASSERT_TRUE(progress.Count(Validation(r, 0), status, now).ok());
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 0);
  now += absl::Hours(1);
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 0) << "a share of the validation is missing";
  ASSERT_TRUE(progress.Count(Validation(2, 0), status, now).ok());
  EXPECT_EQ(progress.CloseEpochs(now, kGrace, status), 1);
}

TEST(JobProgress, AClosedEpochStaysWholeWhenItIsToldAgain) {
  v1::JobStatus status = Status(true);
  const absl::Time now = absl::FromUnixSeconds(100);
  std::optional<JobProgress> progress;
  progress.emplace(status, std::vector<int64_t>{}, std::vector<bool>{}, now);
  ASSERT_TRUE(progress->TakeFigures(Figures(kSteps), status, now).ok());
  for (int r = 0; r < kReplicas; ++r) {
    ASSERT_TRUE(progress->Count(Report(r, kSteps - 1), status, now).ok());
    ASSERT_TRUE(progress->Count(Validation(r, 0), status, now).ok());
  }
  ASSERT_EQ(progress->CloseEpochs(now, kGrace, status), 1);
  const std::string whole = status.epochs(0).SerializeAsString();
  progress.emplace(status, std::vector<int64_t>(progress->replicas().next()), std::vector<bool>{}, now);
  ASSERT_TRUE(progress->TakeFigures(Figures(kSteps), status, now).ok());
  for (int r = 0; r < kReplicas; ++r) {
    ASSERT_TRUE(progress->Count(Validation(r, 0), status, now).ok());
    EXPECT_EQ(status.epochs(0).SerializeAsString(), whole) << "a decision may be made of it at any moment";
  }
}

// The coordinator and the finished workers are lost at once, and with them the result of their last validation: it is
// computed again.
TEST(JobProgress, NobodyHasFinishedWhileTheLastEpochIsNotClosed) {
  v1::JobStatus status = Status(true);
  const std::vector<int64_t> steps(kReplicas, 2 * kSteps);
  status.add_epochs();
  JobProgress open(status, steps, std::vector<bool>(kReplicas, true), absl::UnixEpoch());
  EXPECT_EQ(open.replicas().finished(), std::vector<bool>(kReplicas, false));
  EXPECT_EQ(open.step(), 2 * kSteps) << "its steps are done";
  EXPECT_FALSE(open.Done(absl::UnixEpoch() + absl::Hours(1), status));
  status.add_epochs();
  const JobProgress closed(status, steps, std::vector<bool>(kReplicas, true), absl::UnixEpoch());
  EXPECT_EQ(closed.replicas().finished(), std::vector<bool>(kReplicas, true));
}

TEST(JobProgress, AJobThatIsStoppedEndsWithItsEpoch) {
  v1::JobStatus status = Status(true);
  const absl::Time now = absl::FromUnixSeconds(100);
  JobProgress progress(status, {}, {}, now);
  ASSERT_TRUE(progress.TakeFigures(Figures(kSteps), status, now).ok());
  for (int r = 0; r < kReplicas; ++r) {
    ASSERT_TRUE(progress.Count(Report(r, kSteps - 1), status, now).ok());
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
