// Assignments: which worker computes which replica, and what workers are told of it. Who computes a replica changes no
// bit.
//
// Not thread-safe; one core owns it. Invariants:
//   1. The assignment number of a job is raised, and stored, whenever a replica changes its worker.
//   2. A worker is told what it computes where that, as far as is known, is news to it; nobody is told before all
//      primaries are ready in the present generation.
//   3. The replicas of a job are on one kind of device at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/core/component.h"
#include "coordinator/core/placement.h"

namespace cairn {

class Assignments : Component {
 public:
  explicit Assignments(const Ground& ground) : Component(ground) {}

  // The replicas of a job that starts.
  void Place(Job& job, std::vector<WorkerCapacity> workers);
  // Replicas of workers that are gone go to others. may_grow: they may be spread over more workers.
  void Rebalance(Job& job, bool may_grow);
  // One replica of the worst straggler goes to a worker that has it done sooner.
  void RelieveStragglers(Job& job);
  // The worker is gone; the next process of that name starts over.
  void ForgetSpeedOf(const NodeName& worker);
  // To every worker that, as far as is known, runs something else than it should.
  void Send(Job& job);

 private:
  using ReplicaMoves = std::map<NodeName, std::map<NodeName, std::vector<int32_t>>>;

  std::vector<WorkerCapacity> WorkersFor(const Job& job, bool may_change_device);
  void SetOwners(Job& job, const std::vector<NodeName>& owners, const std::string& why = "");
  void NoteDevices(Job& job) const;
  void TellMoves(Job& job, const ReplicaMoves& moves, const std::string& why);
};

}  // namespace cairn
