// Goal: reports never span epochs or gaps, leave in time, and repeat `finished` until the replica leaves.
#include "worker/report_book.h"

#include <gtest/gtest.h>

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
  book_.AddOpenStep(kReplica, 3, Sums(5));
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

}  // namespace
}  // namespace cairn
