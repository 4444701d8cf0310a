#include "coordinator/node/user_calls.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/formats/expand_model.h"
#include "common/model/job_check.h"
#include "common/model/limits.h"
#include "common/rpc/peer.h"

namespace cairn {
namespace {

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
  return cairn::CheckJob(spec);
}

}  // namespace

std::string Named(const v1::GetJobRequest& job) { return job.job_id() != 0 ? absl::StrCat(job.job_id()) : job.name(); }

absl::Status CheckNameOfCall(const std::string& name) {
  if (name.size() <= kJobNameBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("name: ", name.size(), " bytes; the name of a job or node has at most ", kJobNameBytesMax));
}

bool MayDrain(const Caller& caller, const v1::NodeStatus& node) {
  if (!CheckAccess("/cairn.v1.JobService/DrainNode", caller).ok()) return false;
  const absl::StatusOr<DrainRights> rights = RightsToDrain(caller, node.name());
  return rights.ok() && (node.role() == v1::PS ? rights->ps : rights->workers);
}

void UserCalls::SubmitOrCheck(const CallFrom& from, const v1::SubmitRequest& request, bool check_only,
                              ReplyFn done) const {
  const Audit audit(guard_.audit, from.caller, from.peer, check_only ? "CheckJob" : "Submit", request.spec().name());
  absl::StatusOr<CheckedJob> checked = CheckSubmission(request.spec());
  if (!checked.ok()) {
    if (!check_only) audit.Tell(checked.status());
    return done(checked.status(), {});
  }
  const auto job = std::make_shared<const CheckedJob>(*std::move(checked));
  driver_->Call(
      MachineOf(from.peer),
      [job, key = check_only ? "" : request.request_key(), check_only, who = RequesterOf(from.caller),
       quotas = quotas_ == nullptr ? nullptr : quotas_->Current()](ReplyToken token) {
        return SubmitJob{token, job, key, who, check_only, quotas};
      },
      Audited(audit, std::move(done)));
}

void UserCalls::Submit(const CallFrom& from, const v1::SubmitRequest& request, ReplyFn done) const {
  SubmitOrCheck(from, request, /*check_only=*/false, std::move(done));
}

void UserCalls::CheckJob(const CallFrom& from, const v1::SubmitRequest& request, ReplyFn done) const {
  SubmitOrCheck(from, request, /*check_only=*/true, std::move(done));
}

void UserCalls::CancelJob(const CallFrom& from, const v1::GetJobRequest& job, ReplyFn done) const {
  if (const absl::Status named = CheckNameOfCall(job.name()); !named.ok()) return done(named, {});
  driver_->Call(
      MachineOf(from.peer),
      [job, who = RequesterOf(from.caller)](ReplyToken token) {
        return cairn::CancelJob{token, job, who};
      },
      Audited(Audit(guard_.audit, from.caller, from.peer, "CancelJob", Named(job)), std::move(done)));
}

void UserCalls::DeleteJob(const CallFrom& from, const v1::GetJobRequest& job, ReplyFn done) const {
  if (const absl::Status named = CheckNameOfCall(job.name()); !named.ok()) return done(named, {});
  driver_->Call(
      MachineOf(from.peer),
      [job, who = RequesterOf(from.caller)](ReplyToken token) {
        return cairn::DeleteJob{token, job, who};
      },
      Audited(Audit(guard_.audit, from.caller, from.peer, "DeleteJob", Named(job)), std::move(done)));
}

void UserCalls::DrainNode(const CallFrom& from, const v1::DrainNodeRequest& request, ReplyFn done) const {
  if (const absl::Status named = CheckNameOfCall(request.name()); !named.ok()) return done(named, {});
  const Audit audit(guard_.audit, from.caller, from.peer, request.undo() ? "DrainNode (undo)" : "DrainNode",
                    request.name());
  const absl::StatusOr<DrainRights> rights = RightsToDrain(from.caller, request.name());
  if (!rights.ok()) {
    audit.Tell(rights.status());
    return done(rights.status(), {});
  }
  driver_->Call(
      MachineOf(from.peer),
      [request, rights = *rights](ReplyToken token) {
        return cairn::DrainNode{token, request, rights};
      },
      Audited(audit, std::move(done)));
}

}  // namespace cairn
