// Actions: what the pages let a caller change: POST below /api/v1, with JSON in and out.
//
//   /api/v1/jobs               {"text": JOB, "request_key": KEY}    as `cairn submit` does with a file; KEY: a second
//                                                                   request with the same one gives the same job
//   /api/v1/jobs/ID/cancel     {}                                   as `cairn cancel ID`; ID: a number or a name
//   /api/v1/jobs/ID/delete     {}                                   as `cairn delete ID`
//   /api/v1/nodes/NAME/drain   {"undo": false}                      as `cairn nodes drain NAME`
//
// Each is the call of JobService of that name: it is admitted by CallGuard and made by UserCalls, so roles, owners,
// quotas and the audit log are those of gRPC. An error is {"error": TEXT, "code": "NOT_FOUND"}, with a status of HTTP
// that fits. A standby answers with the leader's pages (307), or who leads (503). A call whose answer is not waited for
// any longer (504) is still made.
//
// Thread-safe. Invariants: 1. Nothing is changed by a caller whom CallGuard did not admit. 2. At most
// kPageSubmissionsMax submissions and kPageActionsMax other calls wait, each at most for the patience, so that the
// server always has threads for others, and slow submissions keep nobody from cancelling or draining.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/http/server.h"
#include "coordinator/dashboard/limits.h"
#include "coordinator/node/user_calls.h"

namespace cairn {

class Actions {
 public:
  // calls: outlives it; null: the pages are read-only. patience: how long a call's answer is waited for.
  explicit Actions(const UserCalls* calls, absl::Duration patience = kPageActionWait)
      : calls_(calls), patience_(patience) {}

  // For a POST whose body was not read: why it will not be; nullopt: Answer may be called.
  std::optional<HttpAnswer> BeforePost(const HttpRequest& request) const;
  // request: one that BeforePost let through, with its body.
  HttpAnswer Answer(const HttpRequest& request);

  // What the caller may do here, for the pages: {"user", "read_only", "submit", "cancel", "delete",
  // "request_bytes_max"} (of a body).
  std::string RightsJson(const Caller& caller) const;
  bool MayDrain(const Caller& caller, const v1::NodeStatus& node) const;

 private:
  // What a path asks for; which: the job or node.
  enum class Kind { kSubmit, kCancel, kDelete, kDrain };
  struct Action {
    Kind kind;
    std::string which;
  };
  static std::optional<Action> Find(const HttpRequest& request);
  static const char* MethodOf(Kind kind);
  absl::Status Make(const Action& action, const HttpRequest& request, UserCalls::ReplyFn done) const;
  bool May(const Caller& caller, Kind kind) const;

  const UserCalls* const calls_;
  const absl::Duration patience_;
  std::atomic<int> submitting_{0}, changing_{0};  // that wait
};

}  // namespace cairn
