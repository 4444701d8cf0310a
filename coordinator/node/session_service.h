// SessionService: nodes' Session streams, each a reactor that hands one message at a time to the driver and writes what
// the driver sends.
//
// Thread-safe. Invariants: 1. Each stream handles at most one message at a time and reads the next one after it: flow
// control slows down a node that sends too fast. 2. At most kSessionQueueBytesMax bytes wait to be sent to a node;
// beyond that its session ends.
#pragma once

#include "cairn/v1/cluster.grpc.pb.h"
#include "coordinator/core/limits.h"
#include "coordinator/node/cluster_driver.h"

namespace cairn {

class SessionService final : public v1::Coordinator::CallbackService {
 public:
  // The driver outlives the service's calls.
  explicit SessionService(ClusterDriver* driver) : driver_(driver) {}

  grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  ClusterDriver* const driver_;
};

}  // namespace cairn
