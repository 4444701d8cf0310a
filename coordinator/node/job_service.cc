#include "coordinator/node/job_service.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "common/rpc/log_answer.h"
#include "common/rpc/peer.h"
#include "coordinator/node/stream_reactor.h"

namespace cairn {
namespace {

// The deadline of calls that have none.
constexpr absl::Duration kEvaluateTimeoutDefault = absl::Minutes(10);
constexpr absl::Duration kTimeoutsAreLessThan = absl::Hours(24);
constexpr char kService[] = "JobService";

class WatchReactor final : public StreamReactor<v1::JobStatus, WatchSink, uint64_t> {
 public:
  WatchReactor(ClusterDriver* driver, grpc::CallbackServerContext* context, const CallGuard& guard,
               const absl::StatusOr<Caller>& caller, Audit audit)
      : StreamReactor(driver, context, guard, caller), audit_(std::move(audit)) {}

  void Start(const v1::GetJobRequest& request) {
    const auto self = Own();
    if (!admitted_.ok()) return Finish(admitted_);
    if (const absl::Status named = CheckNameOfCall(request.name()); !named.ok()) return Finish(named);
    driver_->Watch(machine(), request, who(), self, [this, self](uint64_t watcher) { Opened(watcher); });
  }

 private:
  void Recheck() override { CheckCaller(); }
  void Written(uint64_t watcher) override { driver_->WatcherWritten(watcher); }
  void Gone(uint64_t watcher) override { driver_->WatcherGone(watcher); }
  void Ended(const absl::Status& status) override {
    if (admitted_.ok() && absl::IsPermissionDenied(status)) audit_.Tell(status);
  }

  const Audit audit_;
};

class PredictReactor final : public StreamReactor<v1::PredictResponse, PredictionSink, ReplyToken> {
 public:
  PredictReactor(ClusterDriver* driver, grpc::CallbackServerContext* context, const CallGuard& guard,
                 const absl::StatusOr<Caller>& caller, Audit audit)
      : StreamReactor(driver, context, guard, caller), audit_(std::move(audit)) {}

  void Start(const v1::PredictRequest& request, absl::Time deadline) {
    const auto self = Own();
    if (!admitted_.ok()) return Finish(admitted_);
    if (const absl::Status named = CheckNameOfCall(request.job().name()); !named.ok()) return Finish(named);
    v1::EvaluateRequest what;
    *what.mutable_job() = request.job();
    what.set_split(request.split());
    what.set_weights(request.weights());
    if (request.has_data()) *what.mutable_data() = request.data();
    driver_->Predict(
        machine(),
        [what, deadline, who = who()](ReplyToken token) {
          return PredictJob{token, what, deadline, who};
        },
        self, [this, self](ReplyToken token) { Opened(token); });
  }

 private:
  void Written(ReplyToken token) override { driver_->PredictionTaken(token); }
  void Gone(ReplyToken token) override { driver_->PredictionGone(token); }
  void Ended(const absl::Status& status) override {
    if (admitted_.ok()) audit_.Tell(status);
  }

  const Audit audit_;
};

absl::Time DeadlineOf(grpc::CallbackServerContext* context, Clock* clock) {
  const absl::Duration left = absl::FromChrono(context->deadline()) - absl::Now();
  return clock->Now() + (left < kTimeoutsAreLessThan ? left : kEvaluateTimeoutDefault);
}

}  // namespace

grpc::ServerUnaryReactor* JobServiceImpl::Submit(grpc::CallbackServerContext* context, const v1::SubmitRequest* request,
                                                 v1::SubmitResponse* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "Submit");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  calls_.Submit({*caller, context->peer()}, *request, FinishWith(context, reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::CheckJob(grpc::CallbackServerContext* context,
                                                   const v1::SubmitRequest* request, v1::SubmitResponse* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "CheckJob");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  calls_.CheckJob({*caller, context->peer()}, *request, FinishWith(context, reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest*,
                                                   v1::ListJobsResponse* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "ListJobs");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  driver_->Query(
      MachineOf(context->peer()),
      [reactor, response, who = RequesterOf(*caller)](const ClusterCore& core, absl::Time now) {
        *response = core.ListJobs(now, who);
        reactor->Finish(grpc::Status::OK);
      },
      Refuse(context, reactor));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                                 v1::JobStatus* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "GetJob");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const absl::Status named = CheckNameOfCall(request->name()); !named.ok()) {
    reactor->Finish(ToGrpc(named, context));
    return reactor;
  }
  const Audit audit(guard_.audit, *caller, *context, "GetJob", Named(*request));
  driver_->Query(
      MachineOf(context->peer()),
      [context, reactor, request, response, audit, who = RequesterOf(*caller)](const ClusterCore& core,
                                                                               absl::Time now) {
        absl::StatusOr<v1::JobStatus> status = core.GetJob(*request, now, who);
        if (status.ok()) *response = *status;
        if (absl::IsPermissionDenied(status.status())) audit.Tell(status.status());
        reactor->Finish(ToGrpc(status.status(), context));
      },
      Refuse(context, reactor));
  return reactor;
}

grpc::ServerWriteReactor<v1::JobStatus>* JobServiceImpl::WatchJob(grpc::CallbackServerContext* context,
                                                                  const v1::GetJobRequest* request) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "WatchJob");
  auto reactor = std::make_shared<WatchReactor>(
      driver_, context, guard_, caller,
      Audit(guard_.audit, caller.value_or(Caller{}), *context, "WatchJob", Named(*request)));
  reactor->Start(*request);
  return reactor.get();
}

