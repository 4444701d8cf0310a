// Reconciler: compares what a node reports that it has (in Hello, PartitionsReady or JobError) with what it should
// have.
//
// Not thread-safe; one core owns it. Invariant: a ps is told to drop partitions of a job that is not deleted only while
// another copy of each is there, or the job does not need them. It may be the ps that the job waits for, started under
// another name.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "coordinator/core/component.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/crash_loops.h"
#include "coordinator/core/endings.h"
#include "coordinator/core/job_runs.h"

namespace cairn {

class Reconciler : Component {
 public:
  Reconciler(Ground& ground, Endings& endings, Copies& copies, CrashLoops& crash_loops, JobRuns& runs)
      : Component(ground), endings_(endings), copies_(copies), crash_loops_(crash_loops), runs_(runs) {}

  void ReconcilePs(const Membership::Admission& admission, const v1::Hello& hello);
  void ReconcileWorker(const Membership::Admission& admission, const v1::Hello& hello);
  void OnPartitionsReady(const ClusterNode& node, const v1::PartitionsReady& ready);
  void OnJobError(const ClusterNode& node, const v1::JobError& error);
  void OnPsLost(const NodeName& ps);
  // Partitions that are kept aside are dropped once a copy is there; until then they are told of.
  void Tick();

 private:
  void DropOld(const Membership::Admission& admission, const v1::Hello& hello);
  bool KeepAside(ClusterNode& ps, const Job& job, const v1::HeldPartitions& held);
  bool Needed(const Job& job, const KeptAside& aside) const;
  void DropAside(const ClusterNode& ps, uint64_t id, Job* job);
  std::set<NodeName> TellAside(const ClusterNode& ps, Job& job, KeptAside& aside);
  void ReconcilePsJob(Job& job, const Membership::Admission& admission, const v1::HeldPartitions* held);
  void NoteLostMemory(Job& job, const ClusterNode& node, const v1::HeldPartitions* held);
  void TellRestart(const ClusterNode& worker);
  void LeavePsOut(Job& job, const ClusterNode& node, const std::string& message);

  Endings& endings_;
  Copies& copies_;
  CrashLoops& crash_loops_;
  JobRuns& runs_;
};

}  // namespace cairn
