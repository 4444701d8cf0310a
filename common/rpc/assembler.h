// FrameSplitter and FrameAssembler: split whole frames into chunks of at most kFramePayloadBytesMax, and rejoin them.
//
// Not thread-safe: one of each belongs to one direction of one stream. Invariants of the assembler:
//   1. The tensors in progress are announced with at most bytes_max together, and are at most kAssemblerJoinsMax.
//   2. It returns only frames whose payload is complete: payload_offset == 0 and payload_total == payload.size().
//   3. Chunks of one request must agree in every identifying field, and arrive in order, without gaps.
//   4. Memory follows what has arrived, not what was announced: at most kAssemblerGrowth bytes for each that came.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/tensor/frame.h"
#include "common/tensor/frame_codec.h"

namespace cairn {

// Splits one whole frame into one or more chunks.
class FrameSplitter {
 public:
  explicit FrameSplitter(Frame whole, size_t chunk_bytes_max = kFramePayloadBytesMax)
      : whole_(std::move(whole)), chunk_bytes_max_(chunk_bytes_max) {}
  bool done() const { return done_; }
  // The next chunk, of at most this many bytes of payload. Not after done().
  Frame Next(size_t bytes_max);
  Frame Next() { return Next(chunk_bytes_max_); }
  size_t bytes_left() const { return whole_.payload.size() - offset_; }
  const Buffer& payload() const { return whole_.payload; }

 private:
  Frame whole_;
  size_t chunk_bytes_max_;
  size_t offset_ = 0;
  bool done_ = false;
};

// A limit on the bytes that many streams hold together. Thread-safe. Invariant: the bytes taken never exceed it, nor
// the limit that it is part of.
class ByteBudget {
 public:
  // whole: what is taken here is taken there too; it must outlive this one.
  explicit ByteBudget(size_t bytes_max, ByteBudget* whole = nullptr) : bytes_max_(bytes_max), whole_(whole) {}
  bool TryTake(size_t bytes) {
    size_t taken = taken_.load();
    do {
      if (bytes > bytes_max_ - taken) return false;
    } while (!taken_.compare_exchange_weak(taken, taken + bytes));
    if (whole_ == nullptr || whole_->TryTake(bytes)) return true;
    taken_.fetch_sub(bytes);
    return false;
  }
  void Give(size_t bytes) {
    taken_.fetch_sub(bytes);
    if (whole_ != nullptr) whole_->Give(bytes);
  }
  size_t taken() const { return taken_.load(); }
  size_t bytes_max() const { return bytes_max_; }

 private:
  const size_t bytes_max_;
  ByteBudget* const whole_;
  std::atomic<size_t> taken_{0};
};

class FrameAssembler {
 public:
  // `shared`: tensors in progress are charged to it as well; it must outlive the assembler.
  explicit FrameAssembler(size_t bytes_max, size_t tensor_bytes_max = kPartitionBytesMax, ByteBudget* shared = nullptr)
      : bytes_max_(bytes_max), tensor_bytes_max_(tensor_bytes_max), shared_(shared) {}
  ~FrameAssembler();

  // Returns the whole frame that this chunk completes, or nothing yet. The payload is a separate Buffer (the chunk's
  // bytes are copied once): cores keep it and write to it, and gRPC's read buffers are released at once.
  // A request that exceeds `shared` is returned without its payload, with the status RESOURCE_EXHAUSTED.
  // Errors: INVALID_ARGUMENT: the chunk does not fit; RESOURCE_EXHAUSTED: too many unfinished requests. After an
  // error the caller must end the stream.
  absl::StatusOr<std::optional<Frame>> Add(DecodedFrame chunk);

  size_t bytes_joining() const { return bytes_joining_; }  // memory
  size_t joins() const { return joins_.size(); }           // requests of which a part has arrived

 private:
  struct Join {
    Frame frame;  // payload: the tensor's beginning, filled up to `received`
    size_t received = 0;
    bool dropped = false;  // over the limit: its bytes are read and discarded
  };

  absl::Status CheckChunk(const DecodedFrame& chunk) const;
  // Makes room for `bytes` more, or drops the request.
  void Grow(Join& join, size_t bytes);
  void GiveBack(size_t bytes);

  const size_t bytes_max_, tensor_bytes_max_;
  ByteBudget* const shared_;
  size_t bytes_joining_ = 0, bytes_announced_ = 0;
  absl::flat_hash_map<uint64_t, Join> joins_;  // by request_id
};

}  // namespace cairn
