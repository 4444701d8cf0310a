#include "client/bench/raw_stream.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/limits.h"
#include "common/rpc/channel.h"

namespace cairn {
namespace {

constexpr size_t kMessageBytes = kFramePayloadBytesMax;
// Messages cycle through this much memory: more than a cache holds, like a parameter space.
constexpr size_t kMemoryBytes = size_t{64} << 20;

// Consecutive slices of one piece of memory, cyclically.
class Messages {
 public:
  grpc::ByteBuffer Next(size_t bytes) {
    if (at_ + bytes > memory_.size()) {
      if (memory_.size() < kMemoryBytes) memory_.resize(kMemoryBytes, 'x');
      at_ = 0;
    }
    const grpc::Slice slice(memory_.data() + at_, bytes, grpc::Slice::STATIC_SLICE);
    at_ += bytes;
    return grpc::ByteBuffer(&slice, 1);
  }

 private:
  std::string memory_;
  size_t at_ = 0;
};

class Reactor : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Reactor() { StartRead(&incoming_); }

  void OnReadDone(bool ok) override {
    if (!ok) return End();
    const size_t bytes = std::min(incoming_.Length(), kMessageBytes);
    incoming_.Clear();
    bool write;
    {
      absl::MutexLock lock(&mutex_);
      due_.push_back(bytes);
      write = due_.size() == 1;
    }
    if (write) Write(bytes);
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    size_t next = 0;
    bool more = false, finish = false;
    {
      absl::MutexLock lock(&mutex_);
      due_.pop_front();
      if (!ok) due_.clear();
      more = !due_.empty();
      if (more) next = due_.front();
      finish = ended_ && !more;
    }
    if (more) Write(next);
    if (finish) Finish(grpc::Status::OK);
  }

  void OnDone() override { delete this; }

 private:
  void End() {
    bool finish;
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
      finish = due_.empty();
    }
    if (finish) Finish(grpc::Status::OK);
  }
  // Called by the thread that made due_ non-empty, or found it so.
  void Write(size_t bytes) {
    outgoing_ = messages_.Next(bytes);
    StartWrite(&outgoing_);
  }

  Messages messages_;
  grpc::ByteBuffer incoming_, outgoing_;
  absl::Mutex mutex_;
  std::deque<size_t> due_ ABSL_GUARDED_BY(mutex_);  // bounded by what the client has sent and not yet read: its window
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

class Client : public RawStream, grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Client(std::shared_ptr<grpc::Channel> channel) : stub_(std::move(channel)) {
    stub_.PrepareBidiStreamingCall(&context_, "/cairn.v1.Bench/Stream", grpc::StubOptions(), this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }
  ~Client() override {
    context_.TryCancel();
    RemoveHold();
    done_.WaitForNotification();
  }

  absl::StatusOr<absl::Duration> Round(int64_t bytes, absl::Duration timeout) override {
    const absl::Time start = absl::Now();
    size_t first;
    {
      absl::MutexLock lock(&mutex_);
      to_read_ = static_cast<size_t>(bytes);
      to_write_ = static_cast<size_t>(bytes);
      first = NextToWrite();
      writing_ = true;
    }
    Write(first);
    absl::MutexLock lock(&mutex_);
    const auto answered = [this] {
      mutex_.AssertHeld();
      // The last answer may arrive before the end of the last write is known.
      return (to_read_ == 0 && !writing_) || broken_;
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&answered), timeout)) {
      return absl::DeadlineExceededError(
          absl::StrCat("the raw stream: no answer within ", absl::FormatDuration(timeout)));
    }
    if (broken_) return absl::UnavailableError("the raw stream broke");
    return absl::Now() - start;
  }

 private:
  size_t NextToWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const size_t bytes = std::min(to_write_, kMessageBytes);
    to_write_ -= bytes;
    return bytes;
  }
  void OnReadDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      broken_ |= !ok;
      to_read_ -= std::min(to_read_, incoming_.Length());
    }
    incoming_.Clear();
    if (ok) StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    size_t bytes;
    {
      absl::MutexLock lock(&mutex_);
      broken_ |= !ok;
      bytes = broken_ ? 0 : NextToWrite();
      writing_ = bytes > 0;
    }
    if (bytes > 0) Write(bytes);
  }
  void Write(size_t bytes) {
    outgoing_ = messages_.Next(bytes);
    StartWrite(&outgoing_);
  }
  void OnDone(const grpc::Status&) override { done_.Notify(); }

  Messages messages_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_, outgoing_;
  absl::Mutex mutex_;
  size_t to_read_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t to_write_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Notification done_;
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* NewRawStreamReactor() { return new Reactor; }

absl::StatusOr<std::unique_ptr<RawStream>> RawStream::Open(const std::string& address) {
  ChannelOptions options;
  options.receive_bytes_max = static_cast<int>(kFrameBytesMax);
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, CreateChannel(address, options));
  return std::make_unique<Client>(std::move(channel));
}

}  // namespace cairn
