#include "client/session_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "cairn/v1/cluster.grpc.pb.h"
#include "client/leader_finder.h"
#include "client/limits.h"
#include "common/base/executor.h"
#include "common/base/version.h"
#include "common/rpc/backoff.h"
#include "common/rpc/byte_buffer.h"
#include "common/rpc/channel.h"
#include "common/rpc/credentials.h"
#include "common/rpc/daemon.h"
#include "common/rpc/log_answer.h"
#include "common/rpc/trace_answer.h"
#include "common/rpc/utf8_message.h"

namespace cairn {
namespace {

// How long it may take from opening the stream to Welcome.
constexpr absl::Duration kWelcomeTimeout = absl::Seconds(5);
// A cluster's daemons are often started together, and a coordinator listens about 50 ms after that.
constexpr absl::Duration kBackoffInitial = absl::Milliseconds(20);
// With several coordinators, one is elected within seconds; nodes should connect soon after.
constexpr absl::Duration kBackoffMaxOfSeveral = absl::Milliseconds(500);
// Bounds of a Welcome's fields. Values beyond them would make this client busy-loop, or be declared dead.
constexpr int kHeartbeatMsMin = 10;

}  // namespace

// Everything except Send and the reactor's callbacks runs on executor_. The reactor's callbacks only post.
class SessionClient::Impl {
 public:
  Impl(const std::string& addresses, SessionCallbacks callbacks)
      : addresses_(ParseCoordinators(addresses)),
        callbacks_(std::move(callbacks)),
        finder_(addresses_.value_or(std::vector<std::string>())),
        backoff_({.initial = kBackoffInitial, .max = finder_.several() ? kBackoffMaxOfSeveral : absl::Seconds(1)},
                 RandomBits()),
        executor_("session") {
    executor_.Post([this] { Connect(); });
  }

  void Stop() {
    executor_.RunAndWait([this] {
      stopping_ = true;
      if (stream_ == nullptr) {
        ended_.Notify();  // there is no stream: it was waiting for its next attempt
      } else {
        stream_->context.TryCancel();
      }
    });
    ended_.WaitForNotification();  // the call is cancelled, so OnDone follows at once
    executor_.Stop();
  }

  void Send(v1::NodeMessage message) {
    MakeUtf8(&message);  // an error may contain a file name that is not UTF-8
    const size_t bytes = message.ByteSizeLong();
    const bool fits = queued_bytes_.fetch_add(bytes) + bytes <= kSessionClientQueueBytesMax;
    executor_.Post([this, fits, bytes, message = std::move(message)]() mutable {
      if (stream_ == nullptr || !fits) {
        queued_bytes_ -= bytes;
        if (stream_ != nullptr) stream_->context.TryCancel();
        return;
      }
      Enqueue(std::move(message), bytes);
    });
  }

 private:
  // One attempt. Owned by Impl until OnDone. A hold keeps the call open while the executor may start reads and writes.
  struct Stream : grpc::ClientBidiReactor<v1::NodeMessage, v1::CoordinatorMessage> {
    explicit Stream(Impl* owner) : owner(owner) {}

    void OnReadDone(bool ok) override {
      owner->executor_.Post([this, ok] { owner->OnRead(ok); });
    }
    void OnWriteDone(bool ok) override {
      owner->executor_.Post([this, ok] { owner->OnWritten(ok); });
    }
    void OnDone(const grpc::Status& status) override {
      owner->executor_.Post([owner = owner, status] { owner->OnEnded(FromGrpcStatus(status)); });
    }

    Impl* const owner;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::Coordinator::Stub> stub;
    grpc::ClientContext context;
    v1::CoordinatorMessage incoming;
    struct Outgoing {
      v1::NodeMessage message;
      size_t bytes = 0;
    };
    std::deque<Outgoing> outgoing;  // the first is being written
    bool writing = false;
    bool closed = false;  // the hold is released: nothing may be started any more
    bool up = false;
  };

