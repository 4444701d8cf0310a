// ExchangeService: the Exchange RPC as whole frames in and whole frames out.
//
// Thread rule: Send and Shutdown from any thread. The handler is called on gRPC threads: frames of one client one after
// another, frames of different clients at the same time. Invariants:
//   1. A client's OnFrame calls all come before its OnClientGone, which comes once; a client number is never used
//      again.
//   2. Bytes that a client has under way here (frames not yet let go by the handler, and answers not yet sent) pause
//      its reads beyond kStreamHandlingBytesMax (waiting for partitions) and kStreamQueueBytesMax (waiting to be sent).
//      Answers go on being sent, so that a client that reads its answers always gets further. All streams together hold
//      at most `received_bytes_max` of received requests, whole or in part: what comes beyond is answered with
//      RESOURCE_EXHAUSTED.
//   3. What is no frame ends the stream with INVALID_ARGUMENT; the other streams go on.
//   4. Snapshots (IMAGE frames) go out after all else that a stream has to send, and while there is training as a share
//      of its bytes (SnapshotPace): what a checkpoint costs is spread over steps. A stream that ends is not held back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/executor.h"
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

// What all streams together send of snapshots while there is other traffic. A larger share: a checkpoint is written
// sooner, and takes more of the processor and the network from each step beside it. At 1/16 the state of a job with
// momentum and two workers takes sixteen steps.
struct SnapshotPace {
  size_t free_bytes = 1 << 20;                   // the first ones of a checkpoint: a small model's are written at once
  double share = 1.0 / 16;                       // bytes of snapshots for each byte of anything else
  double bytes_per_second_min = 8 << 20;         // however little else there is
  absl::Duration idle_after = absl::Seconds(1);  // without other traffic for so long: as fast as can be
};

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
  class Stream;
  class Service;

  void Forget(uint64_t client);
  // What is sent beside snapshots earns them their share, while there are any.
  void NoteTraffic(size_t bytes);
  // Zero: the snapshot's next chunk may be sent now, and counts. Else: ask again after so long.
  absl::Duration WaitForSnapshot(size_t bytes);

  ExchangeHandler* const handler_;
  ByteBudget received_;  // of all streams: being joined, or being handled
  std::unique_ptr<Service> service_;
  mutable absl::Mutex mutex_;
  uint64_t next_client_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  const SnapshotPace pace_;
  absl::Mutex pace_mutex_;
  absl::Time traffic_at_ ABSL_GUARDED_BY(pace_mutex_) = absl::InfinitePast();  // when anything but a snapshot was sent
  absl::Time wanted_at_ ABSL_GUARDED_BY(pace_mutex_) = absl::InfinitePast();   // when a snapshot's turn was asked for
  double snapshot_bytes_ ABSL_GUARDED_BY(pace_mutex_) = 0;                     // that may be sent
  absl::Time snapshot_due_ ABSL_GUARDED_BY(pace_mutex_) = absl::InfinitePast();  // a chunk may go then in any case
  SerialExecutor pacer_;                                                         // last: ends before what it uses
};

}  // namespace cairn
