// ExchangeStream: one call of the Exchange RPC. docs/architecture.md#the-walk-of-one-gradient
//
// Thread rule: Send, End and the release of credits from any thread; gRPC's callbacks on its own. It lives until OnDone
// has run and nobody holds a reference (the service's map, credits, senders). gRPC's rule: no operation may be started
// after Finish; Finish is started once, when nobody writes. What it sends and when it reads is decided by
// OutgoingFrames, StreamFlow and SnapshotPacer.
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

// What all streams of a ps share; outlives them.
struct ExchangeShared {
  ExchangeHandler* handler = nullptr;
  ByteBudget* received = nullptr;  // being joined, or being handled
  SnapshotPacer* pacer = nullptr;
  SerialExecutor* timer = nullptr;
  std::function<void(uint64_t client)> forget;
};

class ExchangeStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                       public std::enable_shared_from_this<ExchangeStream> {
 public:
  ExchangeStream(const ExchangeShared& shared, uint64_t client);

  void Start(std::shared_ptr<ExchangeStream> self);
  // Every frame sent is the one answer to a request delivered, or a part of it.
  void Send(Frame frame);
  // Ends the stream with `status` once what is queued has been sent.
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
  // starting_reads_ keeps Finish away until StartRead has returned.
  void StartReadUnlocked();
  // True: the caller writes, and is to call Pump.
  bool TakeWriting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The caller has taken writing_, and so alone uses outgoing_. Writes the next chunk, or finishes, or gives it up.
  void Pump();
  // Before the next chunk.
  absl::Duration WaitToSend() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ResumeAfter(absl::Duration wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ExchangeShared& shared_;
  const uint64_t client_;
  FrameAssembler assembler_;              // reads only
  grpc::ByteBuffer incoming_, outgoing_;  // of the one read and the one write
  size_t outgoing_bytes_ = 0;
  bool outgoing_snapshot_ = false;
  std::shared_ptr<ExchangeStream> self_;  // until OnDone

  absl::Mutex mutex_;
  StreamFlow flow_ ABSL_GUARDED_BY(mutex_);
  OutgoingFrames frames_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool resuming_ ABSL_GUARDED_BY(mutex_) = false;   // the snapshot's turn comes
  int starting_reads_ ABSL_GUARDED_BY(mutex_) = 1;  // the first: Start
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;     // writes cannot succeed
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called, or is about to be
  std::optional<grpc::Status> ending_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
