#include "server/node/exchange_stream.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/rpc/byte_buffer.h"
#include "common/rpc/shared_frames.h"

namespace cairn {
namespace {

// Monotonic: a wall clock that is set back would delay snapshots by as much.
absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

ExchangeStream::ExchangeStream(ExchangeShared& shared, ExchangeClient client, std::shared_ptr<ByteBudget> received)
    : shared_(shared),
      client_(std::move(client)),
      received_(std::move(received)),
      assembler_(2 * kPartitionBytesMax, kPartitionBytesMax, received_.get()),
      memory_(&shared.memories) {}

bool ExchangeStream::Stalled() {
  absl::MutexLock lock(&mutex_);
  return !life_.ending() && SteadyNow() - awaits_since_ > shared_.stall_max;
}

absl::Status ExchangeStream::CheckCertificate() { return client_.certificate->Check(absl::Now()); }

void ExchangeStream::Start(std::shared_ptr<ExchangeStream> self) {
  self_ = std::move(self);
  StartReadUnlocked();
}

void ExchangeStream::Send(Frame frame) {
  const bool snapshot = OutgoingFrames::IsSnapshot(frame);
  const bool last = !snapshot || frame.tensor + 1 >= frame.tensors;
  const int64_t queued_ns = TraceQueued(frame);
  {
    absl::MutexLock lock(&mutex_);
    if (last) flow_.Answered();
    if (flow_.all_answered()) life_.End(grpc::Status::OK);
    if (life_.finishing()) return;
    flow_.Queued(snapshot, frame.payload.size() + StreamFlow::kFrameOverheadBytes);
    frames_.Add(std::move(frame), queued_ns);
    if (!life_.TakeWriting()) return;
  }
  Pump();
}

void ExchangeStream::End(grpc::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    if (!life_.End(std::move(status)) || !life_.TakeWriting()) return;
  }
  Pump();
}

void ExchangeStream::Abort(grpc::Status status) {
  End(std::move(status));
  if (SharedLink* const memory = link(); memory != nullptr) memory->Cancel();
}

// ---- requests ----

void ExchangeStream::OnReadDone(bool ok) {
  if (!ok) {  // the client has closed its side, and still gets its answers; or it is gone: OnCancel
    SharedLink* memory;
    {
      absl::MutexLock lock(&mutex_);
      memory = memory_.link();
      flow_.HalfClose();
      if (memory == nullptr && !flow_.all_answered()) return;
    }
    // A client with shared memory closes its side only to go away.
    if (memory != nullptr) return memory->Cancel();
    End(grpc::Status::OK);
    return;
  }
  bool expected;
  {
    absl::MutexLock lock(&mutex_);
    expected = memory_.NoteCall();
  }
  if (!expected)
    return Abort({grpc::StatusCode::INVALID_ARGUMENT, "a frame in the call of a stream with shared memory"});
  const bool goes_on = Receive(ReceiveFrame(incoming_, &assembler_));
  incoming_.Clear();
  if (!goes_on) return;
  {
    absl::MutexLock lock(&mutex_);
    if (life_.ending() || !flow_.MayRead()) return;
    life_.BeginRead();
  }
  StartReadUnlocked();
}

bool ExchangeStream::Receive(absl::StatusOr<std::optional<Frame>> frame) {
  if (!frame.ok()) {
    LogWarning("exchange: client %d: %s", client_.id, frame.status().ToString());
    Abort(ToGrpcStatus(frame.status()));
    return false;
  }
  {
    absl::MutexLock lock(&mutex_);
    begun_ = assembler_.joins() > 0;
    awaits_since_ = absl::InfiniteFuture();
  }
  if (frame->has_value()) Deliver(**std::move(frame));
  return true;
}

void ExchangeStream::Deliver(Frame frame) {
  const size_t bytes = frame.payload.size() + StreamFlow::kFrameOverheadBytes;
  const bool received = frame.kind == v1::ExchangeFrame::ERROR || frame.status.ok();
  const bool allowed = client_.rights.Allow(frame.kind);
  const bool room = received && allowed && received_->TryTake(bytes);
  {
    absl::MutexLock lock(&mutex_);
    if (life_.ending()) {
      if (room) received_->Give(bytes);
      return;
    }
    if (room) flow_.Received(bytes);
    if (frame.kind != v1::ExchangeFrame::IMAGE || frame.tensor == 0) flow_.Asked();
  }
  if (!allowed) {
    return Refuse(frame, absl::PermissionDeniedError(absl::StrFormat("%s is not for the role of your certificate",
                                                                     v1::ExchangeFrame::Kind_Name(frame.kind))));
  }
  if (!room) {
    return Refuse(frame, absl::ResourceExhaustedError(absl::StrFormat(
                             "the ps has %d bytes of requests that it has not handled, at most %d; retry",
                             received_->taken(), received_->bytes_max())));
  }
  // The credit is a reference to this stream whose deleter returns the bytes.
  Credit credit(this, [self = shared_from_this(), bytes](void*) { self->GiveBack(bytes); });
  shared_.handler->OnFrame(client_.id, std::move(frame), std::move(credit));
}

void ExchangeStream::Refuse(const Frame& request, absl::Status why) {
  Frame error;
  error.kind = v1::ExchangeFrame::ERROR;
  error.request_id = request.request_id;
  error.job = request.job;
  error.partition = request.partition;
  error.status = std::move(why);
  Send(std::move(error));
}

void ExchangeStream::GiveBack(size_t bytes) {
  received_->Give(bytes);
  {
    absl::MutexLock lock(&mutex_);
    flow_.Handled(bytes);
  }
  ResumeReading();
}

void ExchangeStream::ResumeReading() {
  SharedLink* memory;
  {
    absl::MutexLock lock(&mutex_);
    if (life_.ending() || !flow_.MayResume()) return;
    memory = memory_.link();
    if (memory == nullptr) {
      life_.BeginRead();
    } else {
      AwaitRest();
    }
  }
  if (memory != nullptr) return memory->Resume();
  StartReadUnlocked();
}

void ExchangeStream::AwaitRest() { awaits_since_ = begun_ ? SteadyNow() : absl::InfiniteFuture(); }

void ExchangeStream::StartReadUnlocked() {
  {
    absl::MutexLock lock(&mutex_);
    AwaitRest();
  }
  StartRead(&incoming_);
  {
    absl::MutexLock lock(&mutex_);
    life_.ReadStarted();
    if (!life_.ending() || !life_.TakeWriting()) return;
  }
  Pump();
}

// ---- answers ----

int64_t ExchangeStream::TraceQueued(const Frame& frame) const {
  const bool values = frame.kind == v1::ExchangeFrame::VALUES && frame.version > 0;
  return shared_.trace != nullptr && values && shared_.trace->Wants(frame.job) ? shared_.trace->now() : 0;
}

void ExchangeStream::TraceSent(const OutgoingFrames::Chunk& chunk) const {
  TraceSpan span;
  span.kind = TraceKind::kSend;
  span.track = TraceTrack::kPartition;
  span.partition = static_cast<int32_t>(chunk.frame.partition.value);
  span.track_number = span.partition;
  span.step = static_cast<int64_t>(chunk.frame.version) - 1;
  span.bytes = chunk.frame.payload_total;
  span.begin_ns = chunk.queued_ns;
  span.end_ns = shared_.trace->now();
  shared_.trace->Add(chunk.frame.job, std::move(span));
}

void ExchangeStream::Pump() {
  while (true) {
    std::optional<OutgoingFrames::Chunk> chunk;
    std::optional<grpc::Status> finish;
    SharedLink* memory;
    {
      absl::MutexLock lock(&mutex_);
      memory = memory_.link();
      const bool sends = !frames_.empty() && !life_.broken();
      const absl::Duration wait = sends ? WaitToSend() : absl::ZeroDuration();
      if (wait > absl::ZeroDuration()) {
        life_.StopWriting();
        ResumeAfter(wait);
      } else if (sends) {
        chunk = frames_.TakeNext(ChunkBytesMax());
      } else if (finish = life_.TakeFinish(); finish.has_value()) {
        frames_.Clear();
      } else {
        life_.StopWriting();
      }
    }
    if (finish.has_value()) return Finish(*finish);
    if (!chunk.has_value()) return;
    if (chunk->queued_ns > 0) TraceSent(*chunk);
    if (memory == nullptr) {
      write_.buffer = ToByteBuffer(chunk->frame);
      write_.chunk = *std::move(chunk);
      return StartWrite(&write_.buffer);
    }
    write_.chunk = *std::move(chunk);
    if (!WriteToLink(memory)) return;
  }
}

// A stream that is ending is not delayed.
absl::Duration ExchangeStream::WaitToSend() {
  if (life_.ending()) return absl::ZeroDuration();
  const size_t bytes = frames_.NextBytes(ChunkBytesMax());
  if (frames_.next_is_snapshot()) return shared_.pacer->WaitFor(bytes, SteadyNow());
  shared_.pacer->NoteTraffic(bytes, SteadyNow());
  return absl::ZeroDuration();
}

void ExchangeStream::ResumeAfter(absl::Duration wait) {
  if (std::exchange(resuming_, true)) return;
  shared_.timer->PostAfter(wait, [weak = weak_from_this()] {
    const std::shared_ptr<ExchangeStream> self = weak.lock();
    if (self == nullptr) return;
    {
      absl::MutexLock lock(&self->mutex_);
      self->resuming_ = false;
      if (!self->life_.TakeWriting()) return;
    }
    self->Pump();
  });
}

void ExchangeStream::OnWriteDone(bool ok) {
  write_.buffer.Clear();
  if (!ok) {
    absl::MutexLock lock(&mutex_);
    life_.Break();
    life_.End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the client is gone"));
  }
  NoteSent();
  Pump();
}

void ExchangeStream::NoteSent() {
  write_.chunk.frame = Frame();  // its bytes may be needed elsewhere
  {
    absl::MutexLock lock(&mutex_);
    flow_.Sent(write_.chunk.snapshot, write_.chunk.bytes);
  }
  ResumeReading();
}

void ExchangeStream::OnCancel() {
  SharedLink* memory;
  {
    absl::MutexLock lock(&mutex_);
    life_.Break();
    memory = memory_.link();
  }
  if (memory != nullptr) memory->Cancel();
  End(grpc::Status::CANCELLED);
}

// The link's thread brings frames, which come before OnClientGone.
void ExchangeStream::OnDone() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  memory_.End();
  shared_.handler->OnClientGone(client_.id);
  const std::shared_ptr<ExchangeStream> self = std::move(self_);
  shared_.forget(client_.id);
}

