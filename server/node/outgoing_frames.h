// OutgoingFrames: the send queue of one Exchange stream, in chunks: answers first, snapshots after all of them.
//
// Not thread-safe; ExchangeStream guards it. A snapshot shares its bytes with the partition, and waits while anything
// else is queued: it delays a step by at most one chunk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>

#include "common/base/limits.h"
#include "common/rpc/assembler.h"
#include "server/node/stream_flow.h"

namespace cairn {

class OutgoingFrames {
 public:
  struct Chunk {
    Frame frame;
    bool snapshot = false;
    size_t bytes = 0;  // to return to StreamFlow when it is sent
  };

  static bool IsSnapshot(const Frame& frame) { return frame.kind == v1::ExchangeFrame::IMAGE; }

  void Add(Frame frame) { (IsSnapshot(frame) ? snapshots_ : answers_).emplace_back(std::move(frame)); }
  bool empty() const { return answers_.empty() && snapshots_.empty(); }
  bool next_is_snapshot() const { return answers_.empty(); }
  // The size of the next chunk, with its overhead.
  size_t NextBytes() const {
    return StreamFlow::kFrameOverheadBytes + std::min(queue().front().bytes_left(), kFramePayloadBytesMax);
  }
  Chunk TakeNext() {
    std::deque<FrameSplitter>& from = next_is_snapshot() ? snapshots_ : answers_;
    Chunk chunk{from.front().Next(), next_is_snapshot(), 0};
    chunk.bytes = chunk.frame.payload.size();
    if (from.front().done()) {
      chunk.bytes += StreamFlow::kFrameOverheadBytes;
      from.pop_front();
    }
    return chunk;
  }
  void Clear() {
    answers_.clear();
    snapshots_.clear();
  }

 private:
  const std::deque<FrameSplitter>& queue() const { return next_is_snapshot() ? snapshots_ : answers_; }

  std::deque<FrameSplitter> answers_, snapshots_;
};

}  // namespace cairn
