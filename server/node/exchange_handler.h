// ExchangeHandler: the receiver of the frames of Exchange streams (PartitionHost).
#pragma once

#include <cstdint>
#include <memory>

#include "common/tensor/frame.h"

namespace cairn {

// Flow-control credit for the bytes of a frame that is being handled; released when it is destroyed.
using Credit = std::shared_ptr<void>;

class ExchangeHandler {
 public:
  virtual ~ExchangeHandler() = default;
  // Hold `credit` as long as the frame waits in a queue. Must not block.
  virtual void OnFrame(uint64_t client, Frame frame, Credit credit) = 0;
  virtual void OnClientGone(uint64_t client) = 0;
};

}  // namespace cairn
