// StreamReactor: the caller's end of a stream that the driver fills, one part at a time.
//
// Thread-safe. Invariant: Finish is called once, with no write in flight; nothing is started after it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/rpc/caller_certificate.h"
#include "common/rpc/peer.h"
#include "coordinator/node/call_guard.h"
#include "coordinator/node/cluster_driver.h"
#include "coordinator/node/grpc_status.h"

namespace cairn {

// The driver's side of a response stream, sent one part at a time. Handle: identifies the stream in the driver; a
// default-constructed one means none. Owned by itself until OnDone, and by the driver until the driver drops it.
template <typename Part, typename Sink, typename Handle>
class StreamReactor : public grpc::ServerWriteReactor<Part>,
                      public Sink,
                      public std::enable_shared_from_this<StreamReactor<Part, Sink, Handle>> {
 public:
  // caller: as CallGuard::Admit has it.
  StreamReactor(ClusterDriver* driver, grpc::CallbackServerContext* context, const CallGuard& guard,
                const absl::StatusOr<Caller>& caller)
      : driver_(driver), admitted_(caller.status()), context_(context), guard_(guard), certificate_(*context) {
    if (caller.ok()) caller_ = *caller;
  }

  void Write(Part part) override {
    absl::MutexLock lock(&mutex_);
    if (end_) return;
    if (EndIfRefused()) return;
    outgoing_ = std::move(part);
    writing_ = true;
    this->StartWrite(&outgoing_);
  }

  void Finish(const absl::Status& status) override {
    absl::MutexLock lock(&mutex_);
    if (end_) return;
    end_ = status;
    FinishIfIdle();
  }

  void OnWriteDone(bool ok) override {
    Handle handle;
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok && !end_) end_ = absl::CancelledError("the stream broke");
      if (end_) FinishIfIdle();
      handle = handle_;
    }
    Written(handle);
  }

  void OnCancel() override { Finish(absl::CancelledError("the caller is gone")); }

  void OnDone() override {
    Handle handle;
    {
      absl::MutexLock lock(&mutex_);
      handle = handle_;
    }
    if (handle != Handle{}) Gone(handle);
    self_.reset();  // may delete this
  }

 protected:
  virtual void Written(Handle handle) = 0;  // the driver may send the next part
  virtual void Gone(Handle handle) = 0;
  virtual void Ended(const absl::Status&) {}  // once, before the caller learns it; must not call the stream

  // Call before asking the driver. The driver's answer goes to Opened.
  std::shared_ptr<StreamReactor> Own() { return self_ = this->shared_from_this(); }
  void Opened(Handle handle) {
    absl::MutexLock lock(&mutex_);
    handle_ = handle;
    // Already cancelled: OnDone has run, or will run, without a handle.
    if (end_) Gone(handle);
  }

  // Ends the stream if its caller's token or certificate holds no more.
  void CheckCaller() {
    absl::MutexLock lock(&mutex_);
    if (!end_) EndIfRefused();
  }

  Requester who() const { return RequesterOf(caller_); }
  // Before the call ends.
  std::string machine() const { return MachineOf(context_->peer()); }

  ClusterDriver* const driver_;
  const absl::Status admitted_;

 private:
  bool EndIfRefused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::Status holds = guard_.StillHolds(caller_);
    if (caller_.token_id.empty()) holds.Update(certificate_.Check(absl::Now()));
    if (holds.ok()) return false;
    end_ = std::move(holds);
    FinishIfIdle();
    return true;
  }
  void FinishIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    finished_ = true;
    Ended(*end_);
    grpc::ServerWriteReactor<Part>::Finish(ToGrpc(*end_, context_));
  }

  grpc::CallbackServerContext* const context_;  // until Finish
  const CallGuard guard_;
  CallerCertificate certificate_ ABSL_GUARDED_BY(mutex_);
  Caller caller_;
  std::shared_ptr<StreamReactor> self_;
  absl::Mutex mutex_;
  Handle handle_ ABSL_GUARDED_BY(mutex_) = {};
  Part outgoing_;  // while writing_
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
