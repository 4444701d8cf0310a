// Simulation: one run of a whole cluster on virtual time: coordinator, ps, workers, one job, faults, checks.
//
// It drives the cores that the daemons drive (ClusterCore, PartitionCore with Persistence, ReplicaCore). What the nodes add in production (gRPC,
// threads, RocksDB) is replaced by streams that delay and break, one thread, and stores that survive a crash.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/checkers.h"
#include "tests/sim/job.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace cairn::sim {

// Defects that a run can be given, to show that the checkers see them. Each lives in the simulator, not in the cores.
enum class PlantedBug {
  kNone,
  kReplyBeforePersist,    // a crash takes the last log entry, though the worker was told of it
  kForgetSequences,       // a restarted ps has an empty exactly-once table (asynchronous jobs)
  kAddInOrderOfArrival,   // the worker adds its replicas without the tree
  kStaleValues,           // a replica computes with the values of the step before
  kSkipExamples,          // a replica that moved goes on one step further
  kLoseJobsOnRestart,     // the coordinator's store forgets jobs
};
const char* Name(PlantedBug bug);

struct Options {
  uint64_t seed = 1;
  bool trace = false;
  PlantedBug bug = PlantedBug::kNone;
};

struct Result {
  std::string violation;  // empty: every promise held
  uint64_t events = 0;
  double virtual_seconds = 0;
  int crashes = 0;
  std::string summary;  // the job and the faults, in a line
};

Result Simulate(const Options& options);

}  // namespace cairn::sim
