// Goal: the core ticks at an even pace. After a time in which the process did not run, the tick is put off once, so
// that messages of nodes are read before their leases are checked.
#include "coordinator/node/tick_pace.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

class TickPaceTest : public testing::Test {
 protected:
  TickPaceTest() {
    options_.heartbeat_interval = absl::Milliseconds(300);
    options_.lease = absl::Seconds(3);
  }

  CoordinatorOptions options_;
};

TEST_F(TickPaceTest, TicksComeSeveralTimesAHeartbeat) {
  TickPace pace(options_, kStart);
  EXPECT_TRUE(pace.Due(kStart + absl::Milliseconds(100)));
  EXPECT_EQ(pace.wait(), absl::Milliseconds(100));
  options_.heartbeat_interval = absl::Milliseconds(50);
  TickPace fast(options_, kStart);
  EXPECT_TRUE(fast.Due(kStart));
  EXPECT_EQ(fast.wait(), absl::Milliseconds(25));
}

TEST_F(TickPaceTest, ATickAfterASuspensionIsPutOffByAHeartbeat) {
  TickPace pace(options_, kStart);
  EXPECT_TRUE(pace.Due(kStart + absl::Milliseconds(1500))) << "half a lease is no suspension yet";
  EXPECT_FALSE(pace.Due(kStart + absl::Milliseconds(3001)));
  EXPECT_EQ(pace.gap(), absl::Milliseconds(1501));
  EXPECT_EQ(pace.wait(), absl::Milliseconds(300));
  EXPECT_TRUE(pace.Due(kStart + absl::Milliseconds(3301)));
  EXPECT_EQ(pace.wait(), absl::Milliseconds(100));
}

TEST_F(TickPaceTest, AMachineThatIsAlwaysLateStillTicks) {
  TickPace pace(options_, kStart);
  absl::Time now = kStart;
  int ticks = 0;
  for (int i = 0; i < 10; ++i) ticks += pace.Due(now += absl::Seconds(10));
  EXPECT_EQ(ticks, 5);
}

}  // namespace
}  // namespace cairn
