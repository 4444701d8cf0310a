// The streams between simulated nodes. A stream delivers until it breaks; what was under way then is lost.
//
// Requests of the data plane may overtake one another and arrive twice; control messages arrive in order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "cairn/v1/cluster.pb.h"
#include "common/tensor/frame.h"
#include "coordinator/events.h"
#include "tests/sim/world.h"

namespace cairn::sim {

class SimPs;
class SimWorker;

// One Exchange stream: a worker's process to a ps' process.
struct Exchange {
  uint64_t token = 0;  // PartitionCore's client
  bool open = true;
  SimWorker* worker = nullptr;
  SimPs* ps = nullptr;
  uint64_t next_request = 0;
  std::map<uint64_t, uint64_t> outstanding;  // request_id -> the worker core's request
};

// One Session stream: a node's process to the coordinator's.
struct Session {
  SessionToken token;
  bool open = true;
  std::function<void(const v1::CoordinatorMessage&)> to_node;
  std::function<void()> node_closed;
  absl::Time up_busy_until, down_busy_until;  // keeps the order in each direction
};

// What a message looks like after it crossed the wire: bytes of its own.
inline Frame CopyOverWire(const Frame& frame) {
  Frame copy = frame;
  copy.payload = Buffer::CopyOf(frame.payload.data(), frame.payload.size());
  return copy;
}

}  // namespace cairn::sim
