// Goal: thousands of whole jobs under faults keep every promise, and each checker sees a defect of the kind that it is
// there for.
//
// CAIRN_SIM_SEEDS sets how many seeds (default 20000), CAIRN_SIM_FIRST the first. A seed that fails is replayed with
// `cairn-sim --seed S`.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/sim/network.h"
#include "tests/sim/scale.h"
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
    const Result result = Simulate({seed, false, PlantedBug::kNone, ""});
    EXPECT_EQ(result.violation, "") << "seed " << seed << ": " << result.summary;
    if (!result.violation.empty()) ++failures;
  }
}

TEST(Simulation, ARunIsAFunctionOfItsSeed) {
  for (uint64_t seed : {3, 14, 159, 2653}) {
    const Result a = Simulate({seed, false, PlantedBug::kNone, ""}), b = Simulate({seed, false, PlantedBug::kNone, ""});
    EXPECT_EQ(a.events, b.events);
    EXPECT_EQ(a.virtual_seconds, b.virtual_seconds);
  }
}

// A run has thousands of streams; one that is over lets go of what was sent on it and never arrived.
TEST(Network, AStreamThatIsOverKeepsNothing) {
  World world(1, false);
  Host dialer("a"), listener("b");
  dialer.up = listener.up = true;
  Network network(world);
  network.faults.delay_max = absl::Milliseconds(2);
  network.Cut(dialer, listener);
  std::shared_ptr<Stream> stream = network.Dial(dialer, listener);
  stream->Send(Stream::kDialer, [stream] {});
  stream->OnBroken(Stream::kListener, [stream] {});
  const std::weak_ptr<Stream> over = stream;
  stream = nullptr;
  world.RunUntil(world.now() + absl::Seconds(10), [] { return false; });
  EXPECT_TRUE(over.expired());
}

TEST(Simulation, AClusterOfAThousandNodesIsNoBurden) {
  const ScaleResult result = SimulateScale({});
  std::printf("%s\n", result.text.c_str());
  EXPECT_EQ(result.violation, "");
}

// A defect, and the checker that has to see it by itself.
struct Case {
  PlantedBug bug;
  const char* checker;
};

class Planted : public testing::TestWithParam<Case> {};

// Of runs in which it can act: a defect of links to backups does nothing where none breaks, one of model files where
// none is written.
TEST_P(Planted, IsFoundWithin2000Runs) {
  int runs = 0;
  for (uint64_t seed = 1; runs < 2000 && seed <= 20000; ++seed) {
    const Result result = Simulate({seed, false, GetParam().bug, GetParam().checker});
    runs += !result.idle;
    if (!result.violation.empty()) {
      std::printf("%s: seed %llu: %s\n", Name(GetParam().bug), static_cast<unsigned long long>(seed),
                  result.violation.c_str());
      return;
    }
  }
  FAIL() << Name(GetParam().bug) << " was not seen in 2000 runs: the checker \"" << GetParam().checker << "\" is blind";
}

INSTANTIATE_TEST_SUITE_P(
    Simulation, Planted,
    testing::Values(Case{PlantedBug::kReplyBeforePersist, "acknowledged"}, Case{PlantedBug::kNoSync, "acknowledged"},
                    Case{PlantedBug::kBelieveUnconfirmed, "acknowledged"}, Case{PlantedBug::kGoOnAlone, "history"},
                    Case{PlantedBug::kForgetSequences, "exactly once"},
                    Case{PlantedBug::kAddInOrderOfArrival, "reference"}, Case{PlantedBug::kStaleValues, "reference"},
                    Case{PlantedBug::kSkipExamples, "epoch"}, Case{PlantedBug::kLeakRequests, "bounds"},
                    Case{PlantedBug::kNoRetry, "progress"}, Case{PlantedBug::kLoseJobsOnRestart, ""},
                    Case{PlantedBug::kMixedCut, "checkpoint"}, Case{PlantedBug::kForgetTables, "checkpoint"},
                    Case{PlantedBug::kForgetTables, "exactly once"}, Case{PlantedBug::kForgetSlots, "checkpoint"},
                    Case{PlantedBug::kForgetSlots, "reference"}, Case{PlantedBug::kRemoveNewest, "checkpoint"},
                    Case{PlantedBug::kDropTooMany, "reference"}, Case{PlantedBug::kIgnoreDiskErrors, "acknowledged"},
                    Case{PlantedBug::kReportEarly, "acknowledged"}, Case{PlantedBug::kForgetGate, "exactly once"},
                    Case{PlantedBug::kSaveNewest, "callbacks"}, Case{PlantedBug::kRestoreNewest, "reference"},
                    Case{PlantedBug::kHideFailure, "progress"}, Case{PlantedBug::kHalfGroup, "reference"},
                    Case{PlantedBug::kWrongFactor, "reference"}, Case{PlantedBug::kForgetScale, ""},
                    Case{PlantedBug::kSkipAlone, ""}, Case{PlantedBug::kStayAhead, ""},
                    Case{PlantedBug::kForgetDevice, "devices"}, Case{PlantedBug::kSayKept, "kept"},
                    Case{PlantedBug::kLoseFigures, "epoch"}, Case{PlantedBug::kPersistLate, "acknowledged"},
                    Case{PlantedBug::kLoseWakeup, "progress"}, Case{PlantedBug::kMixStreams, "progress"},
                    Case{PlantedBug::kStoreLate, ""}, Case{PlantedBug::kLoseTimer, "progress"}),
    [](const auto& info) {
      std::string name;
      for (const char* text : {Name(info.param.bug), info.param.checker}) {
        for (const char* c = text; *c != 0; ++c) {
          if (*c != '-' && *c != ' ') name += *c;
        }
        name += '_';
      }
      return name;
    });

}  // namespace
}  // namespace cairn::sim