// ---- shared memory ----

std::string ExchangeStream::OfferSharedMemory() {
  absl::MutexLock lock(&mutex_);
  return memory_.Offer([weak = weak_from_this()](FileDescriptor arena) -> absl::StatusOr<HandoverSocket::Given> {
    const std::shared_ptr<ExchangeStream> self = weak.lock();
    if (self == nullptr) return absl::CancelledError("the stream has ended");
    return self->UseSharedMemory(std::move(arena));
  });
}

absl::StatusOr<HandoverSocket::Given> ExchangeStream::UseSharedMemory(FileDescriptor clients_arena) {
  std::unique_ptr<ClientArena> arena = ClientArena::Open(std::move(clients_arena), &shared_.memories);
  absl::MutexLock lock(&mutex_);
  if (life_.ending()) return absl::CancelledError("the stream has ended");
  return memory_.Begin(this, std::move(arena));
}

void ExchangeStream::OnMessage(RingMessage message) {
  {
    absl::MutexLock lock(&mutex_);
    if (life_.ending()) return;
  }
  if (!Receive(ReceiveFrame(message, &assembler_))) return;
  absl::MutexLock lock(&mutex_);
  if (life_.ending()) return;
  if (flow_.MayRead()) {
    AwaitRest();
  } else {
    memory_.link()->Pause();
  }
}

bool ExchangeStream::WriteToLink(SharedLink* memory) {
  if (!TryWriteFrame(memory, write_.chunk.frame)) return false;
  NoteSent();
  return true;
}

void ExchangeStream::OnRoom() {
  if (WriteToLink(link())) Pump();
}

void ExchangeStream::OnEnd(absl::Status status) {
  if (!status.ok()) LogWarning("exchange: client %d: shared memory: %s", client_.id, status.message());
  {
    absl::MutexLock lock(&mutex_);
    life_.Break();
  }
  End(status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the client is gone") : ToGrpcStatus(status));
}

}  // namespace cairn
