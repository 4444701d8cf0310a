#include "client/ps_stream.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/ps_stream_call.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/unix_socket.h"
#include "common/rpc/channel.h"
#include "common/rpc/credentials.h"
#include "common/rpc/shared_frames.h"

namespace cairn {
namespace {

// Strips gRPC's own text: "failed to connect to all addresses; last error: ...: Connection refused".
std::string ReasonOf(const absl::Status& status) {
  const std::string message(status.message());
  if (status.ok()) return "closed by the ps";
  if (message.empty()) return absl::StatusCodeToString(status.code());
  const size_t colon = message.rfind(": ");
  return absl::StartsWith(message, "failed to connect") && colon != std::string::npos ? message.substr(colon + 2)
                                                                                      : message;
}

// Runs fn on a gRPC thread after `delay`, once.
void RunLater(absl::Duration delay, std::function<void()> fn) {
  auto alarm = std::make_unique<grpc::Alarm>();
  grpc::Alarm* raw = alarm.release();
  raw->Set(absl::ToChronoTime(absl::Now() + delay), [raw, fn = std::move(fn)](bool) {
    fn();
    delete raw;  // gRPC keeps what it still needs
  });
}

}  // namespace

void PsStream::Send(std::vector<Frame> request, OnTensor on_tensor, Done done) {
  absl::Status refused;
  uint64_t id = 0;
  Call* stream = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    size_t bytes = 0;
    for (const Frame& frame : request) bytes += frame.payload.size();
    if (closed_) {
      refused = absl::CancelledError("the connection is closed");
    } else if (const size_t before = outstanding_bytes_->fetch_add(bytes);
               bytes > options_.outstanding_bytes_max - std::min(before, options_.outstanding_bytes_max)) {
      outstanding_bytes_->fetch_sub(bytes);
      refused = absl::ResourceExhaustedError(absl::StrFormat("ps %s: %d bytes are sent and not answered, at most %d",
                                                             address_, before, options_.outstanding_bytes_max));
    } else {
      id = next_request_id_++;
      std::unique_ptr<RequestTrace> trace = RequestTrace::Of(options_.trace, request.front());
      pending_.emplace(id, Pending{std::move(done), bytes, std::move(on_tensor), 0, std::move(trace)});
      for (Frame& frame : request) {
        frame.request_id = id;
        queue_.emplace_back(std::move(frame));
      }
      stream = stream_;
      if (stream == nullptr) OpenOrWait();
      // The stream must not end before Pump has looked at it.
      if (stream != nullptr) {
        if (stream->writing || stream->broken) {
          stream = nullptr;
        } else {
          stream->writing = true;
        }
      }
    }
    if (!refused.ok()) ++busy_;
  }
  if (!refused.ok()) {
    // NOLINTNEXTLINE(bugprone-use-after-move): moved before only where nothing is refused
    RunLater(absl::ZeroDuration(), [self = shared_from_this(), done = std::move(done), refused] {
      done(refused);
      self->LeaveCallback();
    });
    return;
  }
  if (stream != nullptr) Pump(stream);
  if (options_.request_timeout > absl::ZeroDuration()) {
    RunLater(options_.request_timeout, [weak = weak_from_this(), id] {
      if (auto self = weak.lock()) {
        self->FailOne(
            id, absl::DeadlineExceededError(absl::StrFormat("ps %s: no answer within %s", self->address_,
                                                            absl::FormatDuration(self->options_.request_timeout))));
      }
    });
  }
}

// The caller owns stream->writing (it is true), which also keeps the stream alive. Writes what is queued as far as the
// stream takes it, or releases it.
void PsStream::Pump(Call* stream) {
  while (true) {
    std::optional<Frame> chunk;
    bool release = false;
    {
      absl::MutexLock lock(&mutex_);
      if (!stream->broken && !closed_ && !queue_.empty()) {
        chunk = queue_.front().Next(stream->ChunkBytesMax(queue_.front().payload()));
        if (queue_.front().done()) {
          queue_.pop_front();
          if (traces()) NoteSent(chunk->request_id);
        }
        stream->writing = true;
      } else {
        release = stream->broken;
        stream->writing = false;
      }
    }
    if (release) stream->RemoveHold();
    if (!chunk.has_value() || !stream->Write(*std::move(chunk))) return;
  }
}

