// SessionService: nodes' Session streams, each a reactor that hands one message at a time to the driver and writes what
// the driver sends.
//
// Thread-safe. Invariants: 1. Each stream handles at most one message at a time and reads the next one after it: flow
// control slows down a node that sends too fast. 2. At most kSessionQueueBytesMax bytes wait to be sent to a node;
// beyond that its session ends. 3. At most kSessionsOfMachineMax streams are open from one machine.
#pragma once

#include <limits>
#include <memory>
#include <string>

#include "cairn/v1/cluster.grpc.pb.h"
#include "coordinator/core/limits.h"
#include "coordinator/node/audit_log.h"
#include "coordinator/node/cluster_driver.h"
#include "coordinator/node/machine_places.h"

namespace cairn {

// What a stream is opened through. Both outlive it.
struct SessionDoor {
  ClusterDriver* driver;
  AuditLog* audit;  // null: none

  // The events of the cluster and the audit log say that a node was refused for its certificate. name: as it calls
  // itself. Thread-safe.
  void Refuse(const grpc::CallbackServerContext& context, const std::string& name, const absl::Status& why) const;
};

class SessionService final : public v1::Coordinator::CallbackService {
 public:
  explicit SessionService(const SessionDoor& door) : door_(door) {}

  grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  const SessionDoor door_;
  // All of them are bounded by the nodes that there may be.
  MachinePlaces places_{{"sessions of nodes are open", std::numeric_limits<size_t>::max(), kSessionsOfMachineMax}};
};

}  // namespace cairn
