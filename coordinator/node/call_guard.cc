#include "coordinator/node/call_guard.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace cairn {
namespace {

std::string PathOf(const char* service, const char* method) { return absl::StrCat("/cairn.v1.", service, "/", method); }

}  // namespace

absl::StatusOr<Caller> CallGuard::Admit(const grpc::CallbackServerContext& context, const char* service,
                                        const char* method) const {
  std::string known_id;
  absl::StatusOr<Caller> caller = CallerOf(context, tokens, &known_id);
  if (caller.ok()) {
    CAIRN_RETURN_IF_ERROR(AdmitCaller(*caller, service, method));
  } else if (audit != nullptr && !absl::IsUnavailable(caller.status())) {
    audit->WriteRefusal(PathOf(service, method), Caller{.token_id = std::move(known_id)}, caller.status());
  }
  return caller;
}

absl::Status CallGuard::AdmitCaller(const Caller& caller, const char* service, const char* method) const {
  const std::string path = PathOf(service, method);
  absl::Status status = CheckAccess(path, caller);
  if (!status.ok() && audit != nullptr) audit->WriteRefusal(path, caller, status);
  return status;
}

absl::Status CallGuard::StillHolds(const Caller& caller) const {
  if (caller.token_id.empty()) return absl::OkStatus();
  return tokens->Check(caller.token_id, absl::Now());
}

Requester RequesterOf(Caller caller) {
  return {.everything = caller.Is(CallerRole::kAdmin), .user = caller.user(), .groups = std::move(caller.groups)};
}

}  // namespace cairn
