// Goal: reports never span epochs or gaps, leave in time, and repeat `finished` until the replica leaves.
#include "worker/report_book.h"

#include <gtest/gtest.h>

#include "common/base/exact_sum.h"

namespace cairn {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(100);
const ReplicaId kReplica(2);

BatchSums Sums(uint64_t examples) { return {examples, 0.5 * static_cast<double>(examples), {1.0}}; }

class ReportBookTest : public testing::Test {
 protected:
  // The replica has been here for a while.
  void SetUp() override {
    book_.AddStep(kReplica, 0, Sums(1), 10, kStart);
    ASSERT_EQ(book_.Take(kStart).size(), 1u);
  }

  ReportBook book_{absl::Milliseconds(200), absl::Milliseconds(500)};
};

TEST_F(ReportBookTest, StepsAreAddedUpUntilTheInterval) {
  book_.AddStep(kReplica, 3, Sums(4), 10, kStart);
  book_.AddStep(kReplica, 4, Sums(6), 10, kStart + absl::Milliseconds(150));
  EXPECT_EQ(book_.deadline(), kStart + absl::Milliseconds(200));
  EXPECT_TRUE(book_.Take(kStart + absl::Milliseconds(199)).empty());
  const auto reports = book_.Take(kStart + absl::Milliseconds(200));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].replica(), 2);
  EXPECT_EQ(reports[0].first_step(), 3);
  EXPECT_EQ(reports[0].last_step(), 4);
  EXPECT_EQ(reports[0].train().examples(), 10u);
  EXPECT_EQ(reports[0].train().loss(), 5.0);
  EXPECT_EQ(reports[0].train().metrics(0), 2.0);
  EXPECT_EQ(book_.deadline(), absl::InfiniteFuture());
}

TEST_F(ReportBookTest, TheFirstStepOfAReplicaThatIsNewLeavesAlone) {
  book_.Remove(kReplica);
  book_.AddStep(kReplica, 3, Sums(4), 10, kStart);
  book_.AddStep(kReplica, 4, Sums(6), 10, kStart);
  auto reports = book_.Take(kStart);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].first_step(), 3);
  EXPECT_EQ(reports[0].last_step(), 3);
  reports = book_.Take(kStart + absl::Milliseconds(200));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].first_step(), 4);
}

TEST_F(ReportBookTest, AnOpenStepAndTheOneAfterItLeaveAlone) {
  book_.AddStep(kReplica, 2, Sums(4), 10, kStart);
  book_.AddOpenStep(kReplica, 3, Sums(5), 10);
  book_.AddStep(kReplica, 3, Sums(5), 10, kStart);
  book_.AddStep(kReplica, 4, Sums(6), 10, kStart);
  const auto reports = book_.Take(kStart);
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[0].last_step(), 2);
  for (int i : {1, 2}) {
    EXPECT_EQ(reports[i].first_step(), 3);
    EXPECT_EQ(reports[i].last_step(), 3);
    EXPECT_EQ(reports[i].train().examples(), 5u);
  }
}

TEST_F(ReportBookTest, AnEpochsEndClosesTheReport) {
  book_.AddStep(kReplica, 9, Sums(4), 10, kStart);
  book_.AddStep(kReplica, 10, Sums(4), 10, kStart);
  const auto reports = book_.Take(kStart);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].last_step(), 9);
}

TEST_F(ReportBookTest, AGapClosesTheReport) {
  book_.AddStep(kReplica, 2, Sums(4), 10, kStart);
  book_.AddStep(kReplica, 5, Sums(4), 10, kStart);
  const auto reports = book_.Take(kStart);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].first_step(), 2);
  EXPECT_EQ(reports[0].last_step(), 2);
}

TEST_F(ReportBookTest, LeavingTakesWhatIsGathered) {
  book_.AddStep(kReplica, 2, Sums(4), 10, kStart);
  book_.Remove(kReplica);
  EXPECT_EQ(book_.Take(kStart).size(), 1u);
  EXPECT_TRUE(book_.Take(kStart + absl::Seconds(10)).empty());
}

