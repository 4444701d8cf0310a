// ExchangeService: the Exchange RPC as whole frames in and whole frames out.
//
// Thread rule: Send and Shutdown from any thread. The handler is called on gRPC threads: frames of one client one after
// another, frames of different clients at the same time. Invariants:
//   1. A client's OnFrame calls all come before its OnClientGone, which comes once; a client number is never used again.
//   2. Bytes that a client has under way here (frames not yet let go by the handler, and answers not yet sent) pause its
//      reads beyond kStreamHandlingBytesMax (waiting for partitions) and kStreamQueueBytesMax (waiting to be sent).
//      Answers go on being sent, so that a client that reads its answers always gets further.
//      All streams together hold at most `received_bytes_max` of received requests, whole or in part: what comes beyond
//      is answered with RESOURCE_EXHAUSTED.
//   3. What is no frame ends the stream with INVALID_ARGUMENT; the other streams go on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/limits.h"
#include "common/rpc/assembler.h"
#include "common/tensor/frame.h"

namespace grpc {
class Service;
}

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

class ExchangeService {
 public:
  explicit ExchangeService(ExchangeHandler* handler, size_t received_bytes_max = kReceivedBytesMax);
  ~ExchangeService();  // after the server that it was registered with

  grpc::Service* service();
  // Queues a frame for the client; dropped where the client is gone.
  void Send(uint64_t client, Frame frame);
  // Takes no more frames and streams, sends what is queued, then ends every stream with UNAVAILABLE. Returns when
  // all are gone, or after `grace` (the server's own stop then cancels the rest).
  void Shutdown(absl::Duration grace);
  size_t clients() const;

 private:
  class Stream;
  class Service;

  void Forget(uint64_t client);

  ExchangeHandler* const handler_;
  ByteBudget received_;  // of all streams: being joined, or being handled
  std::unique_ptr<Service> service_;
  mutable absl::Mutex mutex_;
  uint64_t next_client_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
