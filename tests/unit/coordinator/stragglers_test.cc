// Goal: a worker that is slower than the others is detected within seconds; noise of any size moves nothing for hours;
// a worker that is slow repeatedly is tried again ever less often. Also rates of growing numbers.
#include "coordinator/core/stragglers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/rate_meter.h"

namespace cairn {
namespace {

constexpr absl::Duration kBeat = absl::Milliseconds(500);
const absl::Time kStart = absl::FromUnixSeconds(1000);

NodeName NameOf(int worker) { return absl::StrCat("worker-", worker); }

// Time passes in heartbeats. Each gives what a worker reports at a time since the start; NaN: nothing.
struct Beats {
  StragglerWatch watch;
  absl::Time now = kStart;
  int convictions = 0, acquittals = 0;

  void Pass(int workers, absl::Duration duration, const std::function<double(int)>& says) {
    for (const absl::Time end = now + duration; now < end;) {
      now += kBeat;
      for (int w = 0; w < workers; ++w) watch.Heard(NameOf(w), says(w), now);
      const size_t before = watch.stragglers().size();
      const bool acquitted = watch.Look(now);
      acquittals += acquitted;
      convictions += watch.stragglers().size() > before;
    }
  }
  bool Slow(int worker) const { return watch.stragglers().contains(NameOf(worker)); }
};

TEST(Stragglers, NoiseAroundEqualMeansIsNone) {
  for (const double sigma : {0.05, 0.2, 0.5, 0.8}) {
    for (const int workers : {2, 3, 8}) {
      std::mt19937_64 random(17);
      std::lognormal_distribution<double> step_ms(3, sigma);
      Beats run;
      run.Pass(workers, absl::Hours(1), [&](int) { return step_ms(random); });
      EXPECT_EQ(run.convictions, 0) << workers << " workers, sigma " << sigma;
    }
  }
}

// A worker reports the mean of its last steps. Other processes take the processor from one worker for a second now and
// then.
TEST(Stragglers, AMachineThatIsBusyNowAndThenIsNone) {
  std::mt19937_64 random(23);
  std::lognormal_distribution<double> step_ms(3, 0.2);
  std::vector<double> mean(4, std::exp(3));
  std::vector<int> busy(4, 0);
  Beats run;
  run.Pass(4, absl::Hours(1), [&](int w) {
    if (busy[w] == 0 && random() % 60 == 0) busy[w] = 2;
    const double ms = step_ms(random) * (busy[w] > 0 ? 2 : 1);
    busy[w] = std::max(0, busy[w] - 1);
    return mean[w] += 0.5 * (ms - mean[w]);
  });
  EXPECT_EQ(run.convictions, 0);
}

TEST(Stragglers, ThreeTimesAsSlowIsSeenInThreeSecondsAndSoIsTheEndOfIt) {
  for (const double sigma : {0.0, 0.1, 0.2}) {
    std::mt19937_64 random(5);
    std::normal_distribution<double> noise(0, 1);
    double factor = 1;
    const auto says = [&](int w) { return 20 * std::exp(sigma * noise(random)) * (w == 1 ? factor : 1); };
    Beats run;
    run.Pass(3, absl::Minutes(1), says);
    EXPECT_FALSE(run.Slow(1));
    factor = 3;
    run.Pass(3, absl::Seconds(sigma == 0 ? 3 : 6), says);
    EXPECT_TRUE(run.Slow(1)) << "sigma " << sigma;
    run.Pass(3, absl::Seconds(20), says);
    EXPECT_NEAR(run.watch.stragglers().at(NameOf(1)), 3, 0.5);
    EXPECT_EQ(run.watch.stragglers().size(), 1u);
    factor = 1;
    run.Pass(3, StragglerWatch::kFastFor - absl::Seconds(5), says);
    EXPECT_TRUE(run.Slow(1)) << "not at once";
    run.Pass(3, absl::Seconds(20), says);
    EXPECT_FALSE(run.Slow(1));
    EXPECT_EQ(run.convictions, 1);
    EXPECT_EQ(run.acquittals, 1);
  }
}

// The worker is slow while it has replicas, and seems fast when they have been taken away.
TEST(Stragglers, OneThatIsSlowAgainAndAgainIsTriedEverMoreSeldom) {
  Beats run;
  run.Pass(2, absl::Hours(1), [&](int w) { return w == 0 ? 10 : run.Slow(1) ? std::nan("") : 40; });
  EXPECT_GE(run.convictions, 3);
  EXPECT_LE(run.convictions, 8) << "30 s, 1 min, 2 min, ... between two tries";
}

TEST(Stragglers, AloneOrWithoutWordsNobodyIsOne) {
  Beats run;
  run.Pass(1, absl::Minutes(1), [](int) { return 1000.0; });
  EXPECT_TRUE(run.watch.stragglers().empty());
  Beats nonsense;
  for (const double said : {std::nan(""), -5.0, 0.0, std::numeric_limits<double>::infinity()}) {
    nonsense.Pass(2, absl::Seconds(10), [&](int w) { return w == 0 ? 10 : said; });
  }
  EXPECT_TRUE(nonsense.watch.stragglers().empty());
  Beats gone;
  gone.Pass(2, absl::Seconds(10), [](int w) { return w == 0 ? 10.0 : 50.0; });
  ASSERT_TRUE(gone.Slow(1));
  gone.watch.Forget(NameOf(1));
  gone.watch.Look(gone.now);
  EXPECT_TRUE(gone.watch.stragglers().empty());
}

TEST(RateMeter, ARateIsOfWhatWasSeen) {
  RateMeter rate;
  EXPECT_EQ(rate.PerSecond(kStart), std::nullopt);
  rate.Restart(kStart, 1e6);  // of before
  EXPECT_EQ(rate.PerSecond(kStart + absl::Milliseconds(200)), std::nullopt) << "too little was seen";
  absl::Time now = kStart;
  for (int i = 1; i <= 200; ++i) {
    now += absl::Milliseconds(50);
    rate.Note(now, 1e6 + 5 * i);
    if (i >= 20) {
      EXPECT_NEAR(*rate.PerSecond(now), 100, 5) << i;
    }
  }
  rate.Note(now, 17);  // of before
  EXPECT_NEAR(*rate.PerSecond(now), 100, 5);
  EXPECT_NEAR(*rate.PerSecond(now + absl::Seconds(2.5)), 50, 5) << "it stands still";
  EXPECT_EQ(rate.PerSecond(now + absl::Seconds(6)), 0);
  rate.Restart(now, 0);
  EXPECT_EQ(rate.PerSecond(now), std::nullopt);
}

}  // namespace
}  // namespace cairn
