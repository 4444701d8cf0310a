// Goal: --keep-ended-jobs keeps what it says, invalid values are refused by name, and its description for users is
// complete.
#include "coordinator/core/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using ::testing::HasSubstr;

TEST(Retention, BeforeAnythingIsSaidWeightsOfCompleteJobsAreKeptForEver) {
  const Retention r = *Retention::Parse("");
  for (const v1::JobState state : {v1::SUCCEEDED, v1::ENDED_WITH_ERRORS})
    EXPECT_EQ(r.AgeMax(state), absl::InfiniteDuration());
  EXPECT_EQ(r.AgeMax(v1::FAILED), absl::Hours(30 * 24));
  EXPECT_EQ(r.AgeMax(v1::CANCELLED), absl::Hours(7 * 24));
  EXPECT_EQ(r.without_weights, 100);
  EXPECT_EQ(r.Text(),
            "ended jobs are kept until they are deleted; failed ones for 30d; cancelled ones for 7d; of those without "
            "weights the newest 100");
}

TEST(Retention, WhatIsNamedReplacesTheDefault) {
  const Retention r =
      *Retention::Parse("cancelled=90m, succeeded=1d,failed=forever,ended_with_errors=36h,without_weights=0");
  EXPECT_EQ(r.succeeded, absl::Hours(24));
  EXPECT_EQ(r.ended_with_errors, absl::Hours(36));
  EXPECT_EQ(r.failed, absl::InfiniteDuration());
  EXPECT_EQ(r.cancelled, absl::Minutes(90));
  EXPECT_EQ(r.Text(),
            "ended jobs are kept until they are deleted; succeeded ones for 1d; those that ended with errors for 36h; "
            "cancelled ones for 90m; of "
            "those without weights the newest 0");
  EXPECT_EQ(Retention::Parse("cancelled=0s")->cancelled, absl::ZeroDuration());
}

TEST(Retention, NonsenseIsRefusedByName) {
  const struct {
    const char *text, *error;
  } cases[] = {{"failed", "failed: \"\" is not an age"},
               {"failed=", "failed: \"\" is not an age"},
               {"failed=30", "\"30\" is not an age; write a number and s, m, h or d, such as 30d, or forever"},
               {"failed=-1d", "\"-1d\" is not an age"},
               {"failed=d", "\"d\" is not an age"},
               {"failed=99999999999999999999d", "is not an age"},
               {"failed=40000d", "is not an age"},
               {"failed=1d,failed=2d", "failed: is named twice"},
               {"running=1d", "running: use succeeded, ended_with_errors, failed, cancelled or without_weights"},
               {"without_weights=1001", "\"1001\" is not a number within 0 .. 1000"},
               {"without_weights=many", "is not a number"}};
  for (const auto& c : cases) {
    const auto parsed = Retention::Parse(c.text);
    ASSERT_FALSE(parsed.ok()) << c.text;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("--keep-ended-jobs: "));
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(c.error));
  }
}

}  // namespace
}  // namespace cairn
