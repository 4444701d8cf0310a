// Simulation: one run of a whole cluster on virtual time: coordinators, ps, workers, one job, faults, checks.
//
// It runs what the daemons run: PartitionHost, ClusterDriver and ReplicaDriver with all below them. What the nodes add
// in production (gRPC, threads, RocksDB, etcd) is replaced by streams that delay and break, executors on virtual time,
// and stores that survive a crash.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cairn::sim {

// Defects that a run can be given, to show that the checkers see them. Each lives in the simulator, not in the cores.
enum class PlantedBug {
  kNone,
  kReplyBeforePersist,   // a crash takes the last log entry, though the worker was told of it
  kForgetSequences,      // a restarted ps has an empty exactly-once table (asynchronous jobs)
  kAddInOrderOfArrival,  // the worker adds its replicas without the tree
  kStaleValues,          // a replica computes with the values of the step before
  kSkipExamples,         // a replica that moved takes the examples of the next step
  kLoseJobsOnRestart,    // the coordinator's store forgets jobs
  kGoOnAlone,            // a primary whose link to a backup breaks continues without it
  kBelieveUnconfirmed,   // a primary takes an update for confirmed when it has sent it
  kNoSync,               // the ps' store never syncs, though the job asks for it
  kNoRetry,              // a worker forgets a request whose stream broke
  kLeakRequests,         // a connection keeps every request that was answered
  kMixedCut,             // the chief takes every partition at the version that it happens to have
  kForgetTables,         // a checkpoint is restored without its exactly-once tables (asynchronous jobs)
  kForgetSlots,          // a checkpoint is restored without the optimizer's state
  kRemoveNewest,         // the chief removes all checkpoints but the best
  kDropTooMany,          // a ps closes a step without one replica more than backup_replicas
  kIgnoreDiskErrors,     // a ps takes what its full disk refused for written
  kReportEarly,          // a primary says of a new backup that it has caught up when it has not
  kForgetGate,           // a worker does not wait at the end of an epoch
  kSaveNewest,           // the chief makes a model file of the newest checkpoint, not of the one that was asked for
  kRestoreNewest,        // likewise a worker that restores the best epoch's weights
  kHideFailure,          // the chief does not say that it could not write a checkpoint
  kHalfGroup,            // with local_sync: a replica of a group adds nothing
  kForgetScale,          // a restarted ps begins with the first loss scale
  kLoseFigures,          // a restarted ps begins without the figures of the updates that it has
  kStayAhead,            // a ps keeps in memory what it is to take back to an earlier version
  kSayKept,              // a ps says that what the job ends with is on its disk before it is
  kForgetDevice,         // a worker that was started again says no more that it has a GPU
  kSkipAlone,            // one partition leaves a step out that is finite
  kWrongFactor,          // with backup_replicas: gradients are clipped by another factor than their norms give
  kPersistLate,          // a ps carries out what waits for a write before the write has reached its store
  kLoseWakeup,           // what is posted to a thread of a ps while that one is busy is lost now and then
  kLoseTimer,            // a timer that a worker's core asked for does not run now and then
  kStoreLate,            // a coordinator carries out what waits for a write before the write has reached its store
  kMixStreams,           // a new stream to a ps takes the answers to requests of an old one, and ends with it
};
const char* Name(PlantedBug bug);
const std::vector<PlantedBug>& AllBugs();  // without kNone

struct Options {
  uint64_t seed = 1;
  bool trace = false;
  PlantedBug bug = PlantedBug::kNone;
  // Only what this checker says counts ("acknowledged", "history", ...); empty: all.
  std::string checker;
};

struct Result {
  std::string violation;  // empty: every promise held
  uint64_t events = 0;
  double virtual_seconds = 0;
  double longest_wait_seconds = 0;  // without a step, after the faults
  int faults = 0;
  std::string summary;  // the job and the faults, in a line
  // The planted defect could not act: it needs a link to a backup that breaks, a model file, or a coordinator that is
  // killed within a write, and there was none.
  bool idle = false;
};

Result Simulate(const Options& options);

}  // namespace cairn::sim