grpc::ServerUnaryReactor* JobServiceImpl::CancelJob(grpc::CallbackServerContext* context,
                                                    const v1::GetJobRequest* request, v1::JobStatus* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "CancelJob");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  calls_.CancelJob({*caller, context->peer()}, *request, FinishWith(context, reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::DeleteJob(grpc::CallbackServerContext* context,
                                                    const v1::GetJobRequest* request, v1::DeleteJobResponse* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "DeleteJob");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  calls_.DeleteJob({*caller, context->peer()}, *request, FinishWith(context, reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::Evaluate(grpc::CallbackServerContext* context,
                                                   const v1::EvaluateRequest* request, v1::EvaluateResponse* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "Evaluate");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const absl::Status named = CheckNameOfCall(request->job().name()); !named.ok()) {
    reactor->Finish(ToGrpc(named, context));
    return reactor;
  }
  const absl::Time deadline = DeadlineOf(context, clock_);
  driver_->Call(
      MachineOf(context->peer()),
      [request = *request, deadline, who = RequesterOf(*caller)](ReplyToken token) {
        return EvaluateJob{token, request, deadline, who};
      },
      FinishWith(context, reactor, response,
                 Audit(guard_.audit, *caller, *context, "Evaluate", Named(request->job()))));
  return reactor;
}

grpc::ServerWriteReactor<v1::PredictResponse>* JobServiceImpl::Predict(grpc::CallbackServerContext* context,
                                                                       const v1::PredictRequest* request) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "Predict");
  auto reactor = std::make_shared<PredictReactor>(
      driver_, context, guard_, caller,
      Audit(guard_.audit, caller.value_or(Caller{}), *context, "Predict", Named(request->job())));
  reactor->Start(*request, DeadlineOf(context, clock_));
  return reactor.get();
}

grpc::ServerUnaryReactor* JobServiceImpl::ListNodes(grpc::CallbackServerContext* context, const v1::ListNodesRequest*,
                                                    v1::ListNodesResponse* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "ListNodes");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  driver_->Query(
      MachineOf(context->peer()),
      [reactor, response](const ClusterCore& core, absl::Time) {
        *response = core.ListNodes();
        reactor->Finish(grpc::Status::OK);
      },
      Refuse(context, reactor));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::DrainNode(grpc::CallbackServerContext* context,
                                                    const v1::DrainNodeRequest* request, v1::NodeStatus* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "DrainNode");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  calls_.DrainNode({*caller, context->peer()}, *request, FinishWith(context, reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ListEvents(grpc::CallbackServerContext* context,
                                                     const v1::ListEventsRequest* request,
                                                     v1::ListEventsResponse* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "ListEvents");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const absl::Status named = CheckNameOfCall(request->node()); !named.ok()) {
    reactor->Finish(ToGrpc(named, context));
    return reactor;
  }
  driver_->Query(
      MachineOf(context->peer()),
      [context, reactor, request, response, who = RequesterOf(*caller)](const ClusterCore& core, absl::Time) {
        absl::StatusOr<v1::ListEventsResponse> events = core.ListEvents(*request, who);
        const absl::Status status = events.status();
        if (status.ok()) *response = *std::move(events);
        reactor->Finish(ToGrpc(status, context));
      },
      Refuse(context, reactor));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ReadLog(grpc::CallbackServerContext* context,
                                                  const v1::ReadLogRequest* request, v1::ReadLogResponse* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "ReadLog");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::Status fits = CheckReadLog(*request);
  fits.Update(CheckNameOfCall(request->node()));
  if (!fits.ok()) {
    reactor->Finish(ToGrpc(fits, context));
    return reactor;
  }
  const Audit audit(guard_.audit, *caller, *context, "ReadLog", request->node());
  if (request->node().empty()) {  // this process'
    driver_->Query(
        MachineOf(context->peer()),
        [context, reactor, request, response, audit, who = RequesterOf(*caller)](const ClusterCore& core, absl::Time) {
          const absl::Status may = core.CheckLogAccess(request->job_id(), who);
          if (may.ok()) *response = AnswerReadLog(*request);
          if (absl::IsPermissionDenied(may)) audit.Tell(may);
          reactor->Finish(ToGrpc(may, context));
        },
        Refuse(context, reactor));
    return reactor;
  }
  driver_->Call(
      MachineOf(context->peer()),
      [request = *request, who = RequesterOf(*caller)](ReplyToken token) {
        return cairn::ReadLog{token, request, who};
      },
      [context, reactor, response, audit](const absl::Status& status, const ReplyBody& body) {
        if (const auto* log = std::get_if<v1::ReadLogResponse>(&body)) *response = *log;
        if (absl::IsPermissionDenied(status)) audit.Tell(status);
        reactor->Finish(ToGrpc(status, context));
      });
  return reactor;
}

}  // namespace cairn
