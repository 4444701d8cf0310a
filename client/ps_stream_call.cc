#include "client/ps_stream_call.h"

#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/rpc/byte_buffer.h"
#include "common/rpc/shared_frames.h"
#include "common/shared_memory/handover.h"

namespace cairn {
namespace {

constexpr char kExchangeMethod[] = "/cairn.v1.ParameterServer/Exchange";

}  // namespace

PsStream::Call::Call(std::shared_ptr<PsStream> impl, std::shared_ptr<grpc::Channel> channel, bool asks_for_memory)
    : impl_(std::move(impl)),
      channel_(std::move(channel)),
      stub_(channel_),
      asks_for_memory_(asks_for_memory),
      assembler_(kStreamQueueBytesMax * 4) {}

PsStream::Call::~Call() {
  if (taker_.joinable()) taker_.join();  // it has released its hold, which was its last act
}

void PsStream::Call::Start() {
  if (asks_for_memory_) context_.AddMetadata(kSharedMemoryMetadata, kSharedMemoryAsked);
  stub_.PrepareBidiStreamingCall(&context_, kExchangeMethod, grpc::StubOptions(), this);
  AddHold();
  StartRead(&incoming_);
  StartCall();
}

SharedLink* PsStream::Call::link() const {
  absl::MutexLock lock(&impl_->mutex_);
  return link_.get();
}

size_t PsStream::Call::ChunkBytesMax(const Buffer& payload) const {
  return link_ == nullptr ? kFramePayloadBytesMax : link_->PayloadBytesMax({payload.data(), payload.size()});
}

void PsStream::Call::EndWith(absl::Status reason) {
  {
    absl::MutexLock lock(&impl_->mutex_);
    if (reason_.ok()) reason_ = std::move(reason);
  }
  context_.TryCancel();
}

// ---- the call ----

// The ps may take its time to give the memory: one of gRPC's threads must not wait for it.
void PsStream::Call::OnReadInitialMetadataDone(bool ok) {
  if (!asks_for_memory_) return;
  if (!ok) return NoteTaken(absl::OkStatus());
  AddHold();
  try {
    taker_ = std::thread([this] {
      NoteTaken(TakeMemory());
      RemoveHold();
    });
  } catch (const std::system_error& error) {
    NoteTaken(absl::ResourceExhaustedError(absl::StrCat("no thread to take it: ", error.what())));
    RemoveHold();
  }
}

void PsStream::Call::NoteTaken(const absl::Status& taken) {
  if (!taken.ok()) {
    // The ps may believe that the memory is used: the next call does not ask for it.
    impl_->NoteNoMemory(taken, /*for_good=*/true);
    EndWith(absl::UnavailableError("shared memory failed; trying without"));
  }
  impl_->Pump(this);
}

absl::Status PsStream::Call::TakeMemory() {
  const auto& metadata = context_.GetServerInitialMetadata();
  const auto answer = metadata.find(kSharedMemoryMetadata);
  const std::string ticket = answer == metadata.end() ? "" : std::string(answer->second.data(), answer->second.size());
  if (ticket.empty()) {
    impl_->NoteNoMemory(absl::ResourceExhaustedError("the ps has none to give at the moment"), /*for_good=*/false);
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(FileDescriptor connection, impl_->ConnectHandover());
  const SharedArena* const arena = impl_->options_.arena;
  CAIRN_ASSIGN_OR_RETURN(TakenRegion given,
                         TakeRegion(std::move(connection), ticket, SharedLink::kRegionBytes, arena, kHandoverPatience));
  const SharedLink::Arenas arenas{.own = given.arena_is_read ? arena : nullptr};
  auto memory = std::make_unique<SharedLink>(std::move(given.region), SharedLink::End::kTaker, this, arenas);
  SharedLink* const taken = memory.get();
  bool over;
  {
    absl::MutexLock lock(&impl_->mutex_);
    if (called_) return absl::InternalError("the ps sends frames through the call and gives memory");
    link_ = std::move(memory);
    over = broken;
  }
  AddHold();
  if (absl::Status started = taken->Start(); !started.ok()) {
    RemoveHold();
    return started;
  }
  if (over) taken->Finish();
  return absl::OkStatus();
}

void PsStream::Call::OnReadDone(bool ok) {
  if (ok) {
    bool expected;
    {
      absl::MutexLock lock(&impl_->mutex_);
      called_ = true;
      expected = link_ == nullptr;
    }
    if (expected) {
      const bool goes_on = Receive(ReceiveFrame(incoming_, &assembler_));
      incoming_.Clear();
      if (goes_on) return StartRead(&incoming_);
    } else {
      EndWith(absl::InternalError("a frame in the call of a stream with shared memory"));
    }
  }
  bool release, closed;
  SharedLink* memory;
  {
    absl::MutexLock lock(&impl_->mutex_);
    broken = true;
    release = !writing;
    memory = link_.get();
    closed = impl_->closed_;
  }
  if (memory != nullptr && closed) memory->Cancel();
  if (memory != nullptr && !closed) memory->Finish();  // the answers that are there count
  if (release) RemoveHold();
}

bool PsStream::Call::Receive(absl::StatusOr<std::optional<Frame>> frame) {
  if (!frame.ok()) {
    EndWith(frame.status());
    return false;
  }
  if (reply_began_ns_ == 0 && impl_->traces()) reply_began_ns_ = TraceNow();
  if (frame->has_value()) impl_->OnReply(**std::move(frame), std::exchange(reply_began_ns_, 0));
  return true;
}

bool PsStream::Call::Write(Frame chunk) {
  if (link() == nullptr) {
    outgoing_.message = ToByteBuffer(chunk);
    StartWrite(&outgoing_.message);
    return false;
  }
  outgoing_.frame = std::move(chunk);
  return WriteToLink();
}

void PsStream::Call::OnWriteDone(bool ok) {
  outgoing_.message.Clear();
  if (ok) {
    impl_->Pump(this);
    return;
  }
  bool release;
  {
    absl::MutexLock lock(&impl_->mutex_);
    writing = false;
    release = broken;
  }
  if (release) RemoveHold();
}

void PsStream::Call::OnDone(const grpc::Status& status) {
  const std::shared_ptr<PsStream> impl = impl_;
  absl::Status why = FromGrpcStatus(status);
  {
    absl::MutexLock lock(&impl->mutex_);
    if (!reason_.ok()) why = reason_;
  }
  std::shared_ptr<grpc::Channel> channel = channel_;
  impl->ForgetStream(this);
  delete this;
  impl->OnStreamDone(why, std::move(channel));
}

// ---- the link ----

void PsStream::Call::OnMessage(RingMessage message) {
  if (!Receive(ReceiveFrame(message, &assembler_))) link()->Cancel();
}

bool PsStream::Call::WriteToLink() {
  if (!TryWriteFrame(link(), outgoing_.frame)) return false;
  outgoing_.frame = Frame();
  return true;
}

void PsStream::Call::OnRoom() {
  if (WriteToLink()) impl_->Pump(this);
}

void PsStream::Call::OnEnd(absl::Status status) {
  if (!status.ok()) EndWith(absl::UnavailableError(absl::StrCat("shared memory: ", status.message())));
  RemoveHold();
}

}  // namespace cairn
