#include "coordinator/node/job_service.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "common/formats/expand_model.h"
#include "coordinator/node/grpc_status.h"

namespace cairn {
namespace {

// The deadline of calls that have none.
constexpr absl::Duration kEvaluateTimeoutDefault = absl::Minutes(10);
constexpr absl::Duration kTimeoutsAreLessThan = absl::Hours(24);

// Moves the reply's body to *response and finishes the call. All three must live until Finish.
template <typename Response>
ClusterDriver::ReplyFn FinishWith(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                                  Response* response) {
  return [context, reactor, response](const absl::Status& status, const ReplyBody& body) {
    if (status.ok()) {
      if (const Response* reply = std::get_if<Response>(&body)) *response = *reply;
    }
    reactor->Finish(ToGrpc(status, context));
  };
}

// The response to a query when there is no driver to ask.
std::function<void(const absl::Status&)> Refuse(grpc::CallbackServerContext* context,
                                                grpc::ServerUnaryReactor* reactor) {
  return [context, reactor](const absl::Status& status) { reactor->Finish(ToGrpc(status, context)); };
}

// The driver's side of a response stream, sent one part at a time. Handle: identifies the stream in the driver; a
// default-constructed one means none. Owned by itself until OnDone, and by the driver until the driver drops it.
// Invariant: Finish is called once, with no write in flight; nothing is started after it.
template <typename Part, typename Sink, typename Handle>
class StreamReactor : public grpc::ServerWriteReactor<Part>,
                      public Sink,
                      public std::enable_shared_from_this<StreamReactor<Part, Sink, Handle>> {
 public:
  StreamReactor(ClusterDriver* driver, grpc::CallbackServerContext* context) : driver_(driver), context_(context) {}

  void Write(Part part) override {
    absl::MutexLock lock(&mutex_);
    if (end_) return;
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

  // Call before asking the driver. The driver's answer goes to Opened.
  std::shared_ptr<StreamReactor> Own() { return self_ = this->shared_from_this(); }
  void Opened(Handle handle) {
    absl::MutexLock lock(&mutex_);
    handle_ = handle;
    // Already cancelled: OnDone has run, or will run, without a handle.
    if (end_) Gone(handle);
  }

  ClusterDriver* const driver_;

 private:
  void FinishIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    finished_ = true;
    grpc::ServerWriteReactor<Part>::Finish(ToGrpc(*end_, context_));
  }

  grpc::CallbackServerContext* const context_;  // until Finish
  std::shared_ptr<StreamReactor> self_;
  absl::Mutex mutex_;
  Handle handle_ ABSL_GUARDED_BY(mutex_) = {};
  Part outgoing_;  // while writing_
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

class WatchReactor final : public StreamReactor<v1::JobStatus, WatchSink, uint64_t> {
 public:
  using StreamReactor::StreamReactor;

  void Start(const v1::GetJobRequest& request) {
    const auto self = Own();
    driver_->Watch(request, self, [this, self](uint64_t watcher) { Opened(watcher); });
  }

 private:
  void Written(uint64_t watcher) override { driver_->WatcherWritten(watcher); }
  void Gone(uint64_t watcher) override { driver_->WatcherGone(watcher); }
};

class PredictReactor final : public StreamReactor<v1::PredictResponse, PredictionSink, ReplyToken> {
 public:
  using StreamReactor::StreamReactor;

  void Start(const v1::PredictRequest& request, absl::Time deadline) {
    const auto self = Own();
    v1::EvaluateRequest what;
    *what.mutable_job() = request.job();
    what.set_split(request.split());
    what.set_weights(request.weights());
    if (request.has_data()) *what.mutable_data() = request.data();
    driver_->Predict(
        [what, deadline](ReplyToken token) {
          return PredictJob{token, what, deadline};
        },
        self, [this, self](ReplyToken token) { Opened(token); });
  }

 private:
  void Written(ReplyToken token) override { driver_->PredictionTaken(token); }
  void Gone(ReplyToken token) override { driver_->PredictionGone(token); }
};

absl::Time DeadlineOf(grpc::CallbackServerContext* context, Clock* clock) {
  const absl::Duration left = absl::FromChrono(context->deadline()) - absl::Now();
  return clock->Now() + (left < kTimeoutsAreLessThan ? left : kEvaluateTimeoutDefault);
}

absl::StatusOr<CheckedJob> CheckSubmission(v1::JobSpec spec) {
  CAIRN_RETURN_IF_ERROR(ExpandJob(&spec));
  return CheckJob(spec);
}

}  // namespace

grpc::ServerUnaryReactor* JobServiceImpl::Submit(grpc::CallbackServerContext* context, const v1::SubmitRequest* request,
                                                 v1::SubmitResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<CheckedJob> checked = CheckSubmission(request->spec());
  if (!checked.ok()) {
    reactor->Finish(ToGrpc(checked.status(), context));
    return reactor;
  }
  auto job = std::make_shared<const CheckedJob>(*std::move(checked));
  driver_->Call(
      [job, key = request->request_key()](ReplyToken token) {
        return SubmitJob{token, job, key};
      },
      FinishWith(context, reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest*,
                                                   v1::ListJobsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  driver_->Query(
      [reactor, response](const ClusterCore& core, absl::Time now) {
        *response = core.ListJobs(now);
        reactor->Finish(grpc::Status::OK);
      },
      Refuse(context, reactor));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                                 v1::JobStatus* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  driver_->Query(
      [context, reactor, request, response](const ClusterCore& core, absl::Time now) {
        absl::StatusOr<v1::JobStatus> status = core.GetJob(*request, now);
        if (status.ok()) *response = *status;
        reactor->Finish(ToGrpc(status.status(), context));
      },
      Refuse(context, reactor));
  return reactor;
}

grpc::ServerWriteReactor<v1::JobStatus>* JobServiceImpl::WatchJob(grpc::CallbackServerContext* context,
                                                                  const v1::GetJobRequest* request) {
  auto reactor = std::make_shared<WatchReactor>(driver_, context);
  reactor->Start(*request);
  return reactor.get();
}

grpc::ServerUnaryReactor* JobServiceImpl::CancelJob(grpc::CallbackServerContext* context,
                                                    const v1::GetJobRequest* request, v1::JobStatus* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  driver_->Call(
      [job = *request](ReplyToken token) {
        return cairn::CancelJob{token, job};
      },
      FinishWith(context, reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::DeleteJob(grpc::CallbackServerContext* context,
                                                    const v1::GetJobRequest* request, v1::DeleteJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  driver_->Call(
      [job = *request](ReplyToken token) {
        return cairn::DeleteJob{token, job};
      },
      FinishWith(context, reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::Evaluate(grpc::CallbackServerContext* context,
                                                   const v1::EvaluateRequest* request, v1::EvaluateResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Time deadline = DeadlineOf(context, clock_);
  driver_->Call(
      [request = *request, deadline](ReplyToken token) {
        return EvaluateJob{token, request, deadline};
      },
      FinishWith(context, reactor, response));
  return reactor;
}

grpc::ServerWriteReactor<v1::PredictResponse>* JobServiceImpl::Predict(grpc::CallbackServerContext* context,
                                                                       const v1::PredictRequest* request) {
  auto reactor = std::make_shared<PredictReactor>(driver_, context);
  reactor->Start(*request, DeadlineOf(context, clock_));
  return reactor.get();
}

grpc::ServerUnaryReactor* JobServiceImpl::ListNodes(grpc::CallbackServerContext* context, const v1::ListNodesRequest*,
                                                    v1::ListNodesResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  driver_->Query(
      [reactor, response](const ClusterCore& core, absl::Time) {
        *response = core.ListNodes();
        reactor->Finish(grpc::Status::OK);
      },
      Refuse(context, reactor));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::DrainNode(grpc::CallbackServerContext* context,
                                                    const v1::DrainNodeRequest* request, v1::NodeStatus* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  driver_->Call(
      [request = *request](ReplyToken token) {
        return cairn::DrainNode{token, request};
      },
      FinishWith(context, reactor, response));
  return reactor;
}

}  // namespace cairn
