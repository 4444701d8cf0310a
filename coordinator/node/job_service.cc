#include "coordinator/node/job_service.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/formats/expand_model.h"
#include "common/model/limits.h"
#include "common/rpc/access.h"
#include "common/rpc/log_answer.h"
#include "common/rpc/refusal.h"
#include "coordinator/node/grpc_status.h"
#include "coordinator/node/stream_reactor.h"

namespace cairn {
namespace {

// The deadline of calls that have none.
constexpr absl::Duration kEvaluateTimeoutDefault = absl::Minutes(10);
constexpr absl::Duration kTimeoutsAreLessThan = absl::Hours(24);

Requester RequesterOf(const grpc::CallbackServerContext& context) {
  Caller caller = CallerOf(context);
  return {.everything = caller.Is(CallerRole::kAdmin), .user = caller.user(), .groups = std::move(caller.groups)};
}

absl::Status Admit(const grpc::CallbackServerContext& context, const char* call) {
  return AdmitCall(absl::StrCat("/cairn.v1.JobService/", call), context);
}

// Finishes a call that its caller may not make.
bool Refused(grpc::CallbackServerContext* context, const char* call, grpc::ServerUnaryReactor* reactor) {
  const absl::Status may = Admit(*context, call);
  if (!may.ok()) reactor->Finish(ToGrpc(may, context));
  return !may.ok();
}

std::string Named(const v1::GetJobRequest& job) { return job.job_id() != 0 ? absl::StrCat(job.job_id()) : job.name(); }

// A longer name is no job's and no node's; it is not repeated in the error.
absl::Status CheckName(const std::string& name) {
  if (name.size() <= kJobNameBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("name: ", name.size(), " bytes; the name of a job or node has at most ", kJobNameBytesMax));
}

// Writes a line for each outcome of a call, if there is an audit log.
class Audit {
 public:
  Audit(AuditLog* log, const grpc::CallbackServerContext& context, const char* call, std::string what) : log_(log) {
    if (log_ != nullptr) record_ = {call, CallerOf(context), context.peer(), std::move(what)};
  }
  void Tell(const absl::Status& outcome, uint64_t job_id = 0) const {
    if (log_ != nullptr) log_->Write(record_, outcome, job_id);
  }

 private:
  AuditLog* log_;
  AuditRecord record_;
};

// Moves the reply's body to *response and finishes the call. All three must live until Finish.
template <typename Response>
ClusterDriver::ReplyFn FinishWith(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                                  Response* response, Audit audit) {
  return [context, reactor, response, audit](const absl::Status& status, const ReplyBody& body) {
    uint64_t submitted = 0;
    if (status.ok()) {
      if (const Response* reply = std::get_if<Response>(&body)) *response = *reply;
      if (const auto* reply = std::get_if<v1::SubmitResponse>(&body)) submitted = reply->job().job_id();
    }
    audit.Tell(status, submitted);
    reactor->Finish(ToGrpc(status, context));
  };
}

// The response to a query when there is no driver to ask.
std::function<void(const absl::Status&)> Refuse(grpc::CallbackServerContext* context,
                                                grpc::ServerUnaryReactor* reactor) {
  return [context, reactor](const absl::Status& status) { reactor->Finish(ToGrpc(status, context)); };
}

class WatchReactor final : public StreamReactor<v1::JobStatus, WatchSink, uint64_t> {
 public:
  WatchReactor(ClusterDriver* driver, grpc::CallbackServerContext* context, Audit audit)
      : StreamReactor(driver, context), who_(RequesterOf(*context)), audit_(std::move(audit)) {}

  void Start(const v1::GetJobRequest& request) {
    const auto self = Own();
    if (const absl::Status named = CheckName(request.name()); !named.ok()) return Finish(named);
    driver_->Watch(request, who_, self, [this, self](uint64_t watcher) { Opened(watcher); });
  }

 private:
  void Written(uint64_t watcher) override { driver_->WatcherWritten(watcher); }
  void Gone(uint64_t watcher) override { driver_->WatcherGone(watcher); }
  void Ended(const absl::Status& status) override {
    if (absl::IsPermissionDenied(status)) audit_.Tell(status);
  }

  const Requester who_;
  const Audit audit_;
};

class PredictReactor final : public StreamReactor<v1::PredictResponse, PredictionSink, ReplyToken> {
 public:
  PredictReactor(ClusterDriver* driver, grpc::CallbackServerContext* context, Audit audit)
      : StreamReactor(driver, context), who_(RequesterOf(*context)), audit_(std::move(audit)) {}

  void Start(const v1::PredictRequest& request, absl::Time deadline) {
    const auto self = Own();
    if (const absl::Status named = CheckName(request.job().name()); !named.ok()) return Finish(named);
    v1::EvaluateRequest what;
    *what.mutable_job() = request.job();
    what.set_split(request.split());
    what.set_weights(request.weights());
    if (request.has_data()) *what.mutable_data() = request.data();
    driver_->Predict(
        [what, deadline, who = who_](ReplyToken token) {
          return PredictJob{token, what, deadline, who};
        },
        self, [this, self](ReplyToken token) { Opened(token); });
  }