TEST_F(ReportBookTest, FinishedComesAfterTheLastStepsAndAgain) {
  book_.AddStep(kReplica, 2, Sums(4), 10, kStart);
  book_.Finish(kReplica, kStart);
  auto reports = book_.Take(kStart);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_FALSE(reports[0].finished());
  EXPECT_TRUE(reports[1].finished());
  EXPECT_TRUE(book_.Take(kStart + absl::Milliseconds(499)).empty());
  EXPECT_EQ(book_.Take(kStart + absl::Milliseconds(500)).size(), 1u);
  book_.Remove(kReplica);
  EXPECT_TRUE(book_.Take(kStart + absl::Seconds(5)).empty());
}

std::vector<std::pair<int64_t, int64_t>> StepsOf(const std::vector<v1::ReplicaReport>& reports) {
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (const v1::ReplicaReport& r : reports) {
    if (r.has_train()) steps.emplace_back(r.first_step(), r.last_step());
  }
  return steps;
}

TEST_F(ReportBookTest, ACoordinatorThatWasStartedAnewIsToldOfTwoEpochsAgain) {
  for (int64_t step = 1; step < 25; ++step) book_.AddStep(kReplica, step, Sums(4), 10, kStart);
  book_.AddValidation(kReplica, 0, Sums(3));
  book_.AddValidation(kReplica, 1, Sums(3));
  book_.Take(kStart + absl::Seconds(1));
  book_.Remove(kReplica);  // also of one that has left
  book_.ReportAgain();
  const auto again = book_.Take(kStart + absl::Seconds(1));
  EXPECT_EQ(StepsOf(again), (std::vector<std::pair<int64_t, int64_t>>{{10, 19}, {20, 24}}));
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(again[0].train().examples(), 40u);
}

TEST_F(ReportBookTest, WhatIsKeptIsBoundedAndLosesNothing) {
  const int64_t steps = 3000;
  for (int64_t step = 1; step < steps; ++step) {
    book_.AddStep(kReplica, step, Sums(4), steps, kStart + absl::Seconds(step));
    book_.Take(kStart + absl::Seconds(step + 0.5));
  }
  book_.ReportAgain();
  const auto again = book_.Take(kStart + absl::Seconds(steps));
  EXPECT_LE(again.size(), ReportBook::kKeptOfReplica);
  int64_t next = 0;
  uint64_t examples = 0;
  for (const v1::ReplicaReport& r : again) {
    EXPECT_EQ(r.first_step(), next);
    next = r.last_step() + 1;
    examples += r.train().examples();
  }
  EXPECT_EQ(next, steps);
  EXPECT_EQ(examples, 1u + 4u * (steps - 1));
}

TEST_F(ReportBookTest, WhatWasTakenBackIsNotToldAgain) {
  for (int64_t step = 1; step < 25; ++step) book_.AddStep(kReplica, step, Sums(4), 10, kStart);
  book_.AddValidation(kReplica, 1, Sums(3));
  book_.Take(kStart + absl::Seconds(1));
  book_.Forget(kReplica, 19, 10);
  book_.ReportAgain();
  EXPECT_TRUE(StepsOf(book_.Take(kStart + absl::Seconds(1))).empty());
}

TEST_F(ReportBookTest, EachStepsFiguresAreRoundedOnce) {
  const BatchSums odd{3, 1.0 / 3, {0.1}};
  book_.AddStep(kReplica, 2, odd, 10, kStart);
  book_.AddStep(kReplica, 3, odd, 10, kStart);
  book_.AddValidation(kReplica, 0, odd);
  const auto reports = book_.Take(kStart + absl::Seconds(1));
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].validation().loss(), RoundForSum(1.0 / 3));
  EXPECT_EQ(reports[1].train().loss(), 2 * RoundForSum(1.0 / 3));
  EXPECT_EQ(reports[1].train().metrics(0), 2 * RoundForSum(0.1));
}

}  // namespace
}  // namespace cairn
