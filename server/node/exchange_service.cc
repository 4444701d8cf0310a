#include "server/node/exchange_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "cairn/v1/parameter.grpc.pb.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/rpc/assembler.h"
#include "common/rpc/byte_buffer.h"

namespace cairn {
namespace {

// A snapshot that waits for its turn asks again so often.
constexpr absl::Duration kSnapshotPoll = absl::Milliseconds(5);

// A clock that is set back would hold snapshots up for as long.
absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

// One call. It lives until OnDone has run and nobody holds a reference (the map of streams, credits, senders).
// gRPC's rule: no operation may be started after Finish; Finish is started once, when nobody writes.
class ExchangeService::Stream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                                public std::enable_shared_from_this<ExchangeService::Stream> {
 public:
  Stream(ExchangeService* service, uint64_t client)
      : service_(service),
        client_(client),
        assembler_(2 * kPartitionBytesMax, kPartitionBytesMax, &service->received_) {}

  void Start(std::shared_ptr<Stream> self) {
    self_ = std::move(self);
    StartReadUnlocked();
  }

  // Every frame sent is the one answer to a request delivered, or a part of it.
  void Send(Frame frame) {
    const bool last = frame.kind != v1::ExchangeFrame::IMAGE || frame.tensor + 1 >= frame.tensors;
    {
      absl::MutexLock lock(&mutex_);
      if (last && unanswered_ > 0) --unanswered_;
      if (half_closed_ && unanswered_ == 0 && !ending_.has_value()) ending_ = grpc::Status::OK;
      if (finishing_) return;
      // A snapshot shares its bytes with the partition, and waits while there is anything else to send: a step is late
      // by one chunk of it at most.
      const bool bulk = frame.kind == v1::ExchangeFrame::IMAGE;
      (bulk ? bulk_bytes_ : sending_bytes_) += frame.payload.size() + kFrameOverheadBytes;
      (bulk ? bulk_ : queue_).emplace_back(std::move(frame));
      if (writing_) return;
      writing_ = true;
    }
    Pump();
  }

  // Ends the stream with `status` once what is queued has been sent.
  void End(grpc::Status status) {
    {
      absl::MutexLock lock(&mutex_);
      if (ending_.has_value()) return;
      ending_ = std::move(status);
      if (writing_) return;
      writing_ = true;
    }
    Pump();
  }

 private:
  static constexpr size_t kFrameOverheadBytes = 512;  // what a frame without payload counts for

  void OnReadDone(bool ok) override {
    if (!ok) {  // the client has closed its side, and gets its answers yet; or it is gone: OnCancel
      {
        absl::MutexLock lock(&mutex_);
        half_closed_ = true;
        if (unanswered_ > 0) return;
      }
      End(grpc::Status::OK);
      return;
    }
    absl::StatusOr<std::optional<Frame>> frame = ReceiveFrame(incoming_, &assembler_);
    incoming_.Clear();
    if (!frame.ok()) {
      LogWarning("exchange: client %d: %s", client_, frame.status().ToString());
      End(ToGrpcStatus(frame.status()));
      return;
    }
    if (frame->has_value()) Deliver(**std::move(frame));
    {
      absl::MutexLock lock(&mutex_);
      if (ending_.has_value()) return;
      if (handling_bytes_ > kStreamHandlingBytesMax || sending_bytes_ > kStreamQueueBytesMax ||
          bulk_bytes_ > kStreamBulkBytesMax) {
        read_paused_ = true;
        return;
      }
      ++starting_reads_;
    }
    StartReadUnlocked();
  }

  void Deliver(Frame frame) {
    const size_t bytes = frame.payload.size() + kFrameOverheadBytes;
    const bool received = frame.kind == v1::ExchangeFrame::ERROR || frame.status.ok();
    const bool room = received && service_->received_.TryTake(bytes);
    {
      absl::MutexLock lock(&mutex_);
      if (ending_.has_value()) {
        if (room) service_->received_.Give(bytes);
        return;
      }
      if (room) handling_bytes_ += bytes;
      if (frame.kind != v1::ExchangeFrame::IMAGE || frame.tensor == 0) ++unanswered_;
    }
    if (!room) return Refuse(frame);
    // The credit is a reference to this stream whose deleter gives the bytes back.
    Credit credit(this, [self = shared_from_this(), bytes](void*) { self->GiveBack(bytes); });
    service_->handler_->OnFrame(client_, std::move(frame), std::move(credit));
  }

