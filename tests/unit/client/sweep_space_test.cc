// Goal: a grid gives every combination in order, a random sweep the same different trials for the same seed, within
// their ranges; what is wrong is refused with what to write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "client/cli/sweep/space.h"
#include "client/limits.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

v1::JobSpec Job() {
  v1::JobSpec job;
  job.mutable_optimizer()->set_learning_rate(0.1);
  return job;
}

std::string GridError(const std::string& text) { return std::string(ParseGrid(text).status().message()); }
std::string RangeError(const std::string& text) { return std::string(ParseRange(text, Job()).status().message()); }

SweepSpace Random(int count, uint64_t seed, const std::vector<std::string>& grid,
                  const std::vector<std::string>& ranges) {
  SweepSpace space;
  space.random = count;
  space.seed = seed;
  for (const std::string& text : grid) space.grid.push_back(ParseGrid(text).value());
  for (const std::string& text : ranges) space.ranges.push_back(ParseRange(text, Job()).value());
  return space;
}

TEST(ParseGrid, SplitsAtCommasOutsideOfBrackets) {
  EXPECT_THAT(ParseGrid("batch_size=32,64")->values, ElementsAre("32", "64"));
  EXPECT_THAT(ParseGrid("optimizer=adam, sgd ")->values, ElementsAre("adam", "sgd"));
  EXPECT_THAT(ParseGrid("x={ units: 1, b: [1,2] },{}")->values, ElementsAre("{ units: 1, b: [1,2] }", "{}"));
  EXPECT_THAT(ParseGrid(R"(x={a: "},"},b)")->values, ElementsAre(R"({a: "},"})", "b"));
  EXPECT_THAT(ParseGrid(R"(x=a\,b,c)")->values, ElementsAre("a,b", "c"));
  EXPECT_THAT(ParseGrid("x=a=b,c")->values, ElementsAre("a=b", "c"));
}

TEST(ParseGrid, RefusesWhatIsNoGrid) {
  EXPECT_THAT(GridError("batch_size"), HasSubstr("write it as FIELD=VALUE,VALUE"));
  EXPECT_THAT(GridError("=1,2"), HasSubstr("write it as"));
  EXPECT_THAT(GridError("x=1,,2"), HasSubstr("a value is missing"));
  EXPECT_THAT(GridError("x="), HasSubstr("a value is missing"));
  EXPECT_THAT(GridError("x=1,2,1"), HasSubstr("1 is there twice"));
  EXPECT_THAT(GridError("x={a,b"), HasSubstr("not closed"));
  EXPECT_THAT(GridError("x=a},b"), HasSubstr("closes nothing"));
  EXPECT_THAT(GridError("name=a,b"), HasSubstr("named by the sweep"));
}

TEST(ParseRange, TellsWholeNumbersFromTheField) {
  EXPECT_TRUE(ParseRange("batch_size=16:64", Job())->whole);
  const auto rate = ParseRange("optimizer.learning_rate=1e-4:1e-1:log", Job());
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_FALSE(rate->whole);
  EXPECT_TRUE(rate->log);
  EXPECT_EQ(rate->low, 1e-4);
  EXPECT_EQ(rate->high, 1e-1);
}

TEST(ParseRange, RefusesWhatIsNoRange) {
  EXPECT_THAT(RangeError("batch_size=16"), HasSubstr("write it as FIELD=LOW:HIGH"));
  EXPECT_THAT(RangeError("batch_size=1:2:3:4"), HasSubstr("write it as"));
  EXPECT_THAT(RangeError("batch_size=64:16"), HasSubstr("below the high one"));
  EXPECT_THAT(RangeError("batch_size=1.5:3"), HasSubstr("whole numbers, 1.5 is none"));
  EXPECT_THAT(RangeError("batch_sise=1:3"), HasSubstr("did you mean \"batch_size\"?"));
  EXPECT_THAT(RangeError("strategy=1:3"), HasSubstr("the field is no number"));
  EXPECT_THAT(RangeError("optimizer.learning_rate=0:1:log"), HasSubstr("begins above 0"));
  EXPECT_THAT(RangeError("optimizer.learning_rate=0.1:1:lin"), HasSubstr("is not \"log\""));
  EXPECT_THAT(RangeError("optimizer.learning_rate=a:1"), HasSubstr("\"a\" is not a number"));
  EXPECT_THAT(RangeError("optimizer.learning_rate=0:inf"), HasSubstr("\"inf\" is not a number"));
}

