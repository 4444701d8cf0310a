// ExchangeHandler: whom the frames of Exchange streams go to (PartitionHost).
#pragma once

#include <cstdint>
#include <memory>

#include "common/tensor/frame.h"

namespace cairn {

// Bytes of a frame that is being handled; given back when it is destroyed.
using Credit = std::shared_ptr<void>;

class ExchangeHandler {
 public:
  virtual ~ExchangeHandler() = default;
  // Keep `credit` as long as the frame waits in a queue. Must not block.
  virtual void OnFrame(uint64_t client, Frame frame, Credit credit) = 0;
  virtual void OnClientGone(uint64_t client) = 0;
};

}  // namespace cairn
