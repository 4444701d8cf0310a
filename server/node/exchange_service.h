// ExchangeService: the Exchange RPC as whole frames in and whole frames out.
//
// Thread rule: Send and Shutdown from any thread. The handler is called on gRPC threads: frames of one client one after
// another, frames of different clients at the same time. Invariants:
//   1. A client's OnFrame calls all come before its OnClientGone, which comes once; a client number is never used
//      again.
//   2. Bytes that a client has under way here are bounded (stream_flow.h). All streams together hold at most
//      `received_bytes_max` of received requests, whole or in part: what comes beyond is answered with
//      RESOURCE_EXHAUSTED.
//   3. What is no frame ends the stream with INVALID_ARGUMENT; the other streams go on.
//   4. Snapshots (IMAGE frames) go out after all else that a stream has to send, and while there is training as a share
//      of its bytes (snapshot_pacer.h): what a checkpoint costs is spread over steps.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/executor.h"
#include "common/base/limits.h"
#include "common/rpc/assembler.h"
#include "common/tensor/frame.h"
#include "server/node/exchange_handler.h"
#include "server/node/snapshot_pacer.h"

namespace grpc {
class Service;
}

namespace cairn {

class ExchangeStream;
struct ExchangeShared;

class ExchangeService {
 public:
  explicit ExchangeService(ExchangeHandler* handler, size_t received_bytes_max = kReceivedBytesMax,
                           const SnapshotPace& pace = {});
  ~ExchangeService();  // after the server that it was registered with

  grpc::Service* service();
  // Queues a frame for the client; dropped where the client is gone.
  void Send(uint64_t client, Frame frame);
  // Takes no more frames and streams, sends what is queued, then ends every stream with UNAVAILABLE. Returns when
  // all are gone, or after `grace` (the server's own stop then cancels the rest).
  void Shutdown(absl::Duration grace);
  size_t clients() const;

 private:
  class Service;

  std::shared_ptr<ExchangeStream> NewStream(bool* stopping);
  void Forget(uint64_t client);

  ByteBudget received_;
  SnapshotPacer pacer_;
  std::unique_ptr<ExchangeShared> shared_;
  std::unique_ptr<Service> service_;
  mutable absl::Mutex mutex_;
  uint64_t next_client_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<uint64_t, std::shared_ptr<ExchangeStream>> streams_ ABSL_GUARDED_BY(mutex_);
  SerialExecutor timer_;  // last: ends before what it uses
};

}  // namespace cairn
