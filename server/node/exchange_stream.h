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
#include "common/base/trace.h"
#include "common/rpc/assembler.h"
#include "common/rpc/caller_certificate.h"
#include "common/tensor/frame.h"
#include "server/node/exchange_handler.h"
#include "server/node/outgoing_frames.h"
#include "server/node/snapshot_pacer.h"
#include "server/node/stream_flow.h"
#include "server/node/stream_life.h"

namespace cairn {

// Which kinds of requests a client may send: by the roles of its certificate.
struct ExchangeRights {
  bool worker = true;  // all but REPLICATE
  bool ps = true;      // REPLICATE and IMAGE

  bool Allow(v1::ExchangeFrame::Kind kind) const {
    if (kind == v1::ExchangeFrame::REPLICATE) return ps;
    return worker || (ps && kind == v1::ExchangeFrame::IMAGE);
  }
};

struct ExchangeClient {
  uint64_t id = 0;
  std::string machine;
  ExchangeRights rights;
  std::shared_ptr<CallerCertificate> certificate;
};

// Shared by all streams of a ps; outlives them.
struct ExchangeShared {
  ExchangeHandler* handler = nullptr;
  SnapshotPacer* pacer = nullptr;
  SerialExecutor* timer = nullptr;
  std::function<void(uint64_t client)> forget;
  absl::Duration stall_max;
  TraceRecorder* trace = nullptr;  // gets the times of values that are sent while their job is traced; null: none
};

class ExchangeStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                       public std::enable_shared_from_this<ExchangeStream> {
 public:
  // received: requests of the client's machine that are being assembled or handled.
  ExchangeStream(const ExchangeShared& shared, ExchangeClient client, std::shared_ptr<ByteBudget> received);

  void Start(std::shared_ptr<ExchangeStream> self);
  // frame: the answer to a delivered request, or a part of it.
  void Send(Frame frame);
  const std::string& machine() const { return client_.machine; }
  // Whether a part of a request is here and its rest has been awaited for kAssemblerStallSecondsMax.
  bool Stalled();
  // Errors: UNAUTHENTICATED: the client's certificate has expired or was revoked. By one thread at a time.
  absl::Status CheckCertificate();
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
  void Refuse(const Frame& request, absl::Status why);
  // For a trace: now, if it is on and the frame has values of a step, else 0. Then of the last chunk of such a frame.
  int64_t TraceQueued(const Frame& frame) const;
  void TraceSent(const OutgoingFrames::Chunk& chunk) const;
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
  const ExchangeClient client_;
  const std::shared_ptr<ByteBudget> received_;
  FrameAssembler assembler_;              // used by reads only
  bool begun_ = false;                    // a part of a request is in it; between reads
  grpc::ByteBuffer incoming_;             // of the one read in progress
  Write write_;                           // the one in progress; only the writer uses it
  std::shared_ptr<ExchangeStream> self_;  // until OnDone

  absl::Mutex mutex_;
  StreamFlow flow_ ABSL_GUARDED_BY(mutex_);
  OutgoingFrames frames_ ABSL_GUARDED_BY(mutex_);
  StreamLife life_ ABSL_GUARDED_BY(mutex_);
  // Since when the rest of a request is awaited; none while reads pause or nothing is begun.
  absl::Time awaits_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool resuming_ ABSL_GUARDED_BY(mutex_) = false;  // a timer is set for the next snapshot chunk
};

}  // namespace cairn