  void Refuse(const Frame& request) {
    Frame error;
    error.kind = v1::ExchangeFrame::ERROR;
    error.request_id = request.request_id;
    error.job = request.job;
    error.partition = request.partition;
    error.status = absl::ResourceExhaustedError(
        absl::StrFormat("the ps has %d bytes of requests that it has not handled, at most %d; retry",
                        service_->received_.taken(), service_->received_.bytes_max()));
    Send(std::move(error));
  }

  void GiveBack(size_t bytes) {
    service_->received_.Give(bytes);
    {
      absl::MutexLock lock(&mutex_);
      handling_bytes_ -= bytes;
      if (!MayResumeRead()) return;
    }
    StartReadUnlocked();
  }

  bool MayResumeRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!read_paused_ || ending_.has_value()) return false;
    if (handling_bytes_ > kStreamHandlingBytesMax || sending_bytes_ > kStreamQueueBytesMax / 2) return false;
    if (bulk_bytes_ > kStreamBulkBytesMax) return false;
    read_paused_ = false;
    ++starting_reads_;
    return true;
  }

  // starting_reads_ keeps Finish away until StartRead has returned.
  void StartReadUnlocked() {
    StartRead(&incoming_);
    {
      absl::MutexLock lock(&mutex_);
      --starting_reads_;
      if (!ending_.has_value() || writing_) return;
      writing_ = true;
    }
    Pump();
  }

  // The caller has set writing_, and so alone uses outgoing_. Writes the next chunk, or finishes, or gives writing_ up.
  void Pump() {
    std::optional<Frame> chunk;
    std::optional<grpc::Status> finish;
    {
      absl::MutexLock lock(&mutex_);
      outgoing_bulk_ = queue_.empty();
      std::deque<FrameSplitter>& queue = outgoing_bulk_ ? bulk_ : queue_;
      const absl::Duration wait = queue.empty() || broken_ ? absl::ZeroDuration() : WaitToSend();
      if (wait > absl::ZeroDuration()) {
        writing_ = false;
        if (!std::exchange(resuming_, true)) {
          service_->pacer_.PostAfter(wait, [weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->Resume();
          });
        }
      } else if (!queue.empty() && !broken_) {
        chunk = queue.front().Next();
        outgoing_bytes_ = chunk->payload.size();
        if (queue.front().done()) {
          outgoing_bytes_ += kFrameOverheadBytes;
          queue.pop_front();
        }
      } else if (ending_.has_value() && starting_reads_ == 0 && !finishing_) {
        finishing_ = true;  // writing_ stays set: nothing may be started any more
        queue_.clear();
        bulk_.clear();
        finish = *ending_;
      } else {
        writing_ = finishing_;
      }
    }
    if (chunk.has_value()) {
      outgoing_ = ToByteBuffer(*chunk);
      StartWrite(&outgoing_);
    } else if (finish.has_value()) {
      Finish(*finish);
    }
  }

  // Before the next chunk.
  absl::Duration WaitToSend() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (ending_.has_value()) return absl::ZeroDuration();
    const size_t left = outgoing_bulk_ ? bulk_.front().bytes_left() : queue_.front().bytes_left();
    const size_t bytes = kFrameOverheadBytes + std::min(left, kFramePayloadBytesMax);
    if (outgoing_bulk_) return service_->WaitForSnapshot(bytes);
    service_->NoteTraffic(bytes);
    return absl::ZeroDuration();
  }

  // The snapshot's turn has come.
  void Resume() {
    {
      absl::MutexLock lock(&mutex_);
      resuming_ = false;
      if (writing_) return;
      writing_ = true;
    }
    Pump();
  }

  void OnWriteDone(bool ok) override {
    outgoing_.Clear();
    bool resume;
    {
      absl::MutexLock lock(&mutex_);
      (outgoing_bulk_ ? bulk_bytes_ : sending_bytes_) -= outgoing_bytes_;
      if (!ok) {
        broken_ = true;
        if (!ending_.has_value()) ending_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the client is gone");
      }
      resume = MayResumeRead();
    }
    if (resume) StartReadUnlocked();
    Pump();
  }

  void OnCancel() override {
    {
      absl::MutexLock lock(&mutex_);
      broken_ = true;
    }
    End(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    service_->handler_->OnClientGone(client_);
    std::shared_ptr<Stream> self = std::move(self_);
    service_->Forget(client_);
  }

  ExchangeService* const service_;
  const uint64_t client_;
  FrameAssembler assembler_;              // reads only
  grpc::ByteBuffer incoming_, outgoing_;  // of the one read and the one write
  size_t outgoing_bytes_ = 0;
  bool outgoing_bulk_ = false;    // from which queue
  std::shared_ptr<Stream> self_;  // until OnDone

  absl::Mutex mutex_;
  std::deque<FrameSplitter> queue_ ABSL_GUARDED_BY(mutex_);
  size_t sending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<FrameSplitter> bulk_ ABSL_GUARDED_BY(mutex_);  // after queue_
  size_t bulk_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t handling_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool resuming_ ABSL_GUARDED_BY(mutex_) = false;  // Resume comes
  bool read_paused_ ABSL_GUARDED_BY(mutex_) = false;
  int starting_reads_ ABSL_GUARDED_BY(mutex_) = 1;  // the first: Start
  int unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;     // writes cannot succeed
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called, or is about to be
  std::optional<grpc::Status> ending_ ABSL_GUARDED_BY(mutex_);
};

