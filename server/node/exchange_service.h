// ExchangeService: the Exchange RPC as whole frames in and whole frames out.
//
// Thread rule: Send and Shutdown from any thread. The handler is called on gRPC threads: frames of one client one after
// another, frames of different clients concurrently. Invariants:
//   1. A client's OnFrame calls all come before its OnClientGone, which comes once; a client number is never
//      reused.
//   2. The bytes that a client has in flight here are bounded (stream_flow.h). All streams together hold at most
//      `received_bytes_max` of received requests, complete or partial, those of one machine at most half of it: further
//      requests are answered with RESOURCE_EXHAUSTED. So is a stream beyond kExchangeStreamsOfPeerMax of its machine or
//      kExchangeStreamsMax. A stream that stops within a request is ended (kAssemblerStallSecondsMax).
//   3. A malformed frame ends its stream with INVALID_ARGUMENT; the other streams continue.
//   4. Snapshots (IMAGE frames) are sent after everything else on a stream, and during training limited to a share of
//      its bytes (snapshot_pacer.h), so that the cost of a checkpoint is spread over steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/executor.h"
#include "common/base/limits.h"
#include "common/base/trace.h"
#include "common/rpc/assembler.h"
#include "common/rpc/limits.h"
#include "common/tensor/frame.h"
#include "server/node/exchange_handler.h"
#include "server/node/snapshot_pacer.h"

namespace grpc {
class Service;
class Status;
}  // namespace grpc

namespace cairn {

class ExchangeStream;
class HandoverSocket;
struct ExchangeClient;
struct ExchangeShared;

class ExchangeService {
 public:
  explicit ExchangeService(ExchangeHandler* handler, size_t received_bytes_max = kReceivedBytesMax,
                           const SnapshotPace& pace = {},
                           absl::Duration stall_max = absl::Seconds(kAssemblerStallSecondsMax));
  ~ExchangeService();  // destroy it after the server with which it was registered

  // Gets the times of what is sent, where its job is traced. It outlives the service. Called before the first stream.
  void SetTrace(TraceRecorder* trace);
  // Where clients on this host get shared memory. Called before the first stream.
  void SetHandover(std::unique_ptr<HandoverSocket> handover);
  grpc::Service* service();
  // Queues a frame for the client; drops it if the client is gone.
  void Send(uint64_t client, Frame frame);
  // Accepts no more frames and streams, sends queued frames, then ends every stream with UNAVAILABLE. Returns when
  // all are gone, or after `grace` (the server's own stop then cancels the rest).
  void Shutdown(absl::Duration grace);
  size_t clients() const;
  size_t links() const;  // of the clients, those whose frames go through shared memory

 private:
  class Service;

  // A machine that has streams here.
  struct Peer {
    std::shared_ptr<ByteBudget> received;
    size_t streams = 0;
  };

  // status: not OK if the stream is to end with it.
  // client: without its id.
  std::shared_ptr<ExchangeStream> NewStream(ExchangeClient client, grpc::Status* status);
  void Forget(uint64_t client);
  void EndStalled();
  void EndRefused();  // of clients whose certificate has expired or was revoked

  ByteBudget received_;
  SnapshotPacer pacer_;
  std::unique_ptr<ExchangeShared> shared_;
  std::unique_ptr<Service> service_;
  mutable absl::Mutex mutex_;
  uint64_t next_client_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<uint64_t, std::shared_ptr<ExchangeStream>> streams_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  SerialExecutor timer_;  // last: ends before what it uses
};

}  // namespace cairn
