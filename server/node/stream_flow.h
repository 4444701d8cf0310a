// StreamFlow: flow control of one Exchange stream: the bytes in flight, whether it may read, and when it may end.
//
// Not thread-safe; ExchangeStream guards it. Invariants:
//   1. Reads pause while more than kStreamHandlingBytesMax of requests wait for partitions, or while more than
//      kStreamQueueBytesMax of answers or kStreamBulkBytesMax of snapshots wait to be sent. They resume below these
//      limits; for answers, below half of theirs. Answers are still sent meanwhile, so that a client that reads them
//      always makes progress.
//   2. A client that has closed its side gets the answers to all its requests before the stream ends.
#pragma once

#include <cstddef>
#include <utility>

#include "common/base/limits.h"

namespace cairn {

class StreamFlow {
 public:
  static constexpr size_t kFrameOverheadBytes = 512;  // counted for each frame in addition to its payload

  // ---- requests ----
  void Received(size_t bytes) { handling_bytes_ += bytes; }
  void Handled(size_t bytes) { handling_bytes_ -= bytes; }
  void Asked() { ++unanswered_; }

  // ---- answers ----
  void Queued(bool snapshot, size_t bytes) { (snapshot ? snapshot_bytes_ : answer_bytes_) += bytes; }
  void Sent(bool snapshot, size_t bytes) { (snapshot ? snapshot_bytes_ : answer_bytes_) -= bytes; }
  // A request was answered completely.
  void Answered() {
    if (unanswered_ > 0) --unanswered_;
  }
  // The client closed its side.
  void HalfClose() { half_closed_ = true; }
  bool all_answered() const { return half_closed_ && unanswered_ == 0; }

  // After a read: whether the next one may begin. False: MayResume tells when.
  bool MayRead() {
    paused_ = handling_bytes_ > kStreamHandlingBytesMax || answer_bytes_ > kStreamQueueBytesMax ||
              snapshot_bytes_ > kStreamBulkBytesMax;
    return !paused_;
  }
  // True once, if reads were paused and may continue.
  bool MayResume() {
    if (!paused_ || handling_bytes_ > kStreamHandlingBytesMax || answer_bytes_ > kStreamQueueBytesMax / 2 ||
        snapshot_bytes_ > kStreamBulkBytesMax) {
      return false;
    }
    paused_ = false;
    return true;
  }

 private:
  size_t handling_bytes_ = 0;
  size_t answer_bytes_ = 0;
  size_t snapshot_bytes_ = 0;
  int unanswered_ = 0;
  bool half_closed_ = false;
  bool paused_ = false;
};

}  // namespace cairn
