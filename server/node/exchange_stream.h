// ExchangeStream: one call of the Exchange RPC. docs/architecture.md#the-walk-of-one-gradient
//
// Thread rule: Send, End and the release of credits from any thread; gRPC's callbacks on gRPC's threads. The stream
// lives until OnDone has run and the last reference is gone (the service's map, credits, senders). gRPC's rule: no
// operation may be started after Finish; Finish is started once, when no write is in progress. OutgoingFrames,
// StreamFlow and SnapshotPacer decide what it sends and when it reads.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/executor.h"
#include "common/rpc/assembler.h"
#include "common/tensor/frame.h"
#include "server/node/exchange_handler.h"
#include "server/node/outgoing_frames.h"
#include "server/node/snapshot_pacer.h"
#include "server/node/stream_flow.h"

namespace cairn {

// Shared by all streams of a ps; outlives them.
struct ExchangeShared {
  ExchangeHandler* handler = nullptr;
  ByteBudget* received = nullptr;  // requests that are being assembled or handled
  SnapshotPacer* pacer = nullptr;
  SerialExecutor* timer = nullptr;
  std::function<void(uint64_t client)> forget;
};

class ExchangeStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                       public std::enable_shared_from_this<ExchangeStream> {
 public:
  ExchangeStream(const ExchangeShared& shared, uint64_t client);

  void Start(std::shared_ptr<ExchangeStream> self);
  // frame: the answer to a delivered request, or a part of it.
  void Send(Frame frame);
  // Ends the stream with `status` once all queued frames have been sent.
  void End(grpc::Status status);

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void Deliver(Frame frame);
  void Refuse(const Frame& request);
  void GiveBack(size_t bytes);
  bool MayResumeRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // starting_reads_ prevents Finish until StartRead has returned.
  void StartReadUnlocked();
  // True: the caller has become the writer, and must call Pump.
  bool TakeWriting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The caller has taken writing_, so only it uses outgoing_. Writes the next chunk, finishes, or releases writing_.
  void Pump();
  // The time to wait before the next chunk.
  absl::Duration WaitToSend() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ResumeAfter(absl::Duration wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ExchangeShared& shared_;
  const uint64_t client_;
  FrameAssembler assembler_;              // used by reads only
  grpc::ByteBuffer incoming_, outgoing_;  // of the one read and the one write in progress
  size_t outgoing_bytes_ = 0;
  bool outgoing_snapshot_ = false;
  std::shared_ptr<ExchangeStream> self_;  // until OnDone

  absl::Mutex mutex_;
  StreamFlow flow_ ABSL_GUARDED_BY(mutex_);
  OutgoingFrames frames_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool resuming_ ABSL_GUARDED_BY(mutex_) = false;   // a timer is set for the next snapshot chunk
  int starting_reads_ ABSL_GUARDED_BY(mutex_) = 1;  // the first one in Start
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;     // writes cannot succeed
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called, or is about to be
  std::optional<grpc::Status> ending_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
