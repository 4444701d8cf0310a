// PsStream::Call: one call of the Exchange RPC. With a ps on this host the frames may go through shared memory
// (common/rpc/shared_frames.h): the call stays open beside it, and the link's thread does what gRPC's callbacks do
// otherwise.
//
// Thread rule: gRPC's callbacks on gRPC's threads, the link's on its own, and a thread that waits for the memory. It
// deletes itself in OnDone. Holds keep it alive: one while PsStream may start a write outside a callback, one for each
// of the threads.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <thread>

#include "client/ps_stream.h"
#include "common/base/files.h"
#include "common/rpc/assembler.h"
#include "common/shared_memory/shared_link.h"

namespace cairn {

class PsStream::Call : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>, public SharedLink::User {
 public:
  Call(std::shared_ptr<PsStream> impl, std::shared_ptr<grpc::Channel> channel, bool asks_for_memory);
  ~Call() override;

  // The caller has set `writing`. If memory is asked for, the answer to that calls PsStream::Pump, else the caller.
  void Start();
  bool asks_for_memory() const { return asks_for_memory_; }
  // By the thread that set `writing`. True: written, the next one may follow. False: when it is, Pump is called.
  bool Write(Frame chunk);
  // impl_->mutex_ is held.
  size_t ChunkBytesMax(const Buffer& payload) const;
  void Cancel() { context_.TryCancel(); }
  bool connected() const { return channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY; }

  // Guarded by impl_->mutex_. The hold is released when the stream is broken and no write is in flight.
  bool writing = false;
  bool broken = false;  // reads have ended

 private:
  struct Outgoing {
    grpc::ByteBuffer message;  // to the call
    Frame frame;               // to the link
  };

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  void OnMessage(RingMessage message) override;
  void OnRoom() override;
  void OnEnd(absl::Status status) override;

  // On taker_: uses the memory that the ps gives. OK: also where it gives none.
  absl::Status TakeMemory();
  void NoteTaken(const absl::Status& taken);
  SharedLink* link() const;
  // Takes what a read has brought. False: it was wrong, and the stream ends.
  bool Receive(absl::StatusOr<std::optional<Frame>> frame);
  // Of outgoing_, as Write.
  bool WriteToLink();
  void EndWith(absl::Status reason);

  const std::shared_ptr<PsStream> impl_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  const bool asks_for_memory_;
  std::thread taker_;
  FrameAssembler assembler_;  // used by reads only
  grpc::ByteBuffer incoming_;
  Outgoing outgoing_;                 // being written; only the writer uses it
  int64_t reply_began_ns_ = 0;        // of the answer of which a part is here; 0: none, or nothing is traced
  absl::Status reason_;               // why this client ended it; guarded by impl_->mutex_
  std::unique_ptr<SharedLink> link_;  // null: frames go through the call; set once, guarded by impl_->mutex_
  bool called_ = false;               // a frame came through the call; guarded by impl_->mutex_
};

}  // namespace cairn
