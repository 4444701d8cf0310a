// CallGuard: who makes a user's call, whether a role may make it, and what the audit log says of it. What JobService,
// TokenService and the pages share.
//
// Thread-safe. What it points to outlives the calls.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>
#include <utility>
#include <variant>

#include "common/rpc/access.h"
#include "common/rpc/token_table.h"
#include "coordinator/core/requester.h"
#include "coordinator/node/audit_log.h"
#include "coordinator/node/cluster_driver.h"
#include "coordinator/node/grpc_status.h"

namespace cairn {

struct CallGuard {
  const TokenTable* tokens = nullptr;  // null: none are taken
  AuditLog* audit = nullptr;           // null: none

  // service, method: "JobService", "Submit". The only check of these services: each handler begins with it. A
  // coordinator that stands by answers with who leads.
  // Errors: UNAUTHENTICATED, PERMISSION_DENIED, and UNAVAILABLE with kLeaderPayload.
  absl::StatusOr<Caller> Admit(const grpc::CallbackServerContext& context, const char* service,
                               const char* method) const;
  // Of a caller who is known already, as the pages'. Errors: PERMISSION_DENIED, UNAUTHENTICATED.
  absl::Status AdmitCaller(const Caller& caller, const char* service, const char* method) const;
  // Whether the caller that was admitted still would be: for calls that last.
  absl::Status StillHolds(const Caller& caller) const;
};

Requester RequesterOf(Caller caller);

// Writes a line for each outcome of a call, if there is an audit log.
class Audit {
 public:
  // peer: as gRPC names it.
  Audit(AuditLog* log, const Caller& who, std::string peer, const char* call, std::string what) : log_(log) {
    if (log_ != nullptr) record_ = {call, who, std::move(peer), std::move(what)};
  }
  Audit(AuditLog* log, const Caller& who, const grpc::CallbackServerContext& context, const char* call,
        std::string what)
      : Audit(log, who, log == nullptr ? "" : context.peer(), call, std::move(what)) {}
  void Tell(const absl::Status& outcome, uint64_t job_id = 0) const {
    if (log_ != nullptr) log_->Write(record_, outcome, job_id);
  }

 private:
  AuditLog* log_;
  AuditRecord record_;
};

// A line for the outcome, then `done`.
inline ClusterDriver::ReplyFn Audited(Audit audit, ClusterDriver::ReplyFn done) {
  return [audit = std::move(audit), done = std::move(done)](const absl::Status& status, const ReplyBody& body) {
    const auto* submitted = std::get_if<v1::SubmitResponse>(&body);
    audit.Tell(status, status.ok() && submitted != nullptr ? submitted->job().job_id() : 0);
    done(status, body);
  };
}

// Moves the reply's body to *response and finishes the call. All three must live until Finish.
template <typename Response>
ClusterDriver::ReplyFn FinishWith(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                                  Response* response) {
  return [context, reactor, response](const absl::Status& status, const ReplyBody& body) {
    if (const Response* reply = std::get_if<Response>(&body); status.ok() && reply != nullptr) *response = *reply;
    reactor->Finish(ToGrpc(status, context));
  };
}
template <typename Response>
ClusterDriver::ReplyFn FinishWith(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                                  Response* response, Audit audit) {
  return Audited(std::move(audit), FinishWith(context, reactor, response));
}

// The response to a query when there is no driver to ask.
inline std::function<void(const absl::Status&)> Refuse(grpc::CallbackServerContext* context,
                                                       grpc::ServerUnaryReactor* reactor) {
  return [context, reactor](const absl::Status& status) { reactor->Finish(ToGrpc(status, context)); };
}

// Ends the call at once.
inline grpc::ServerUnaryReactor* Refused(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status, context));
  return reactor;
}

}  // namespace cairn