void PsStream::NoteSent(uint64_t request_id) {
  const auto it = pending_.find(request_id);
  if (it != pending_.end() && it->second.trace != nullptr) it->second.trace->Sent();
}

bool PsStream::connected() {
  absl::MutexLock lock(&mutex_);
  return stream_ != nullptr && stream_->connected();
}

void PsStream::OpenOrWait() {
  if (opening_ || closed_) return;
  opening_ = true;
  const absl::Duration wait =
      std::max(absl::FromChrono(open_not_before_ - std::chrono::steady_clock::now()), absl::ZeroDuration());
  RunLater(wait, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->Open();
  });
}

void PsStream::Open() {
  ChannelOptions channel_options;
  channel_options.keepalive_interval = options_.keepalive_interval;
  channel_options.keepalive_timeout = options_.keepalive_timeout;
  channel_options.receive_bytes_max = static_cast<int>(kFrameBytesMax);
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = CreateChannel(address_, channel_options);
  if (!channel.ok()) {
    {
      absl::MutexLock lock(&mutex_);
      opening_ = false;
      open_not_before_ = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(backoff_.Next());
    }
    FailAll(channel.status());
    return;
  }
  Call* stream = new Call(shared_from_this(), *std::move(channel), MayAskForMemory());
  std::shared_ptr<grpc::Channel> retired;
  {
    absl::MutexLock lock(&mutex_);
    retired = std::move(retired_);
    opening_ = false;
    if (closed_) {
      delete stream;
      return;
    }
    stream_ = stream;
    ++busy_;
    stream->writing = true;  // owned by this thread until Pump
  }
  const bool waits = stream->asks_for_memory();
  stream->Start();
  if (!waits) Pump(stream);
}

absl::StatusOr<FileDescriptor> PsStream::ConnectHandover() {
  CAIRN_ASSIGN_OR_RETURN(const Address address, ParseAddress(address_));
  return ConnectUnixSocket(HandoverPath(address.unix_socket), /*own_only=*/UsesTls());
}

bool PsStream::MayAskForMemory() {
  const absl::StatusOr<Address> address = ParseAddress(address_);
  if (!options_.shared_memory || !address.ok() || address->unix_socket.empty()) return false;
  {
    absl::MutexLock lock(&mutex_);
    if (!memory_.tried) return false;
  }
  const absl::Status listens = ConnectHandover().status();
  if (!listens.ok()) LogDebug("ps %s: no shared memory: %s", address_, listens.message());
  return listens.ok();
}

void PsStream::NoteNoMemory(const absl::Status& why, bool for_good) {
  {
    absl::MutexLock lock(&mutex_);
    if (for_good) memory_.tried = false;
    if (std::exchange(memory_.said, true)) return;
  }
  LogInfo("ps %s: frames go through its socket, not through shared memory: %s", address_, why.message());
}

// Returns whether this tensor completes the answer. An invalid answer becomes an ERROR here.
bool PsStream::OnTensorReply(Frame& reply) {
  OnTensor on_tensor;
  {
    absl::MutexLock lock(&mutex_);
    auto it = pending_.find(reply.request_id);
    if (it == pending_.end()) return false;
    Pending& pending = it->second;
    if (pending.on_tensor == nullptr || reply.tensor != pending.next_tensor || reply.tensor >= reply.tensors) {
      reply.kind = v1::ExchangeFrame::ERROR;
      reply.status = absl::InternalError(absl::StrFormat("received an image's tensor %d of %d instead of tensor %d",
                                                         reply.tensor, reply.tensors, pending.next_tensor));
      return true;
    }
    ++pending.next_tensor;
    on_tensor = pending.on_tensor;
  }
  Frame header = reply;
  header.payload = {};
  on_tensor(std::exchange(reply, std::move(header)));
  return reply.tensor + 1 == reply.tensors;
}

