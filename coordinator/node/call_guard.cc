#include "coordinator/node/call_guard.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace cairn {

absl::StatusOr<Caller> CallGuard::Admit(const grpc::CallbackServerContext& context, const char* service,
                                        const char* method) const {
  std::string known_id;
  const std::string path = absl::StrCat("/cairn.v1.", service, "/", method);
  absl::StatusOr<Caller> caller = CallerOf(context, tokens, &known_id);
  const absl::Status status = caller.ok() ? CheckAccess(path, *caller) : caller.status();
  if (status.ok()) return caller;
  if (audit != nullptr && !absl::IsUnavailable(status)) {
    audit->WriteRefusal(path, caller.ok() ? *caller : Caller{.token_id = std::move(known_id)}, status);
  }
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