 private:
  void Written(ReplyToken token) override { driver_->PredictionTaken(token); }
  void Gone(ReplyToken token) override { driver_->PredictionGone(token); }
  void Ended(const absl::Status& status) override { audit_.Tell(status); }

  const Requester who_;
  const Audit audit_;
};

absl::Time DeadlineOf(grpc::CallbackServerContext* context, Clock* clock) {
  const absl::Duration left = absl::FromChrono(context->deadline()) - absl::Now();
  return clock->Now() + (left < kTimeoutsAreLessThan ? left : kEvaluateTimeoutDefault);
}

// Admins drain any node; a node drains itself. Returns which kinds of nodes of this name the caller may drain.
absl::StatusOr<DrainRights> RightsToDrain(const Caller& caller, const std::string& node) {
  if (caller.Is(CallerRole::kAdmin)) return DrainRights{};
  const absl::Status of_ps = CheckNodeName(CallerRole::kPs, node, caller);
  const absl::Status of_worker = CheckNodeName(CallerRole::kWorker, node, caller);
  if (of_ps.ok() || of_worker.ok()) return DrainRights{.ps = of_ps.ok(), .workers = of_worker.ok()};
  return caller.Is(CallerRole::kPs) ? of_ps : of_worker;
}

absl::StatusOr<CheckedJob> CheckSubmission(v1::JobSpec spec) {
  CAIRN_RETURN_IF_ERROR(ExpandJob(&spec));
  return CheckJob(spec);
}

}  // namespace

grpc::ServerUnaryReactor* JobServiceImpl::Submit(grpc::CallbackServerContext* context, const v1::SubmitRequest* request,
                                                 v1::SubmitResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, "Submit", reactor)) return reactor;
  const Audit audit(audit_, *context, "Submit", request->spec().name());
  absl::StatusOr<CheckedJob> checked = CheckSubmission(request->spec());
  if (!checked.ok()) {
    audit.Tell(checked.status());
    reactor->Finish(ToGrpc(checked.status(), context));
    return reactor;
  }
  auto job = std::make_shared<const CheckedJob>(*std::move(checked));
  driver_->Call(
      [job, key = request->request_key(), who = RequesterOf(*context)](ReplyToken token) {
        return SubmitJob{token, job, key, who};
      },
      FinishWith(context, reactor, response, audit));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::CheckJob(grpc::CallbackServerContext* context,
                                                   const v1::SubmitRequest* request, v1::SubmitResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, "CheckJob", reactor)) return reactor;
  absl::StatusOr<CheckedJob> checked = CheckSubmission(request->spec());
  if (!checked.ok()) {
    reactor->Finish(ToGrpc(checked.status(), context));
    return reactor;
  }
  auto job = std::make_shared<const CheckedJob>(*std::move(checked));
  driver_->Call(
      [job, who = RequesterOf(*context)](ReplyToken token) {
        return SubmitJob{token, job, "", who, /*check_only=*/true};
      },
      FinishWith(context, reactor, response, Audit(audit_, *context, "CheckJob", request->spec().name())));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest*,
                                                   v1::ListJobsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, "ListJobs", reactor)) return reactor;
  driver_->Query(
      [reactor, response, who = RequesterOf(*context)](const ClusterCore& core, absl::Time now) {
        *response = core.ListJobs(now, who);
        reactor->Finish(grpc::Status::OK);
      },
      Refuse(context, reactor));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                                 v1::JobStatus* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, "GetJob", reactor)) return reactor;
  if (const absl::Status named = CheckName(request->name()); !named.ok()) {
    reactor->Finish(ToGrpc(named, context));
    return reactor;
  }
  const Audit audit(audit_, *context, "GetJob", Named(*request));
  driver_->Query(
      [context, reactor, request, response, audit](const ClusterCore& core, absl::Time now) {
        absl::StatusOr<v1::JobStatus> status = core.GetJob(*request, now, RequesterOf(*context));
        if (status.ok()) *response = *status;
        if (absl::IsPermissionDenied(status.status())) audit.Tell(status.status());
        reactor->Finish(ToGrpc(status.status(), context));
      },
      Refuse(context, reactor));
  return reactor;
}

grpc::ServerWriteReactor<v1::JobStatus>* JobServiceImpl::WatchJob(grpc::CallbackServerContext* context,
                                                                  const v1::GetJobRequest* request) {
  if (const absl::Status may = Admit(*context, "WatchJob"); !may.ok()) {
    return new RefusedCall<grpc::ServerWriteReactor<v1::JobStatus>>(may);
  }
  auto reactor = std::make_shared<WatchReactor>(driver_, context, Audit(audit_, *context, "WatchJob", Named(*request)));
  reactor->Start(*request);
  return reactor.get();
}

