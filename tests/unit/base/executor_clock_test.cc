// Goal: SerialExecutor's timers are of the steady clock. Here the wall clock is set back and ahead under it.
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "common/base/executor.h"
#include "tests/unit/base/wall_clock.h"

namespace cairn {
namespace {

class ExecutorClock : public testing::Test {
 protected:
  ~ExecutorClock() override { wall_clock_ahead_s = 0; }

  static void SetWallClock(int64_t ahead_s) {
    const auto before = std::chrono::system_clock::now();
    wall_clock_ahead_s = ahead_s;
    ASSERT_GT(std::chrono::abs(std::chrono::system_clock::now() - before), std::chrono::minutes(59))
        << "other libraries do not see it";
  }
};

TEST_F(ExecutorClock, ATimerComesInTimeWhereTheWallClockIsSetBack) {
  SerialExecutor executor("test");
  std::promise<void> ran;
  executor.PostAfter(absl::Milliseconds(100), [&] { ran.set_value(); });
  SetWallClock(-3600);
  EXPECT_EQ(ran.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

TEST_F(ExecutorClock, ATimerDoesNotComeEarlyWhereTheWallClockIsSetAhead) {
  SerialExecutor executor("test");
  bool ran = false;
  executor.PostAfter(absl::Minutes(50), [&] { ran = true; });
  SetWallClock(3600);
  executor.RunAndWait([] {});
  executor.RunAndWait([] {});  // what the first one made due has run before it
  EXPECT_FALSE(ran);
}

TEST_F(ExecutorClock, NoDelayIsTooLong) {
  SerialExecutor executor("test");
  bool ran = false;
  executor.PostAfter(absl::InfiniteDuration(), [&] { ran = true; });
  executor.PostAfter(-absl::InfiniteDuration(), [] {});
  executor.RunAndWait([] {});
  executor.RunAndWait([] {});
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace cairn
