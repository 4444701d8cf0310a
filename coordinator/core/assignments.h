// Assignments: decides which worker computes which replica, and tells the workers. The choice of worker does not
// change a bit of the result.
//
// Not thread-safe; one core owns it. Invariants:
//   1. The assignment number of a job is raised, and stored, whenever a replica changes its worker.
//   2. A worker is sent its assignment only where it differs from the one that it is known to run, and only once all
//      primaries are ready in the present generation.
//   3. All replicas of a job run on one kind of device at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/component.h"
#include "coordinator/core/placement.h"

namespace cairn {

class Assignments : Component {
 public:
  explicit Assignments(Ground& ground) : Component(ground) {}

  // Places the replicas of a job that starts.
  void Place(Job& job, std::vector<WorkerCapacity> workers);
  // Moves replicas of dead workers to others. may_grow: replicas may also be spread over more workers.
  void Rebalance(Job& job, bool may_grow);
  // Moves one replica of the worst straggler to a worker that would finish it sooner.
  void RelieveStragglers(Job& job);
  // The worker is dead: the next process of that name is measured from scratch.
  void ForgetSpeedOf(const NodeName& worker);
  // Sends assignments to all workers that are not known to run what they should.
  void Send(Job& job);

 private:
  using ReplicaMoves = std::map<NodeName, std::map<NodeName, std::vector<int32_t>>>;

  const std::vector<const ClusterNode*>& FreeWorkers();
  std::vector<WorkerCapacity> WorkersFor(const Job& job, bool may_change_device);
  void SetOwners(Job& job, const std::vector<NodeName>& owners, const std::string& why = "");
  void NoteDevices(Job& job) const;
  void TellMoves(Job& job, const ReplicaMoves& moves, const std::string& why);
  void SendTo(const Job& job, ClusterNode& node, const std::vector<int32_t>& replicas);

  std::vector<const ClusterNode*> free_;                  // FreeWorkers, when
  std::optional<std::pair<uint64_t, uint64_t>> free_of_;  // nodes and replicas had changed so often
};

}  // namespace cairn
