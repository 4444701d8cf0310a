// UserCalls: how users change something, whatever their call came by: gRPC (JobService) or the pages
// (dashboard/actions.h). The one place of what such a call is checked for, whose jobs and nodes a caller may change,
// what quotas allow, and what the audit log says of it.
//
// Thread-safe. What it points to outlives the calls. Invariants: 1. The caller was admitted (CallGuard::Admit) to the
// method of JobService of the same name. 2. `done` is called once, on any thread, perhaps before the call returns, and
// after the audit log has the outcome.
#pragma once

#include <string>

#include "cairn/v1/cluster.pb.h"
#include "common/rpc/access.h"
#include "coordinator/node/call_guard.h"
#include "coordinator/node/cluster_driver.h"
#include "coordinator/node/quota_file.h"

namespace cairn {

struct CallFrom {
  Caller caller;
  std::string peer;  // as gRPC names it: "ipv4:10.0.0.7:4711"
};

class UserCalls {
 public:
  using ReplyFn = ClusterDriver::ReplyFn;

  // quotas: null: none.
  UserCalls(ClusterDriver* driver, const CallGuard& guard, QuotaFile* quotas)
      : driver_(driver), guard_(guard), quotas_(quotas) {}

  // Replies and errors are those of the RPCs (proto/cairn/v1/cluster.proto).
  void Submit(const CallFrom& from, const v1::SubmitRequest& request, ReplyFn done) const;
  void CheckJob(const CallFrom& from, const v1::SubmitRequest& request, ReplyFn done) const;
  void CancelJob(const CallFrom& from, const v1::GetJobRequest& job, ReplyFn done) const;
  void DeleteJob(const CallFrom& from, const v1::GetJobRequest& job, ReplyFn done) const;
  void DrainNode(const CallFrom& from, const v1::DrainNodeRequest& request, ReplyFn done) const;

  const CallGuard& guard() const { return guard_; }

 private:
  void SubmitOrCheck(const CallFrom& from, const v1::SubmitRequest& request, bool check_only, ReplyFn done) const;

  ClusterDriver* const driver_;
  const CallGuard guard_;
  QuotaFile* const quotas_;
};

// Whether DrainNode would be let through, by role and by name.
bool MayDrain(const Caller& caller, const v1::NodeStatus& node);

// Of the job that a request names, for people: its number or its name.
std::string Named(const v1::GetJobRequest& job);
// Errors: INVALID_ARGUMENT: a longer name is no job's and no node's; it is not repeated in the error.
absl::Status CheckNameOfCall(const std::string& name);

}  // namespace cairn