grpc::ServerUnaryReactor* JobServiceImpl::CancelJob(grpc::CallbackServerContext* context,
                                                    const v1::GetJobRequest* request, v1::JobStatus* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, "CancelJob", reactor)) return reactor;
  if (const absl::Status named = CheckName(request->name()); !named.ok()) {
    reactor->Finish(ToGrpc(named, context));
    return reactor;
  }
  driver_->Call(
      [job = *request, who = RequesterOf(*context)](ReplyToken token) {
        return cairn::CancelJob{token, job, who};
      },
      FinishWith(context, reactor, response, Audit(audit_, *context, "CancelJob", Named(*request))));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::DeleteJob(grpc::CallbackServerContext* context,
                                                    const v1::GetJobRequest* request, v1::DeleteJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, "DeleteJob", reactor)) return reactor;
  if (const absl::Status named = CheckName(request->name()); !named.ok()) {
    reactor->Finish(ToGrpc(named, context));
    return reactor;
  }
  driver_->Call(
      [job = *request, who = RequesterOf(*context)](ReplyToken token) {
        return cairn::DeleteJob{token, job, who};
      },
      FinishWith(context, reactor, response, Audit(audit_, *context, "DeleteJob", Named(*request))));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::Evaluate(grpc::CallbackServerContext* context,
                                                   const v1::EvaluateRequest* request, v1::EvaluateResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, "Evaluate", reactor)) return reactor;
  if (const absl::Status named = CheckName(request->job().name()); !named.ok()) {
    reactor->Finish(ToGrpc(named, context));
    return reactor;
  }
  const absl::Time deadline = DeadlineOf(context, clock_);
  driver_->Call(
      [request = *request, deadline, who = RequesterOf(*context)](ReplyToken token) {
        return EvaluateJob{token, request, deadline, who};
      },
      FinishWith(context, reactor, response, Audit(audit_, *context, "Evaluate", Named(request->job()))));
  return reactor;
}

grpc::ServerWriteReactor<v1::PredictResponse>* JobServiceImpl::Predict(grpc::CallbackServerContext* context,
                                                                       const v1::PredictRequest* request) {
  if (const absl::Status may = Admit(*context, "Predict"); !may.ok()) {
    return new RefusedCall<grpc::ServerWriteReactor<v1::PredictResponse>>(may);
  }
  auto reactor =
      std::make_shared<PredictReactor>(driver_, context, Audit(audit_, *context, "Predict", Named(request->job())));
  reactor->Start(*request, DeadlineOf(context, clock_));
  return reactor.get();
}

grpc::ServerUnaryReactor* JobServiceImpl::ListNodes(grpc::CallbackServerContext* context, const v1::ListNodesRequest*,
                                                    v1::ListNodesResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, "ListNodes", reactor)) return reactor;
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
  if (Refused(context, "DrainNode", reactor)) return reactor;
  if (const absl::Status named = CheckName(request->name()); !named.ok()) {
    reactor->Finish(ToGrpc(named, context));
    return reactor;
  }
  const Audit audit(audit_, *context, request->undo() ? "DrainNode (undo)" : "DrainNode", request->name());
  const absl::StatusOr<DrainRights> rights = RightsToDrain(CallerOf(*context), request->name());
  if (!rights.ok()) {
    audit.Tell(rights.status());
    reactor->Finish(ToGrpc(rights.status(), context));
    return reactor;
  }
  driver_->Call(
      [request = *request, rights = *rights](ReplyToken token) {
        return cairn::DrainNode{token, request, rights};
      },
      FinishWith(context, reactor, response, audit));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ListEvents(grpc::CallbackServerContext* context,
                                                     const v1::ListEventsRequest* request,
                                                     v1::ListEventsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, "ListEvents", reactor)) return reactor;
  if (const absl::Status named = CheckName(request->node()); !named.ok()) {
    reactor->Finish(ToGrpc(named, context));
    return reactor;
  }
  driver_->Query(
      [context, reactor, request, response](const ClusterCore& core, absl::Time) {
        absl::StatusOr<v1::ListEventsResponse> events = core.ListEvents(*request, RequesterOf(*context));
        const absl::Status status = events.status();
        if (status.ok()) *response = *std::move(events);
        reactor->Finish(ToGrpc(status, context));
      },
      Refuse(context, reactor));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ReadLog(grpc::CallbackServerContext* context,
                                                  const v1::ReadLogRequest* request, v1::ReadLogResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, "ReadLog", reactor)) return reactor;
  absl::Status fits = CheckReadLog(*request);
  fits.Update(CheckName(request->node()));
  if (!fits.ok()) {
    reactor->Finish(ToGrpc(fits, context));
    return reactor;
  }
  const Audit audit(audit_, *context, "ReadLog", request->node());
  if (request->node().empty()) {  // this process'
    driver_->Query(
        [context, reactor, request, response, audit](const ClusterCore& core, absl::Time) {
          const absl::Status may = core.CheckLogAccess(request->job_id(), RequesterOf(*context));
          if (may.ok()) *response = AnswerReadLog(*request);
          if (absl::IsPermissionDenied(may)) audit.Tell(may);
          reactor->Finish(ToGrpc(may, context));
        },
        Refuse(context, reactor));
    return reactor;
  }
  driver_->Call(
      [request = *request, who = RequesterOf(*context)](ReplyToken token) {
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
