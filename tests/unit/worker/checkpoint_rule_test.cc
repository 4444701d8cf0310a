// Goal: a checkpoint is due after the steps, epochs and minutes that the job names and after its last step; a missed
// one is taken later; an existing one is not taken again.
#include "worker/core/checkpoint_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace cairn {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

std::vector<int64_t> DueSteps(CheckpointRule rule, int64_t from, int64_t to, absl::Duration step = absl::Seconds(1)) {
  std::vector<int64_t> due;
  for (int64_t s = from; s <= to; ++s) {
    const absl::Time now = kStart + step * s;
    if (!rule.Due(s, now)) continue;
    due.push_back(s);
    rule.Taken(s, now);
  }
  return due;
}

v1::JobSpec Spec(int64_t steps, int32_t epochs, double minutes) {
  v1::JobSpec spec;
  spec.mutable_checkpoints()->set_dir("/c");
  spec.mutable_checkpoints()->set_every_steps(steps);
  spec.mutable_checkpoints()->set_every_epochs(epochs);
  spec.mutable_checkpoints()->set_every_minutes(minutes);
  return spec;
}

TEST(CheckpointRule, StepsEpochsMinutesAndTheLastStep) {
  EXPECT_THAT(DueSteps(CheckpointRule(v1::JobSpec(), 10, 35, 0, kStart), 1, 35), testing::IsEmpty());
  EXPECT_THAT(DueSteps(CheckpointRule(Spec(8, 0, 0), 10, 35, 0, kStart), 1, 35),
              testing::ElementsAre(8, 16, 24, 32, 35));
  EXPECT_THAT(DueSteps(CheckpointRule(Spec(0, 1, 0), 10, 30, 0, kStart), 1, 30), testing::ElementsAre(10, 20, 30));
  EXPECT_THAT(DueSteps(CheckpointRule(Spec(15, 2, 0), 10, 40, 0, kStart), 1, 40), testing::ElementsAre(15, 20, 30, 40));
  EXPECT_THAT(DueSteps(CheckpointRule(Spec(0, 0, 0.2), 10, 30, 0, kStart), 1, 30), testing::ElementsAre(12, 24, 30));
}

TEST(CheckpointRule, GoesOnFromWhatIsThere) {
  CheckpointRule rule(Spec(8, 0, 0), 10, 100, 20, kStart);  // restored at 20
  EXPECT_THAT(DueSteps(rule, 21, 41), testing::ElementsAre(24, 32, 40));
  rule.Taken(32, kStart);
  EXPECT_THAT(DueSteps(rule, 21, 41), testing::ElementsAre(40));
  // The chief of step 40 was lost; the next one begins at 43.
  EXPECT_THAT(DueSteps(rule, 43, 50), testing::ElementsAre(43, 48));
}

}  // namespace
}  // namespace cairn
