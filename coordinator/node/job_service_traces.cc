// JobService: traces of running jobs.
#include "absl/strings/str_cat.h"
#include "common/model/limits.h"
#include "common/rpc/peer.h"
#include "coordinator/node/job_service.h"

namespace cairn {
namespace {

constexpr char kService[] = "JobService";

}  // namespace

grpc::ServerUnaryReactor* JobServiceImpl::StartTrace(grpc::CallbackServerContext* context,
                                                     const v1::StartTraceRequest* request,
                                                     v1::StartTraceResponse* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "StartTrace");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Audit audit(guard_.audit, *caller, *context, "StartTrace", absl::StrCat(request->job_id()));
  driver_->Call(
      MachineOf(context->peer()),
      [request = *request, who = RequesterOf(*caller)](ReplyToken token) {
        return cairn::StartTrace{token, request, who};
      },
      FinishWith(context, reactor, response, audit));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ReadTrace(grpc::CallbackServerContext* context,
                                                    const v1::ReadTraceRequest* request,
                                                    v1::ReadTraceResponse* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "ReadTrace");
  if (!caller.ok()) return Refused(context, caller.status());
  if (request->node().size() > kJobNameBytesMax) {
    return Refused(
        context, absl::InvalidArgumentError(absl::StrCat("node: ", request->node().size(),
                                                         " bytes; the name of a node has at most ", kJobNameBytesMax)));
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Audit audit(guard_.audit, *caller, *context, "ReadTrace", request->node());
  driver_->Call(
      MachineOf(context->peer()),
      [request = *request, who = RequesterOf(*caller)](ReplyToken token) {
        return cairn::ReadTrace{token, request, who};
      },
      [context, reactor, response, audit](const absl::Status& status, const ReplyBody& body) {
        if (const auto* trace = std::get_if<v1::ReadTraceResponse>(&body)) *response = *trace;
        if (absl::IsPermissionDenied(status)) audit.Tell(status);
        reactor->Finish(ToGrpc(status, context));
      });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::EndTrace(grpc::CallbackServerContext* context,
                                                   const v1::EndTraceRequest* request, v1::EndTraceResponse* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "EndTrace");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Audit audit(guard_.audit, *caller, *context, "EndTrace", absl::StrCat(request->trace_id()));
  driver_->Call(
      MachineOf(context->peer()),
      [request = *request, who = RequesterOf(*caller)](ReplyToken token) {
        return cairn::EndTrace{token, request, who};
      },
      FinishWith(context, reactor, response, audit));
  return reactor;
}

}  // namespace cairn