  void Connect() {
    if (stopping_) return;
    // Uses a new channel for each attempt, so that this class' back-off applies, not the channel's.
    auto channel = addresses_.ok() ? CreateChannel(finder_.current(), {}) : addresses_.status();
    if (!channel.ok()) {
      Rejected(channel.status());
      executor_.PostAfter(backoff_.Next(), [this] { Connect(); });
      return;
    }
    stream_ = std::make_unique<Stream>(this);
    ++epoch_;
    stream_->channel = *std::move(channel);
    stream_->stub = v1::Coordinator::NewStub(stream_->channel);
    stream_->stub->async()->Session(&stream_->context, stream_.get());
    stream_->AddHold();
    stream_->StartRead(&stream_->incoming);
    stream_->StartCall();
    v1::NodeMessage message;
    *message.mutable_hello() = callbacks_.hello();
    message.mutable_hello()->set_serves_log(true);
    message.mutable_hello()->set_serves_trace(callbacks_.trace != nullptr);
    const size_t bytes = message.ByteSizeLong();
    queued_bytes_ += bytes;
    Enqueue(std::move(message), bytes);
    executor_.PostAfter(kWelcomeTimeout, [this, epoch = epoch_] {
      if (epoch == epoch_ && stream_ != nullptr && !stream_->up) stream_->context.TryCancel();
    });
  }

  void Enqueue(v1::NodeMessage message, size_t bytes) {
    stream_->outgoing.push_back({std::move(message), bytes});
    WriteNext();
  }

  void WriteNext() {
    Stream& s = *stream_;
    if (s.closed || s.writing || s.outgoing.empty()) return;
    s.writing = true;
    s.StartWrite(&s.outgoing.front().message);
  }

  void OnWritten(bool ok) {
    Stream& s = *stream_;
    s.writing = false;
    queued_bytes_ -= s.outgoing.front().bytes;
    s.outgoing.pop_front();
    if (ok) WriteNext();  // otherwise the read fails too and ends the stream
  }

  void OnRead(bool ok) {
    Stream& s = *stream_;
    if (!ok) {
      s.closed = true;
      s.RemoveHold();
      return;
    }
    if (s.incoming.has_welcome() && !s.up) {
      if (const absl::Status status = CheckInterface(s.incoming.welcome()); !status.ok()) {
        Rejected(status);
        s.context.TryCancel();
        s.StartRead(&s.incoming);
        return;
      }
      s.up = true;
      rejected_ = absl::OkStatus();
      unreached_ = 0;
      backoff_.Reset();
      finder_.Served();
      heartbeat_interval_ = absl::Milliseconds(
          std::clamp(s.incoming.welcome().heartbeat_interval_ms(), kHeartbeatMsMin, kHeartbeatMsMax));
      if (callbacks_.on_message) callbacks_.on_message(s.incoming);
      if (callbacks_.on_connection) callbacks_.on_connection(true);
      Beat(epoch_);
    } else if (s.up && s.incoming.has_fetch_log()) {
      v1::NodeMessage answer;
      answer.mutable_log_read()->set_request_id(s.incoming.fetch_log().request_id());
      *answer.mutable_log_read()->mutable_log() = AnswerReadLog(s.incoming.fetch_log().request());
      Send(std::move(answer));
    } else if (s.up && s.incoming.has_fetch_trace() && callbacks_.trace != nullptr) {
      v1::NodeMessage answer;
      *answer.mutable_trace_read() = AnswerTrace(*callbacks_.trace, s.incoming.fetch_trace());
      if (!s.incoming.fetch_trace().forget()) Send(std::move(answer));
    } else if (s.up && callbacks_.on_message) {
      callbacks_.on_message(s.incoming);
    }
    s.StartRead(&s.incoming);
  }

