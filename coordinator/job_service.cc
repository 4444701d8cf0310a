#include "coordinator/job_service.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "common/formats/expand_model.h"
#include "coordinator/grpc_status.h"

namespace cairn {
namespace {

// A call without a deadline gets this one.
constexpr absl::Duration kEvaluateTimeoutDefault = absl::Minutes(10);
constexpr absl::Duration kTimeoutsAreLessThan = absl::Hours(24);

// Puts the reply's body into *response and finishes the call. All three live until Finish.
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

// The answer to a query when there is nothing to ask.
std::function<void(const absl::Status&)> Refuse(grpc::CallbackServerContext* context,
                                                grpc::ServerUnaryReactor* reactor) {
  return [context, reactor](const absl::Status& status) { reactor->Finish(ToGrpc(status, context)); };
}

// One WatchJob stream. Owned by itself until OnDone, and by the driver until it is gone there.
// Invariant: Finish is called once, with no write in flight; nothing is started after it.
class WatchReactor final : public grpc::ServerWriteReactor<v1::JobStatus>,
                           public WatchSink,
                           public std::enable_shared_from_this<WatchReactor> {
 public:
  WatchReactor(ClusterDriver* driver, grpc::CallbackServerContext* context) : driver_(driver), context_(context) {}

  void Start(const v1::GetJobRequest& request) {
    self_ = shared_from_this();
    driver_->Watch(request, self_, [self = self_](uint64_t watcher) { self->Opened(watcher); });
  }

  void Write(v1::JobStatus status) override {
    absl::MutexLock lock(&mutex_);
    if (end_) return;
    outgoing_ = std::move(status);
    writing_ = true;
    StartWrite(&outgoing_);
  }

  void Finish(const absl::Status& status) override {
    absl::MutexLock lock(&mutex_);
    if (end_) return;
    end_ = status;
    FinishIfIdle();
  }

  void OnWriteDone(bool ok) override {
    uint64_t watcher;
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok && !end_) end_ = absl::CancelledError("the stream broke");
      if (end_) FinishIfIdle();
      watcher = watcher_;
    }
    driver_->WatcherWritten(watcher);
  }

  void OnCancel() override { Finish(absl::CancelledError("the caller is gone")); }

  void OnDone() override {
    uint64_t watcher;
    {
      absl::MutexLock lock(&mutex_);
      watcher = watcher_;
    }
    driver_->WatcherGone(watcher);
    self_.reset();  // may delete this
  }

 private:
  void Opened(uint64_t watcher) {
    absl::MutexLock lock(&mutex_);
    watcher_ = watcher;
    // Already cancelled: OnDone came, or comes, with no watcher to remove.
    if (end_) driver_->WatcherGone(watcher);
  }

  void FinishIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    finished_ = true;
    grpc::ServerWriteReactor<v1::JobStatus>::Finish(ToGrpc(*end_, context_));
  }

  ClusterDriver* const driver_;
  grpc::CallbackServerContext* const context_;  // until Finish
  std::shared_ptr<WatchReactor> self_;
  absl::Mutex mutex_;
  uint64_t watcher_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::JobStatus outgoing_;  // while writing_
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

// One Predict stream, as WatchReactor. It holds one part at a time: the one that is being written.
class PredictReactor final : public grpc::ServerWriteReactor<v1::PredictResponse>,
                             public PredictionSink,
                             public std::enable_shared_from_this<PredictReactor> {
 public:
  PredictReactor(ClusterDriver* driver, grpc::CallbackServerContext* context) : driver_(driver), context_(context) {}

  void Start(const v1::PredictRequest& request, absl::Time deadline) {
    self_ = shared_from_this();
    v1::EvaluateRequest what;
    *what.mutable_job() = request.job();
    what.set_split(request.split());
    what.set_weights(request.weights());
    if (request.has_data()) *what.mutable_data() = request.data();
    driver_->Predict([what, deadline](ReplyToken token) { return PredictJob{token, what, deadline}; }, self_,
                     [self = self_](ReplyToken token) { self->Opened(token); });
  }

  void Write(v1::PredictResponse part) override {
    absl::MutexLock lock(&mutex_);
    if (end_) return;
    outgoing_ = std::move(part);
    writing_ = true;
    StartWrite(&outgoing_);
  }

  void Finish(const absl::Status& status) override {
    absl::MutexLock lock(&mutex_);
    if (end_) return;
    end_ = status;
    FinishIfIdle();
  }

  void OnWriteDone(bool ok) override {
    ReplyToken token;
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok && !end_) end_ = absl::CancelledError("the stream broke");
      if (end_) FinishIfIdle();
      token = token_;
    }
    driver_->PredictionTaken(token);
  }

  void OnCancel() override { Finish(absl::CancelledError("the caller is gone")); }

  void OnDone() override {
    ReplyToken token;
    {
      absl::MutexLock lock(&mutex_);
      token = token_;
    }
    if (token.value != 0) driver_->PredictionGone(token);
    self_.reset();  // may delete this
  }

 private:
  void Opened(ReplyToken token) {
    absl::MutexLock lock(&mutex_);
    token_ = token;
    // Already cancelled: OnDone came, or comes, without a token.
    if (end_) driver_->PredictionGone(token);
  }

  void FinishIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    finished_ = true;
    grpc::ServerWriteReactor<v1::PredictResponse>::Finish(ToGrpc(*end_, context_));
  }

  ClusterDriver* const driver_;
  grpc::CallbackServerContext* const context_;  // until Finish
  std::shared_ptr<PredictReactor> self_;
  absl::Mutex mutex_;
  ReplyToken token_ ABSL_GUARDED_BY(mutex_);
  v1::PredictResponse outgoing_;  // while writing_
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
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
