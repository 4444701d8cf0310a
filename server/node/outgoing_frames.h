// OutgoingFrames: the send queue of one Exchange stream, in chunks: answers first, snapshots after all of them.
//
// Not thread-safe; ExchangeStream guards it. A snapshot shares its bytes with the partition, and waits while anything
// else is queued: it delays a step by at most one chunk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
    size_t bytes = 0;       // to return to StreamFlow when it is sent
    int64_t queued_ns = 0;  // of the last chunk of a frame: as it was added
  };

  static bool IsSnapshot(const Frame& frame) { return frame.kind == v1::ExchangeFrame::IMAGE; }

  // queued_ns: when, if a trace wants to know; else 0.
  void Add(Frame frame, int64_t queued_ns = 0) {
    std::deque<Queued>& to = IsSnapshot(frame) ? snapshots_ : answers_;
    to.push_back({FrameSplitter(std::move(frame)), queued_ns});
  }
  bool empty() const { return answers_.empty() && snapshots_.empty(); }
  bool next_is_snapshot() const { return answers_.empty(); }
  // The size of the next chunk, with its overhead. bytes_max: as that of TakeNext.
  size_t NextBytes(size_t bytes_max = kFramePayloadBytesMax) const {
    return StreamFlow::kFrameOverheadBytes + std::min(queue().front().frame.bytes_left(), bytes_max);
  }
  // bytes_max: of payload.
  Chunk TakeNext(size_t bytes_max = kFramePayloadBytesMax) {
    std::deque<Queued>& from = next_is_snapshot() ? snapshots_ : answers_;
    Chunk chunk{from.front().frame.Next(bytes_max), next_is_snapshot()};
    chunk.bytes = chunk.frame.payload.size();
    if (from.front().frame.done()) {
      chunk.bytes += StreamFlow::kFrameOverheadBytes;
      chunk.queued_ns = from.front().queued_ns;
      from.pop_front();
    }
    return chunk;
  }
  void Clear() {
    answers_.clear();
    snapshots_.clear();
  }

 private:
  struct Queued {
    FrameSplitter frame;
    int64_t queued_ns = 0;
  };
  const std::deque<Queued>& queue() const { return next_is_snapshot() ? snapshots_ : answers_; }

  std::deque<Queued> answers_, snapshots_;
};

}  // namespace cairn
