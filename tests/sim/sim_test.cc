// Goal: thousands of whole jobs under faults keep every promise, and each checker sees the defect that it is there for.
//
// CAIRN_SIM_SEEDS sets how many seeds (default 20000), CAIRN_SIM_FIRST the first. A seed that fails is replayed with
// `cairn-sim --seed S`.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/sim/simulation.h"

namespace cairn::sim {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

TEST(Simulation, EveryPromiseHoldsUnderFaults) {
  const uint64_t first = FromEnvironment("CAIRN_SIM_FIRST", 1), seeds = FromEnvironment("CAIRN_SIM_SEEDS", 20000);
  int failures = 0;
  for (uint64_t seed = first; seed < first + seeds && failures < 5; ++seed) {
    const Result result = Simulate({seed, false, PlantedBug::kNone});
    EXPECT_EQ(result.violation, "") << "seed " << seed << ": " << result.summary;
    if (!result.violation.empty()) ++failures;
  }
}

TEST(Simulation, ARunIsAFunctionOfItsSeed) {
  for (uint64_t seed : {3, 14, 159}) {
    const Result a = Simulate({seed, false, PlantedBug::kNone}), b = Simulate({seed, false, PlantedBug::kNone});
    EXPECT_EQ(a.events, b.events);
    EXPECT_EQ(a.virtual_seconds, b.virtual_seconds);
  }
}

class Planted : public testing::TestWithParam<PlantedBug> {};

TEST_P(Planted, IsFoundWithin2000Seeds) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    const Result result = Simulate({seed, false, GetParam()});
    if (!result.violation.empty()) {
      std::printf("%s: seed %llu: %s\n", Name(GetParam()), static_cast<unsigned long long>(seed), result.violation.c_str());
      return;
    }
  }
  FAIL() << Name(GetParam()) << " was not seen in 2000 seeds: a checker is blind";
}

INSTANTIATE_TEST_SUITE_P(Simulation, Planted,
                         testing::Values(PlantedBug::kReplyBeforePersist, PlantedBug::kForgetSequences,
                                         PlantedBug::kAddInOrderOfArrival, PlantedBug::kStaleValues, PlantedBug::kSkipExamples,
                                         PlantedBug::kLoseJobsOnRestart),
                         [](const auto& info) {
                           std::string name;
                           for (const char* c = Name(info.param); *c != 0; ++c) {
                             if (*c != '-') name += *c;
                           }
                           return name;
                         });

}  // namespace
}  // namespace cairn::sim