void PsStream::OnReply(Frame reply, int64_t began_ns) {
  if (reply.kind == v1::ExchangeFrame::IMAGE && !OnTensorReply(reply)) return;
  std::optional<Pending> answered;
  {
    absl::MutexLock lock(&mutex_);
    backoff_.Reset();
    answered = Take(reply.request_id);
  }
  if (!answered.has_value()) return;  // it timed out before
  if (answered->trace != nullptr && began_ns > 0) answered->trace->Answered(reply, began_ns);
  const Done& done = answered->done;
  if (reply.kind == v1::ExchangeFrame::VALUES || reply.kind == v1::ExchangeFrame::ACK ||
      reply.kind == v1::ExchangeFrame::IMAGE || reply.kind == v1::ExchangeFrame::NORMS ||
      (reply.kind == v1::ExchangeFrame::ERROR && options_.error_frames)) {
    done(std::move(reply));
  } else if (reply.kind == v1::ExchangeFrame::ERROR) {
    done(Annotate(reply.status, absl::StrCat("ps ", address_)));
  } else {
    done(absl::InternalError(absl::StrFormat("ps %s answered with a frame of kind %d", address_, reply.kind)));
  }
  if (answered->trace != nullptr) answered->trace->TakenIn();
}

void PsStream::ForgetStream(Call* stream) {
  absl::MutexLock lock(&mutex_);
  if (stream_ == stream) stream_ = nullptr;
  open_not_before_ = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(backoff_.Next());
}

void PsStream::OnStreamDone(const absl::Status& status, std::shared_ptr<grpc::Channel> channel) {
  {
    absl::MutexLock lock(&mutex_);
    channel.swap(retired_);
  }
  FailAll(absl::UnavailableError(absl::StrCat("ps ", address_, ": the stream ended: ", ReasonOf(status))));
  LeaveCallback();
}

std::optional<PsStream::Pending> PsStream::Take(uint64_t request_id) {
  auto it = pending_.find(request_id);
  if (it == pending_.end()) return std::nullopt;
  Pending pending = std::move(it->second);
  outstanding_bytes_->fetch_sub(pending.bytes);
  pending_.erase(it);
  return pending;
}

void PsStream::FailOne(uint64_t request_id, const absl::Status& status) {
  std::optional<Pending> pending;
  {
    absl::MutexLock lock(&mutex_);
    pending = Take(request_id);
    if (!pending.has_value()) return;
    ++busy_;
  }
  pending->done(status);
  LeaveCallback();
}

void PsStream::FailAll(const absl::Status& status) {
  absl::flat_hash_map<uint64_t, Pending> failed;
  absl::Status why = status;
  {
    absl::MutexLock lock(&mutex_);
    failed.swap(pending_);
    queue_.clear();
    for (const auto& [id, pending] : failed) outstanding_bytes_->fetch_sub(pending.bytes);
    if (closed_) why = absl::CancelledError("the connection is closed");
    ++busy_;
  }
  for (auto& [id, pending] : failed) pending.done(why);
  LeaveCallback();
}

void PsStream::LeaveCallback() {
  absl::MutexLock lock(&mutex_);
  --busy_;
}

void PsStream::Close() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    // Under the lock: ForgetStream takes the lock before the stream is deleted.
    if (stream_ != nullptr) stream_->Cancel();
  }
  FailAll(absl::CancelledError("the connection is closed"));
  std::shared_ptr<grpc::Channel> retired;  // destroyed after the lock is released, on the caller's thread
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* busy) { return *busy == 0; }, &busy_));
  retired = std::move(retired_);
}

}  // namespace cairn
