// Goal: StepOutput keeps effects in order, fails a job once, and asks for a timer only where none comes early enough.
#include "worker/core/step_output.h"

#include <gtest/gtest.h>

#include <variant>
#include <vector>

namespace cairn::replica {
namespace {

absl::Time At(int64_t seconds) { return absl::FromUnixSeconds(seconds); }

std::vector<absl::Time> Timers(StepOutput& output) {
  std::vector<absl::Time> times;
  for (const Effect& effect : output.Take()) {
    if (const auto* timer = std::get_if<SetTimer>(&effect)) times.push_back(timer->at);
  }
  return times;
}

TEST(StepOutputTest, EffectsAreTakenInOrderAndBelongToOneStep) {
  StepOutput output;
  output.Begin(At(1));
  output.Emit(StopWork{7});
  output.Emit(StopWork{8});
  const Effects effects = output.Take();
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_EQ(std::get<StopWork>(effects[0]).work, 7u);
  EXPECT_EQ(std::get<StopWork>(effects[1]).work, 8u);
  output.Emit(StopWork{9});
  output.Begin(At(2));
  EXPECT_TRUE(output.Take().empty());
  EXPECT_EQ(output.now(), At(2));
}

TEST(StepOutputTest, AJobFailsOnce) {
  StepOutput output;
  output.Begin(At(1));
  EXPECT_FALSE(output.failed());
  output.Fail("first");
  output.Fail("second");
  EXPECT_TRUE(output.failed());
  const Effects effects = output.Take();
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(std::get<Fail>(effects[0]).message, "first");
}

TEST(StepOutputTest, WakesAtTheEarliestTimeAndOnlyOnce) {
  StepOutput output;
  output.Begin(At(1));
  output.WakeBy(At(9));
  output.WakeBy(At(5));
  output.WakeBy(At(7));
  EXPECT_EQ(output.wake(), At(5));
  output.Begin(At(4));
  EXPECT_FALSE(output.TakeWake());
  output.Begin(At(5));
  EXPECT_TRUE(output.TakeWake());
  EXPECT_FALSE(output.TakeWake()) << "whoever waits must ask again";
}

TEST(StepOutputTest, ATimerIsSetOnlyIfNoneComesEarlyEnough) {
  StepOutput output;
  output.Begin(At(1));
  output.ArmTimer(absl::InfiniteFuture());
  EXPECT_TRUE(Timers(output).empty());
  output.WakeBy(At(9));
  output.ArmTimer(At(8));
  EXPECT_EQ(Timers(output), std::vector<absl::Time>{At(8)});
  output.ArmTimer(At(8));
  EXPECT_TRUE(Timers(output).empty()) << "it is set already";
  output.WakeBy(At(6));
  output.ArmTimer(At(8));
  EXPECT_EQ(Timers(output), std::vector<absl::Time>{At(6)});
  // A timer that comes too early leaves the last one set; one in time does not.
  output.Begin(At(5));
  output.OnTimer();
  output.ArmTimer(At(8));
  EXPECT_TRUE(Timers(output).empty());
  output.Begin(At(6));
  output.OnTimer();
  output.ArmTimer(At(8));
  EXPECT_EQ(Timers(output), std::vector<absl::Time>{At(6)});
}

}  // namespace
}  // namespace cairn::replica
