// Goal: steps are told in time, `finished` is repeated until the replica leaves, a new coordinator is told of
// validations again.
#include "worker/core/report_book.h"

#include <gtest/gtest.h>

#include "common/base/exact_sum.h"

namespace cairn {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(100);
const ReplicaId kReplica(2);

BatchSums Sums(uint64_t examples) { return {examples, 0.5 * static_cast<double>(examples), {1.0}}; }

class ReportBookTest : public testing::Test {
 protected:
  ReportBook book_{absl::Milliseconds(200), absl::Milliseconds(500)};
};

TEST_F(ReportBookTest, StepsAreGatheredUntilTheInterval) {
  book_.AddStep(kReplica, 3, 10, kStart);
  book_.AddStep(kReplica, 4, 10, kStart + absl::Milliseconds(150));
  EXPECT_EQ(book_.deadline(), kStart + absl::Milliseconds(200));
  EXPECT_TRUE(book_.Take(kStart + absl::Milliseconds(199)).empty());
  const auto reports = book_.Take(kStart + absl::Milliseconds(200));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].replica(), 2);
  EXPECT_EQ(reports[0].last_step(), 4);
  EXPECT_EQ(book_.deadline(), absl::InfiniteFuture());
}

TEST_F(ReportBookTest, AnEpochsEndIsToldAtOnce) {
  book_.AddStep(kReplica, 9, 10, kStart);
  ASSERT_TRUE(book_.HasReady());
  const auto reports = book_.Take(kStart);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].last_step(), 9);
}

TEST_F(ReportBookTest, LeavingTakesWhatIsGathered) {
  book_.AddStep(kReplica, 2, 10, kStart);
  book_.Remove(kReplica);
  const auto reports = book_.Take(kStart);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].last_step(), 2);
}

TEST_F(ReportBookTest, FinishedComesAfterTheLastStepsAndAgain) {
  book_.AddStep(kReplica, 2, 10, kStart);
  book_.Finish(kReplica, kStart);
  EXPECT_TRUE(book_.Finished(kReplica));
  auto reports = book_.Take(kStart);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].last_step(), 2);
  EXPECT_TRUE(reports[1].finished());
  EXPECT_TRUE(book_.Take(kStart + absl::Milliseconds(499)).empty());
  reports = book_.Take(kStart + absl::Milliseconds(500));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].finished());
  book_.Remove(kReplica);
  EXPECT_TRUE(book_.Take(kStart + absl::Hours(1)).empty());
}

TEST_F(ReportBookTest, ACoordinatorThatWasStartedAnewIsToldOfTwoEpochsAgain) {
  book_.AddStep(kReplica, 1, 10, kStart);
  for (int epoch = 0; epoch < 4; ++epoch) book_.AddValidation(kReplica, epoch, Sums(3));
  book_.AddStepValidation(kReplica, 35, Sums(3));
  EXPECT_EQ(book_.Take(kStart + absl::Seconds(1)).size(), 6u);
  book_.ReportAgain();
  const auto again = book_.Take(kStart + absl::Seconds(1));
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(again[0].validation_epoch(), 2);
  EXPECT_EQ(again[1].validation_epoch(), 3);
  EXPECT_EQ(again[2].validation_step(), 35);
}

TEST_F(ReportBookTest, WhatIsKeptIsBounded) {
  book_.AddStep(kReplica, 1, 1'000'000, kStart);
  for (int64_t step = 1; step < 1000; ++step) book_.AddStepValidation(kReplica, step, Sums(4));
  (void)book_.Take(kStart);
  book_.ReportAgain();
  const auto again = book_.Take(kStart);
  EXPECT_EQ(again.size(), ReportBook::kKeptOfReplica);
  EXPECT_EQ(again.back().validation_step(), 999);
}

TEST_F(ReportBookTest, WhatWasTakenBackIsNotToldAgain) {
  book_.AddStep(kReplica, 25, 10, kStart);
  book_.AddValidation(kReplica, 0, Sums(3));
  book_.AddValidation(kReplica, 1, Sums(3));
  book_.AddStepValidation(kReplica, 18, Sums(3));
  (void)book_.Take(kStart + absl::Seconds(1));
  book_.Forget(kReplica, 15, 10);
  book_.ReportAgain();
  const auto again = book_.Take(kStart + absl::Seconds(1));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].validation_epoch(), 0);
}

TEST_F(ReportBookTest, FiguresAreRoundedOnce) {
  const BatchSums odd{3, 1.0 / 3, {0.1}};
  book_.AddValidation(kReplica, 0, odd);
  const auto reports = book_.Take(kStart);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].validation().examples(), 3u);
  EXPECT_EQ(reports[0].validation().loss(), RoundForSum(1.0 / 3));
  EXPECT_EQ(reports[0].validation().metrics(0), RoundForSum(0.1));
}

}  // namespace
}  // namespace cairn
