// Goal: rungs by epochs; who survives one is a function of the figures: the best, ties by number, NaN and none last.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "client/cli/sweep/halving.h"
#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Rungs, GrowByTheFactorBelowTheEpochs) {
  EXPECT_THAT(*Rungs({true, 3, 1}, 27), ElementsAre(1, 3, 9));
  EXPECT_THAT(*Rungs({true, 3, 1}, 28), ElementsAre(1, 3, 9, 27));
  EXPECT_THAT(*Rungs({true, 2, 3}, 7), ElementsAre(3, 6));
  EXPECT_THAT(std::string(Rungs({true, 3, 4}, 4).status().message()), HasSubstr("more epochs"));
  EXPECT_FALSE(Rungs({true, 1, 1}, 4).ok());
  EXPECT_FALSE(Rungs({true, 2, 0}, 4).ok());
}

TEST(Survivors, AreTheBestPart) {
  const std::vector<Standing> standings = {{1, 0.5}, {2, 0.9}, {3, 0.7}, {4, 0.1}, {5, 0.8}, {6, 0.2}};
  EXPECT_THAT(Survivors(standings, 3, true), ElementsAre(2, 5));
  EXPECT_THAT(Survivors(standings, 3, false), ElementsAre(4, 6));
  EXPECT_THAT(Survivors(standings, 4, true), ElementsAre(2));
  EXPECT_THAT(Survivors(standings, 100, true), ElementsAre(2));  // at least one
}

TEST(Survivors, TiesGoToTheSmallerNumber) {
  EXPECT_THAT(Survivors({{4, 0.5}, {2, 0.5}, {3, 0.5}, {1, 0.4}}, 2, true), ElementsAre(2, 3));
}

TEST(Survivors, NoNumberIsWorseThanAny) {
  EXPECT_THAT(Survivors({{1, kNan}, {2, std::nullopt}, {3, 5.0}, {4, 4.0}}, 2, false), ElementsAre(4, 3));
  EXPECT_THAT(Survivors({{1, kNan}, {2, std::nullopt}, {3, std::nullopt}, {4, std::nullopt}}, 2, false),
              ElementsAre(1));
  EXPECT_THAT(Survivors({{1, std::nullopt}, {2, std::nullopt}}, 2, true), IsEmpty());
}

// The order in which figures are given does not count.
TEST(Survivors, DoNotDependOnTheOrder) {
  std::mt19937 random(TestSeed());
  for (int round = 0; round < 200; ++round) {
    std::vector<Standing> standings;
    const int count = 1 + static_cast<int>(random() % 20);
    for (int i = 1; i <= count; ++i) {
      const int value = static_cast<int>(random() % 6);
      standings.push_back({i, value == 0 ? std::nullopt : std::optional<double>(value == 1 ? kNan : value)});
    }
    const auto wanted = Survivors(standings, 3, true);
    std::shuffle(standings.begin(), standings.end(), random);
    EXPECT_EQ(Survivors(standings, 3, true), wanted);
  }
}

}  // namespace
}  // namespace cairn
