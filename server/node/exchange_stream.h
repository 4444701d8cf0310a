// ExchangeStream: one call of the Exchange RPC. docs/architecture.md#the-walk-of-one-gradient
//
// Thread rule: Send, End and the release of credits from any thread; gRPC's callbacks on gRPC's threads. The stream
// lives until OnDone has run and the last reference is gone (the service's map, credits, senders). StreamLife decides
// which operations may be started, OutgoingFrames, StreamFlow and SnapshotPacer what it sends and when it reads.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/executor.h"
#include "common/rpc/assembler.h"
#include "common/tensor/frame.h"
#include "server/node/exchange_handler.h"
#include "server/node/outgoing_frames.h"
#include "server/node/snapshot_pacer.h"
#include "server/node/stream_flow.h"
#include "server/node/stream_life.h"

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
  struct Write {
    grpc::ByteBuffer buffer;
    size_t bytes = 0;  // to return to StreamFlow
    bool snapshot = false;
  };

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void Deliver(Frame frame);
  void Refuse(const Frame& request);
  void GiveBack(size_t bytes);
  bool MayResumeRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After StreamLife::BeginRead.
  void StartReadUnlocked();
  // By the writer (StreamLife::TakeWriting): writes the next chunk, finishes, or stops writing.
  void Pump();
  // The time to wait before the next chunk.
  absl::Duration WaitToSend() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ResumeAfter(absl::Duration wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ExchangeShared& shared_;
  const uint64_t client_;
  FrameAssembler assembler_;              // used by reads only
  grpc::ByteBuffer incoming_;             // of the one read in progress
  Write write_;                           // the one in progress; only the writer uses it
  std::shared_ptr<ExchangeStream> self_;  // until OnDone

  absl::Mutex mutex_;
  StreamFlow flow_ ABSL_GUARDED_BY(mutex_);
  OutgoingFrames frames_ ABSL_GUARDED_BY(mutex_);
  StreamLife life_ ABSL_GUARDED_BY(mutex_);
  bool resuming_ ABSL_GUARDED_BY(mutex_) = false;  // a timer is set for the next snapshot chunk
};

}  // namespace cairn