TEST(MakeTrials, AGridIsEveryCombinationTheFirstSlowest) {
  SweepSpace space;
  space.grid = {ParseGrid("a=1,2").value(), ParseGrid("b=x,y").value()};
  const auto trials = MakeTrials(space);
  ASSERT_TRUE(trials.ok()) << trials.status();
  ASSERT_EQ(trials->size(), 4u);
  EXPECT_THAT((*trials)[0], ElementsAre(Pair("a", "1"), Pair("b", "x")));
  EXPECT_THAT((*trials)[1], ElementsAre(Pair("a", "1"), Pair("b", "y")));
  EXPECT_THAT((*trials)[3], ElementsAre(Pair("a", "2"), Pair("b", "y")));
}

TEST(MakeTrials, RandomOnesAreTheSameForASeedAndNoTwoAlike) {
  const std::vector<std::string> grid = {"optimizer=adam,sgd"};
  const std::vector<std::string> ranges = {"batch_size=1:3", "optimizer.learning_rate=0.001:0.1:log"};
  const auto once = MakeTrials(Random(200, 7, grid, ranges));
  const auto again = MakeTrials(Random(200, 7, grid, ranges));
  const auto other = MakeTrials(Random(200, 8, grid, ranges));
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_EQ(*once, *again);
  EXPECT_NE(*once, *other);
  std::set<Assignment> different(once->begin(), once->end());
  EXPECT_EQ(different.size(), 200u);
  std::set<std::string> sizes, kinds;
  int below = 0;  // the middle of the logarithmic range
  for (const Assignment& trial : *once) {
    kinds.insert(trial[0].second);
    sizes.insert(trial[1].second);
    const double rate = std::atof(trial[2].second.c_str());
    EXPECT_GE(rate, 0.001);
    EXPECT_LE(rate, 0.1);
    below += rate < 0.01;
  }
  EXPECT_THAT(sizes, ElementsAre("1", "2", "3"));
  EXPECT_EQ(kinds.size(), 2u);
  EXPECT_NEAR(below, 100, 40);
}

// A longer sweep with the same seed begins with the same trials.
TEST(MakeTrials, MoreTrialsBeginWithTheSame) {
  const std::vector<std::string> ranges = {"optimizer.learning_rate=0.001:0.1"};
  const auto few = MakeTrials(Random(5, 1, {}, ranges)), many = MakeTrials(Random(9, 1, {}, ranges));
  EXPECT_TRUE(std::equal(few->begin(), few->end(), many->begin()));
}

TEST(MakeTrials, RefusesWhatGivesNoTrials) {
  SweepSpace space;
  EXPECT_THAT(std::string(MakeTrials(space).status().message()), HasSubstr("nothing to sweep"));
  space.ranges = {ParseRange("batch_size=1:3", Job()).value()};
  EXPECT_THAT(std::string(MakeTrials(space).status().message()), HasSubstr("give --random N too"));
  space.random = 4;
  EXPECT_THAT(std::string(MakeTrials(space).status().message()), HasSubstr("only 3 different trials"));
  space.random = kSweepTrialsMax + 1;
  EXPECT_THAT(std::string(MakeTrials(space).status().message()), HasSubstr("is not from 1 to"));
  space.random = 2;
  space.grid = {ParseGrid("batch_size=1,2").value()};
  EXPECT_THAT(std::string(MakeTrials(space).status().message()), HasSubstr("given twice"));
  std::string values = "0";
  for (int i = 1; i < 40; ++i) values += "," + std::to_string(i);
  SweepSpace large;
  large.grid = {ParseGrid("a=" + values).value(), ParseGrid("b=" + values).value()};
  EXPECT_THAT(std::string(MakeTrials(large).status().message()), HasSubstr("more than 1000 combinations"));
}

TEST(AssignmentText, ShortensNamesThatAreUnique) {
  EXPECT_EQ(AssignmentText({{"optimizer.learning_rate", "0.1"}, {"batch_size", "32"}}),
            "learning_rate=0.1 batch_size=32");
  EXPECT_EQ(AssignmentText({{"a.x", "1"}, {"b.x", "2"}}), "a.x=1 b.x=2");
}

}  // namespace
}  // namespace cairn
