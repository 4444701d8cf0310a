// ExchangeStream: one call of the Exchange RPC. docs/architecture.md#the-walk-of-one-gradient
//
// Thread rule: Send, End and the release of credits from any thread; gRPC's callbacks on gRPC's threads. The stream
// lives until OnDone has run and the last reference is gone (the service's map, credits, senders). StreamLife decides
// which operations may be started, OutgoingFrames, StreamFlow and SnapshotPacer what it sends and when it reads. With a
// client on this host the frames may go through shared memory (common/rpc/shared_frames.h): the call stays open beside
// it, and the link's thread does what gRPC's callbacks do otherwise.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/executor.h"
#include "common/base/trace.h"
#include "common/rpc/assembler.h"
#include "common/rpc/caller_certificate.h"
#include "common/shared_memory/shared_link.h"
#include "common/tensor/frame.h"
#include "server/node/exchange_handler.h"
#include "server/node/outgoing_frames.h"
#include "server/node/snapshot_pacer.h"
#include "server/node/stream_flow.h"
#include "server/node/stream_life.h"
#include "server/node/stream_memory.h"

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
  StreamMemories memories;
};

class ExchangeStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                       public SharedLink::User,
                       public std::enable_shared_from_this<ExchangeStream> {
 public:
  // received: requests of the client's machine that are being assembled or handled.
  ExchangeStream(ExchangeShared& shared, ExchangeClient client, std::shared_ptr<ByteBudget> received);

  // Before Start. The ticket for memory that the client may use in place of the call; "": there is none.
  std::string OfferSharedMemory();
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
  // The same, through the client's fault: one with shared memory that does not read it is not waited for.
  void Abort(grpc::Status status);

 private:
  // The one in progress; only the writer uses it.
  struct Write {
    OutgoingFrames::Chunk chunk;
    grpc::ByteBuffer buffer;  // of the call; a link takes the chunk
  };

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // ---- of the link ----
  void OnMessage(RingMessage message) override;
  void OnRoom() override;
  void OnEnd(absl::Status status) override;
  absl::StatusOr<HandoverSocket::Given> UseSharedMemory(FileDescriptor clients_arena);
  // Of write_. False: there is no room; OnRoom goes on.
  bool WriteToLink(SharedLink* link);
  void NoteSent();
  SharedLink* link() const {
    absl::MutexLock lock(&mutex_);
    return memory_.link();
  }

  // Takes what a read has brought. False: the stream ends.
  bool Receive(absl::StatusOr<std::optional<Frame>> frame);
  void Deliver(Frame frame);
  void Refuse(const Frame& request, absl::Status why);
  // For a trace: now, if it is on and the frame has values of a step, else 0. Then of the last chunk of such a frame.
  int64_t TraceQueued(const Frame& frame) const;
  void TraceSent(const OutgoingFrames::Chunk& chunk) const;
  void GiveBack(size_t bytes);
  // After a pause, if what caused it is over.
  void ResumeReading();
  void AwaitRest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After StreamLife::BeginRead.
  void StartReadUnlocked();
  // By the writer (StreamLife::TakeWriting): writes the next chunks, finishes, or stops writing.
  void Pump();
  size_t ChunkBytesMax() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return memory_.link() == nullptr ? kFramePayloadBytesMax : kRingPayloadBytesMax;
  }
  // The time to wait before the next chunk.
  absl::Duration WaitToSend() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ResumeAfter(absl::Duration wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ExchangeShared& shared_;
  const ExchangeClient client_;
  const std::shared_ptr<ByteBudget> received_;
  FrameAssembler assembler_;              // used by reads only
  grpc::ByteBuffer incoming_;             // of the one read in progress
  Write write_;                           // only the writer uses it
  std::shared_ptr<ExchangeStream> self_;  // until OnDone

  mutable absl::Mutex mutex_;
  StreamMemory memory_ ABSL_GUARDED_BY(mutex_);
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;  // a part of a request is in the assembler
  StreamFlow flow_ ABSL_GUARDED_BY(mutex_);
  OutgoingFrames frames_ ABSL_GUARDED_BY(mutex_);
  StreamLife life_ ABSL_GUARDED_BY(mutex_);
  // Since when the rest of a request is awaited; none while reads pause or nothing is begun.
  absl::Time awaits_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool resuming_ ABSL_GUARDED_BY(mutex_) = false;  // a timer is set for the next snapshot chunk
};

}  // namespace cairn