class ExchangeService::Service
    : public v1::ParameterServer::WithRawCallbackMethod_Exchange<v1::ParameterServer::Service> {
 public:
  explicit Service(ExchangeService* owner) : owner_(owner) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(grpc::CallbackServerContext*) override {
    std::shared_ptr<Stream> stream;
    bool stopping;
    {
      absl::MutexLock lock(&owner_->mutex_);
      const uint64_t client = owner_->next_client_++;
      stream = std::make_shared<Stream>(owner_, client);
      owner_->streams_.emplace(client, stream);
      stopping = owner_->stopping_;
    }
    stream->Start(stream);
    if (stopping) stream->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the ps is stopping; retry"));
    return stream.get();
  }

 private:
  ExchangeService* const owner_;
};

ExchangeService::ExchangeService(ExchangeHandler* handler, size_t received_bytes_max, const SnapshotPace& pace)
    : handler_(handler),
      received_(received_bytes_max),
      service_(std::make_unique<Service>(this)),
      pace_(pace),
      pacer_("snapshots") {}

ExchangeService::~ExchangeService() = default;

grpc::Service* ExchangeService::service() { return service_.get(); }

void ExchangeService::Send(uint64_t client, Frame frame) {
  std::shared_ptr<Stream> stream;
  {
    absl::MutexLock lock(&mutex_);
    auto it = streams_.find(client);
    if (it == streams_.end()) return;
    stream = it->second;
  }
  stream->Send(std::move(frame));
}

void ExchangeService::NoteTraffic(size_t bytes) {
  absl::MutexLock lock(&pace_mutex_);
  traffic_at_ = SteadyNow();
  const bool wanted = traffic_at_ - wanted_at_ < pace_.idle_after;
  snapshot_bytes_ =
      wanted ? snapshot_bytes_ + pace_.share * static_cast<double>(bytes) : static_cast<double>(pace_.free_bytes);
}

absl::Duration ExchangeService::WaitForSnapshot(size_t bytes) {
  absl::MutexLock lock(&pace_mutex_);
  wanted_at_ = SteadyNow();
  if (wanted_at_ - traffic_at_ >= pace_.idle_after) return absl::ZeroDuration();
  if (snapshot_bytes_ >= static_cast<double>(bytes)) {
    snapshot_bytes_ -= static_cast<double>(bytes);
  } else if (wanted_at_ < snapshot_due_) {
    return kSnapshotPoll;
  }
  snapshot_due_ = wanted_at_ + absl::Seconds(static_cast<double>(bytes) / pace_.bytes_per_second_min);
  return absl::ZeroDuration();
}

void ExchangeService::Forget(uint64_t client) {
  absl::MutexLock lock(&mutex_);
  streams_.erase(client);
}

void ExchangeService::Shutdown(absl::Duration grace) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    for (const auto& [client, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams)
    stream->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the ps is stopping; retry"));
  streams.clear();
  absl::MutexLock lock(&mutex_);
  const auto none_left = [this] {
    mutex_.AssertHeld();
    return streams_.empty();
  };
  mutex_.AwaitWithTimeout(absl::Condition(&none_left), grace);
}

size_t ExchangeService::clients() const {
  absl::MutexLock lock(&mutex_);
  return streams_.size();
}

}  // namespace cairn