  void Beat(uint64_t epoch) {
    if (epoch != epoch_ || stream_ == nullptr || stream_->closed) return;
    if (callbacks_.trace != nullptr) callbacks_.trace->Tick();
    v1::NodeMessage message;
    if (callbacks_.heartbeat) {
      *message.mutable_heartbeat() = callbacks_.heartbeat();
    } else {
      message.mutable_heartbeat();
    }
    const size_t bytes = message.ByteSizeLong();
    queued_bytes_ += bytes;
    Enqueue(std::move(message), bytes);
    executor_.PostAfter(heartbeat_interval_, [this, epoch] { Beat(epoch); });
  }

  // The coordinator checks as much; one of long before does not know of interfaces.
  static absl::Status CheckInterface(const v1::Welcome& welcome) {
    const uint32_t its = InterfaceOf(welcome.interface());
    if (WorkTogether(its, ClusterInterface())) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("welcome.interface: the coordinator is ", ProgramText(welcome.version(), its), ", this node is ",
                     ProgramText(ProgramVersion(), ClusterInterface()),
                     "; programs of a cluster are at most one interface apart: bring all to one release first"));
  }

  // The attempt is repeated every second; the same reason is logged once.
  void Rejected(const absl::Status& status) {
    if (std::exchange(rejected_, status) != status && callbacks_.on_rejected) callbacks_.on_rejected(status);
  }

  void OnEnded(const absl::Status& status) {
    const bool was_up = stream_->up;
    const std::string leader = absl::IsUnavailable(status) ? LeaderNamedBy(stream_->context) : "";
    for (const auto& out : stream_->outgoing) queued_bytes_ -= out.bytes;
    stream_.reset();
    if (callbacks_.trace != nullptr) callbacks_.trace->Clear();  // nobody can ask for it any more
    if (was_up && callbacks_.on_connection) callbacks_.on_connection(false);
    if (stopping_) {
      ended_.Notify();
      return;
    }
    if (absl::IsAlreadyExists(status) || absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status)) {
      Rejected(status);
    } else if (!was_up && leader.empty() && ++unreached_ == addresses_->size() && callbacks_.on_unreached) {
      callbacks_.on_unreached(
          absl::Status(status.code(), absl::StrCat(status.message(), TlsHint(std::string(status.message())))));
    }
    const bool at_once = finder_.Failed(leader);
    executor_.PostAfter(at_once ? absl::ZeroDuration() : backoff_.Next(), [this] { Connect(); });
  }

  static std::string LeaderNamedBy(const grpc::ClientContext& context) {
    const auto& metadata = context.GetServerTrailingMetadata();
    const auto it = metadata.find(kLeaderMetadata);
    return it == metadata.end() ? "" : std::string(it->second.data(), it->second.size());
  }

  const absl::StatusOr<std::vector<std::string>> addresses_;
  const SessionCallbacks callbacks_;
  std::atomic<size_t> queued_bytes_{0};  // passed to Send or queued, and not yet written
  absl::Notification ended_;
  // On the executor:
  bool stopping_ = false;
  absl::Status rejected_;  // the latest reason; OK after a session was established
  size_t unreached_ = 0;   // consecutive attempts that reached no coordinator
  std::unique_ptr<Stream> stream_;
  uint64_t epoch_ = 0;  // identifies stream_, so that a timer notices that its stream is gone
  LeaderFinder finder_;
  Backoff backoff_;  // its jitter at most halves a delay
  absl::Duration heartbeat_interval_ = absl::Milliseconds(500);
  SerialExecutor executor_;  // last: its thread uses all of the above
};

SessionClient::SessionClient(const std::string& coordinators, SessionCallbacks callbacks)
    : impl_(std::make_shared<Impl>(coordinators, std::move(callbacks))) {}

SessionClient::~SessionClient() { impl_->Stop(); }

void SessionClient::Send(v1::NodeMessage message) { impl_->Send(std::move(message)); }

}  // namespace cairn
