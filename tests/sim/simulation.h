// Simulation: one run of a whole cluster on virtual time: coordinators, ps, workers, one job, faults, checks.
//
// It runs the code of the daemons: PartitionHost, ClusterDriver and ReplicaDriver with all below them. The nodes' parts
// in production (gRPC, threads, RocksDB, etcd) are replaced by streams that delay and break, executors on virtual time,
// and stores that survive a crash.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cairn::sim {

// Defects that a run can be given, to show that the checkers find them. Each is in the simulator, not in the cores.
enum class PlantedBug {
  kNone,
  kReplyBeforePersist,   // a crash loses the last log entry, although it was acknowledged to the worker
  kForgetSequences,      // a restarted ps has an empty exactly-once table (asynchronous jobs)
  kAddInOrderOfArrival,  // the worker adds its replicas without the tree
  kStaleValues,          // a replica computes with the values of the step before
  kSkipExamples,         // a replica that moved uses the examples of the next step
  kLoseJobsOnRestart,    // the coordinator's store forgets jobs
  kGoOnAlone,            // a primary whose link to a backup breaks continues without it
  kBelieveUnconfirmed,   // a primary considers an update confirmed once it is sent
  kNoSync,               // the ps' store never syncs, although the job asks for it
  kNoRetry,              // a worker forgets a request whose stream broke
  kLeakRequests,         // a connection keeps every request that was answered
  kMixedCut,             // the chief snapshots every partition at its current version, whatever that is
  kForgetTables,         // a checkpoint is restored without its exactly-once tables (asynchronous jobs)
  kForgetSlots,          // a checkpoint is restored without the optimizer's state
  kRemoveNewest,         // the chief removes all checkpoints but the best
  kDropTooMany,          // a ps closes a step without one replica more than backup_replicas
  kIgnoreDiskErrors,     // a ps considers writes done that its full disk refused
  kReportEarly,          // a primary reports that a new backup has caught up when it has not
  kForgetGate,           // a worker does not wait at the end of an epoch
  kSaveNewest,           // the chief makes a model file from the newest checkpoint, not from the requested one
  kRestoreNewest,        // likewise a worker that restores the best epoch's weights
  kHideFailure,          // the chief does not report that it could not write a checkpoint
  kHalfGroup,            // with local_sync: a replica of a group adds nothing
  kForgetScale,          // a restarted ps starts with the initial loss scale
  kLoseFigures,          // a restarted ps starts without the figures of its updates
  kStayAhead,            // a ps keeps the state in memory that it should roll back to an earlier version
  kSayKept,              // a ps reports that the job's final values are on its disk before they are
  kForgetDevice,         // a restarted worker no longer reports that it has a GPU
  kSkipAlone,            // one partition skips a step that is finite
  kWrongFactor,          // with backup_replicas: gradients are clipped by a factor other than that of their norms
  kPersistLate,          // a ps carries out effects before the write that they depend on has reached its store
  kLoseWakeup,           // a closure posted to a busy thread of a ps is sometimes lost
  kLoseTimer,            // a timer that a worker's core asked for sometimes does not run
  kStoreLate,            // a coordinator carries out effects before the write that they depend on has reached its store
  kMixStreams,           // a new stream to a ps gets the answers to requests of an old one, and ends with it
};
const char* Name(PlantedBug bug);
const std::vector<PlantedBug>& AllBugs();  // without kNone

struct Options {
  uint64_t seed = 1;
  bool trace = false;
  PlantedBug bug = PlantedBug::kNone;
  // Only violations found by this checker count ("acknowledged", "history", ...); empty: all.
  std::string checker;
};

struct Result {
  std::string violation;  // empty: every promise held
  uint64_t events = 0;
  double virtual_seconds = 0;
  double longest_wait_seconds = 0;  // the longest time without a step after the faults
  int faults = 0;
  std::string summary;  // the job and the faults, in one line
  // The planted defect could not act: it needs a broken link to a backup, a model file, or a coordinator that is
  // killed during a write, and there was none.
  bool idle = false;
};

Result Simulate(const Options& options);

}  // namespace cairn::sim
