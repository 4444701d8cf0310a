// Goal: a task of a TFJob ends with its job's code, keeps it, and does not wait for ever for a job that was refused:
// the task that submitted it is gone then, and the coordinator with it.
#include "client/cli/job_end_watch.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"

namespace cairn {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'000'000);
const absl::StatusOr<v1::JobStatus> kMissing = absl::NotFoundError("no job named \"x\""),
                                    kSilent = absl::UnavailableError("not reached");

absl::StatusOr<v1::JobStatus> In(v1::JobState state) {
  v1::JobStatus job;
  job.set_state(state);
  return job;
}

class JobEndTest : public testing::Test {
 protected:
  ~JobEndTest() override { std::filesystem::remove_all(directory_); }
  std::string directory_ =
      absl::StrCat(testing::TempDir(), "/job_end_", testing::UnitTest::GetInstance()->current_test_info()->name());
  JobEndWatch end_{directory_, "x"};
};

TEST_F(JobEndTest, EachEndHasItsCodeAndIsKept) {
  EXPECT_EQ(end_.Consider(In(v1::QUEUED), kStart), std::nullopt);
  EXPECT_EQ(end_.Consider(In(v1::RUNNING), kStart), std::nullopt);
  EXPECT_EQ(end_.Remembered(), std::nullopt);
  for (const auto& [state, code] :
       {std::pair(v1::SUCCEEDED, 0), {v1::ENDED_WITH_ERRORS, 3}, {v1::FAILED, 1}, {v1::CANCELLED, 1}}) {
    JobEndWatch end(directory_, "x");
    EXPECT_EQ(end.Consider(In(state), kStart), code);
    EXPECT_EQ(JobEndWatch(directory_, "x").Remembered(), code);
  }
}

TEST_F(JobEndTest, ACoordinatorThatHadNoSuchJobAndIsGoneRefusedIt) {
  EXPECT_EQ(end_.Consider(kMissing, kStart), std::nullopt);
  EXPECT_EQ(end_.Consider(kSilent, kStart + absl::Seconds(5)), std::nullopt);
  EXPECT_EQ(end_.Consider(kSilent, kStart + absl::Seconds(4) + kRefusedAfter), std::nullopt);
  EXPECT_EQ(end_.Consider(kSilent, kStart + absl::Seconds(5) + kRefusedAfter), kExitUsage);
  EXPECT_EQ(end_.Remembered(), std::nullopt) << "mended, it may be submitted again";
}

TEST_F(JobEndTest, ACoordinatorThatComesBackIsWaitedForAgain) {
  EXPECT_EQ(end_.Consider(kMissing, kStart), std::nullopt);
  EXPECT_EQ(end_.Consider(kSilent, kStart + absl::Seconds(1)), std::nullopt);
  EXPECT_EQ(end_.Consider(kMissing, kStart + absl::Seconds(50)), std::nullopt);
  EXPECT_EQ(end_.Consider(kSilent, kStart + absl::Seconds(70)), std::nullopt);
  EXPECT_EQ(end_.Consider(In(v1::RUNNING), kStart + absl::Seconds(100)), std::nullopt);
  EXPECT_EQ(end_.Consider(kSilent, kStart + absl::Seconds(101)), std::nullopt);
  EXPECT_EQ(end_.Consider(kSilent, kStart + absl::Hours(9)), std::nullopt) << "it had the job";
}

TEST_F(JobEndTest, ACoordinatorThatWasNeverThereIsWaitedFor) {
  EXPECT_EQ(end_.Consider(kSilent, kStart), std::nullopt);
  EXPECT_EQ(end_.Consider(kSilent, kStart + absl::Hours(9)), std::nullopt);
}

}  // namespace
}  // namespace cairn
