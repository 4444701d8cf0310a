// cairn-sim: runs whole jobs on virtual time under faults and checks the promises of the system after each.
//
//   cairn-sim --seeds N [--first S]     N runs; prints the seed and the violation of each that fails
//   cairn-sim --seed S                  one run with a readable trace
//   cairn-sim --seeds N --bug NAME      with a planted defect: how many runs it takes to see it
//   ... --checker NAME                  only what this checker says counts
//   cairn-sim --nodes N                 membership, placement and heartbeats of a large cluster: events a second

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "tests/sim/scale.h"
#include "tests/sim/simulation.h"

namespace {

using cairn::sim::PlantedBug;

int RunOne(uint64_t seed, PlantedBug bug, const std::string& checker) {
  const auto result = cairn::sim::Simulate({seed, true, bug, checker});
  std::printf("%s\n%s\n", result.summary.c_str(),
              result.violation.empty() ? "every promise held" : result.violation.c_str());
  return result.violation.empty() ? 0 : 1;
}

int RunMany(uint64_t first, uint64_t seeds, PlantedBug bug, const std::string& checker) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto begin = std::chrono::steady_clock::now();
  uint64_t failed = 0, ran = 0, events = 0;
  double virtual_seconds = 0, longest_wait = 0;
  int64_t faults = 0;
  for (uint64_t s = first; s < first + seeds; ++s) {
    const auto result = cairn::sim::Simulate({s, false, bug, checker});
    ++ran;
    events += result.events;
    virtual_seconds += result.virtual_seconds;
    longest_wait = std::max(longest_wait, result.longest_wait_seconds);
    faults += result.faults;
    if (result.violation.empty()) continue;
    ++failed;
    std::printf("seed %llu: %s (%s)\n", static_cast<unsigned long long>(s), result.violation.c_str(),
                result.summary.c_str());
    if (bug != PlantedBug::kNone || failed >= 20) break;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf(
      "%llu seeds from %llu: %llu violations; %llu events, %lld faults, %.0f virtual s, at most %.1f s without a step "
      "after the "
      "faults; %.1f s: %.0f seeds an hour\n",
      static_cast<unsigned long long>(ran), static_cast<unsigned long long>(first),
      static_cast<unsigned long long>(failed), static_cast<unsigned long long>(events), static_cast<long long>(faults),
      virtual_seconds, longest_wait, seconds, static_cast<double>(ran) / seconds * 3600);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs whole jobs on virtual time under faults and checks the promises of the system after each."};
  uint64_t seeds = 1000, first = 1, seed = 0;
  cairn::sim::ScaleOptions scale;
  scale.nodes = 0;
  std::string bug_name, bug_names, checker;
  for (PlantedBug b : cairn::sim::AllBugs()) bug_names += std::string(bug_names.empty() ? "" : ", ") + Name(b);
  app.add_option("--seeds", seeds, "How many runs");
  app.add_option("--first", first, "The first seed");
  CLI::Option* one = app.add_option("--seed", seed, "One run, with a trace");
  app.add_option("--bug", bug_name, "Plant a defect: " + bug_names);
  app.add_option("--checker", checker,
                 "Listen to one checker only: exactly once, reference, acknowledged, history, epoch, checkpoint, "
                 "callbacks, bounds, progress, devices");
  app.add_option("--nodes", scale.nodes, "A cluster of so many nodes instead, for its figures")
      ->check(CLI::Range(10, 4000));
  app.add_option("--jobs", scale.jobs, "With --nodes: so many jobs")->check(CLI::Range(1, 10000));
  app.add_flag("--small", scale.small, "With --nodes: each of one replica and few partitions");
  app.add_option("--slots", scale.slots, "With --nodes: of a worker")->check(CLI::Range(1, 1000));
  app.add_option("--min-workers", scale.min_workers, "With --nodes: of each job");
  CLI11_PARSE(app, argc, argv);

  PlantedBug bug = PlantedBug::kNone;
  for (PlantedBug b : cairn::sim::AllBugs()) {
    if (bug_name == Name(b)) bug = b;
  }
  if (!bug_name.empty() && bug == PlantedBug::kNone) {
    std::fprintf(stderr, "--bug %s: no such defect; there are %s\n", bug_name.c_str(), bug_names.c_str());
    return 2;
  }
  if (scale.nodes > 0) {
    scale.seed = first;
    const cairn::sim::ScaleResult result = cairn::sim::SimulateScale(scale);
    std::printf("%s\n", result.text.c_str());
    return result.violation.empty() ? 0 : 1;
  }
  return one->count() > 0 ? RunOne(seed, bug, checker) : RunMany(first, seeds, bug, checker);
}
