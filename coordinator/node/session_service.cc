#include "coordinator/node/session_service.h"

#include <deque>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/text.h"
#include "common/rpc/access.h"
#include "common/rpc/caller_certificate.h"
#include "common/rpc/limits.h"
#include "common/rpc/peer.h"
#include "common/rpc/refusal.h"
#include "coordinator/core/limits.h"
#include "coordinator/node/grpc_status.h"

namespace cairn {
namespace {

constexpr char kMethod[] = "/cairn.v1.Coordinator/Session";

static_assert(kConnectionsAtOnceMax >= kSessionsOfMachineMax, "all nodes of a machine may come back at once");

//   1. Finish is called once, with no write in flight; nothing is started after it.
//   2. It owns itself until OnDone. The driver may keep it longer; its Send and Close then do nothing.
class SessionReactor final : public grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>,
                             public SessionSink,
                             public std::enable_shared_from_this<SessionReactor> {
 public:
  SessionReactor(const SessionDoor& door, grpc::CallbackServerContext* context,
                 absl::StatusOr<MachinePlaces::Place> place)
      : door_(door), context_(context), place_(std::move(place)), reads_{.certificate = CallerCertificate(*context)} {}

  void Start() {
    self_ = shared_from_this();
    if (place_.ok()) return StartRead(&reads_.message);
    Close(place_.status());
  }

  // ---- SessionSink, on the driver's executor ----

  void Send(v1::CoordinatorMessage message) override {
    absl::MutexLock lock(&mutex_);
    if (closing_) return;
    const size_t bytes = message.ByteSizeLong();
    if (queued_bytes_ + bytes > kSessionQueueBytesMax) {
      return CloseLocked(absl::ResourceExhaustedError("the node does not read its commands"));
    }
    queued_bytes_ += bytes;
    outgoing_.push_back(std::move(message));
    WriteNext();
  }

  void Close(const absl::Status& reason) override {
    absl::MutexLock lock(&mutex_);
    CloseLocked(reason);
  }

  // ---- gRPC ----

  void OnReadDone(bool ok) override {
    if (!ok) return Close(absl::CancelledError("the node closed the stream"));
    if (absl::Status holds = reads_.certificate.Check(absl::Now()); !holds.ok()) {
      return reads_.opened ? Close(holds) : Refuse(holds);
    }
    if (reads_.opened) return Forward();
    reads_.opened = true;
    if (!reads_.message.has_hello())
      return Close(absl::InvalidArgumentError("the first message of a session must be hello"));
    const v1::Hello& hello = reads_.message.hello();
    const CallerRole role = hello.role() == v1::PS ? CallerRole::kPs : CallerRole::kWorker;
    if (absl::Status may = CheckNodeName(role, hello.name(), CallerOf(*context_)); !may.ok()) return Refuse(may);
    door_.driver->SessionOpened(shared_from_this(), std::move(*reads_.message.mutable_hello()),
                                [self = shared_from_this()](SessionToken token) { self->Opened(token); });
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!closing_) {
      queued_bytes_ -= outgoing_.front().ByteSizeLong();
      outgoing_.pop_front();
    }
    if (!ok) CloseLocked(absl::CancelledError("the stream broke"));
    if (closing_) {
      FinishIfIdle();
    } else {
      WriteNext();
    }
  }

  void OnCancel() override { Close(absl::CancelledError("the node is gone")); }

  void OnDone() override {
    SessionToken token;
    {
      absl::MutexLock lock(&mutex_);
      done_ = true;
      token = token_;
    }
    if (token.value != 0) door_.driver->SessionEnded(token);
    self_.reset();  // may delete this
  }

 private:
  void Opened(SessionToken token) {
    bool done;
    {
      absl::MutexLock lock(&mutex_);
      token_ = token;
      done = done_;
    }
    if (done) return door_.driver->SessionEnded(token);  // the session ended meanwhile
    ReadNext();
  }

  void Refuse(const absl::Status& why) {
    door_.Refuse(*context_, reads_.message.hello().name(), why);
    Close(why);
  }

  void Forward() {
    const auto read_on = [self = shared_from_this()] { self->ReadNext(); };
    door_.driver->SessionSays(token_for_reads(), std::move(reads_.message), read_on);
  }

  SessionToken token_for_reads() {
    absl::MutexLock lock(&mutex_);
    return token_;
  }

  void ReadNext() {
    absl::MutexLock lock(&mutex_);
    if (closing_) return;
    reads_.message.Clear();
    StartRead(&reads_.message);
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || closing_ || outgoing_.empty()) return;
    writing_ = true;
    StartWrite(&outgoing_.front());
  }

  void CloseLocked(const absl::Status& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (closing_) return;
    closing_ = true;
    reason_ = reason;
    FinishIfIdle();
  }

  void FinishIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    finished_ = true;
    Finish(ToGrpc(reason_, context_));
  }

  struct Reads {
    CallerCertificate certificate;
    v1::NodeMessage message = {};
    bool opened = false;
  };

  const SessionDoor door_;
  grpc::CallbackServerContext* const context_;  // until Finish
  const absl::StatusOr<MachinePlaces::Place> place_;
  std::shared_ptr<SessionReactor> self_;
  Reads reads_;  // used by the single read and its handling
  absl::Mutex mutex_;
  SessionToken token_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::CoordinatorMessage> outgoing_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void SessionDoor::Refuse(const grpc::CallbackServerContext& context, const std::string& name,
                         const absl::Status& why) const {
  if (audit != nullptr) audit->WriteRefusal(kMethod, CallerOf(context), why);
  driver->SessionRefused({name.substr(0, kNodeNameBytesMax), MachineOf(context.peer()),
                          std::string(CutUtf8({why.message().data(), why.message().size()}, kEventTextMax))});
}

grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>* SessionService::Session(
    grpc::CallbackServerContext* context) {
  if (const absl::Status may = AdmitCall(kMethod, *context); !may.ok()) {
    // The audit log has it by ObserveRefusals.
    if (!absl::IsUnavailable(may)) SessionDoor{door_.driver, nullptr}.Refuse(*context, "", may);
    return new RefusedCall<grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>>(may);
  }
  auto reactor = std::make_shared<SessionReactor>(door_, context, places_.Take(MachineOf(context->peer())));
  reactor->Start();
  return reactor.get();
}

}  // namespace cairn
