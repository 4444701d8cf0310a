// cairn-sim: runs whole jobs on virtual time under faults and checks the promises of the system after each.
//
//   cairn-sim --seeds N [--first S]     N runs; prints the seed and the violation of each that fails
//   cairn-sim --seed S                  one run with a readable trace
//   cairn-sim --seeds N --bug NAME      with a planted defect: how many runs it takes to see it

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>

#include "tests/sim/simulation.h"

int main(int argc, char** argv) {
  using cairn::sim::PlantedBug;
  CLI::App app{"Runs whole jobs on virtual time under faults and checks the promises of the system after each."};
  uint64_t seeds = 1000, first = 1, seed = 0;
  std::string bug_name = "none";
  app.add_option("--seeds", seeds, "How many runs");
  app.add_option("--first", first, "The first seed");
  CLI::Option* one = app.add_option("--seed", seed, "One run, with a trace");
  app.add_option("--bug", bug_name, "Plant a defect: reply-before-persist, forget-sequences, add-in-order-of-arrival, stale-values, "
                                    "skip-examples, lose-jobs-on-restart");
  CLI11_PARSE(app, argc, argv);

  PlantedBug bug = PlantedBug::kNone;
  for (int b = 0; b <= static_cast<int>(PlantedBug::kLoseJobsOnRestart); ++b) {
    if (bug_name == Name(static_cast<PlantedBug>(b))) bug = static_cast<PlantedBug>(b);
  }
  if (bug_name != Name(bug)) {
    std::fprintf(stderr, "--bug %s: no such defect\n", bug_name.c_str());
    return 2;
  }

  if (one->count() > 0) {
    const auto result = cairn::sim::Simulate({seed, true, bug});
    std::printf("%s\n%s\n", result.summary.c_str(), result.violation.empty() ? "every promise held" : result.violation.c_str());
    return result.violation.empty() ? 0 : 1;
  }
  const auto begin = std::chrono::steady_clock::now();
  uint64_t failed = 0, events = 0;
  double virtual_seconds = 0;
  int64_t crashes = 0;
  for (uint64_t s = first; s < first + seeds; ++s) {
    const auto result = cairn::sim::Simulate({s, false, bug});
    events += result.events;
    virtual_seconds += result.virtual_seconds;
    crashes += result.crashes;
    if (result.violation.empty()) continue;
    ++failed;
    std::printf("seed %llu: %s (%s)\n", static_cast<unsigned long long>(s), result.violation.c_str(), result.summary.c_str());
    if (bug != PlantedBug::kNone || failed >= 20) break;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%llu seeds from %llu: %llu violations; %llu events, %lld crashes, %.0f virtual s in %.1f s: %.0f seeds an hour\n",
              static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(failed), static_cast<unsigned long long>(events), static_cast<long long>(crashes),
              virtual_seconds, seconds, seeds / seconds * 3600);
  return failed == 0 ? 0 : 1;
}
