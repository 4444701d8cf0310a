#include "coordinator/core/log_reads.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/version.h"
#include "common/model/role_text.h"
#include "coordinator/core/limits.h"

namespace cairn {

absl::Status LogReads::CheckAccess(uint64_t job_id, const Requester& who) const {
  if (job_id != 0) {
    v1::GetJobRequest job;
    job.set_job_id(job_id);
    return jobs_.GetJob(job, step_.now(), who).status();
  }
  if (who.everything) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "only admins read whole logs; read those of a job of yours: `cairn logs JOB`; see docs/security.md");
}

absl::Status LogReads::Check(const ReadLog& event) const {
  const NodeName& name = event.request.node();
  CAIRN_RETURN_IF_ERROR(CheckAccess(event.request.job_id(), event.who));
  const ClusterNode* node = nodes_.Find(name);
  if (node == nullptr)
    return absl::NotFoundError(absl::StrFormat("there is no node \"%s\"; see `cairn nodes`", name.substr(0, 63)));
  if (!node->connected()) {
    return absl::UnavailableError(absl::StrFormat(
        "%s \"%s\" is not connected, so that its log cannot be read from here", RoleText(node->role), name));
  }
  if (!node->machine.serves_log) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s \"%s\" runs %s, which cannot send its log; upgrade it, or read it on its machine",
                        RoleText(node->role), name, ProgramText(node->machine.version, node->machine.interface)));
  }
  const auto of_node =
      std::count_if(waiting_.begin(), waiting_.end(), [&](const auto& w) { return w.second.node == name; });
  if (waiting_.size() >= kLogReadsMax || of_node >= kLogReadsOfNodeMax)
    return absl::ResourceExhaustedError("too many logs are being read; try again");
  return absl::OkStatus();
}

void LogReads::OnReadLog(const ReadLog& event) {
  if (absl::Status status = Check(event); !status.ok()) return step_.ReplyError(event.reply, std::move(status));
  const uint64_t id = step_.NextRequestId();
  waiting_[id] = {event.reply, event.request.node(), step_.now() + kLogReadTimeout};
  v1::CoordinatorMessage message;
  message.mutable_fetch_log()->set_request_id(id);
  *message.mutable_fetch_log()->mutable_request() = event.request;
  step_.Send(*nodes_.Find(event.request.node()), std::move(message));
}

void LogReads::OnLogRead(const ClusterNode& node, const v1::LogRead& answer) {
  const auto it = waiting_.find(answer.request_id());
  if (it == waiting_.end() || it->second.node != node.name) return;  // its deadline has passed
  step_.Emit(Reply{it->second.reply, absl::OkStatus(), answer.log()});
  waiting_.erase(it);
}

void LogReads::ReleaseNode(const NodeName& node) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->second.node != node) {
      ++it;
      continue;
    }
    step_.ReplyError(it->second.reply, absl::UnavailableError(absl::StrFormat(
                                           "\"%s\" lost its connection before it sent its log; try again", node)));
    it = waiting_.erase(it);
  }
}

void LogReads::Tick() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (step_.now() < it->second.deadline) {
      ++it;
      continue;
    }
    step_.ReplyError(it->second.reply,
                     absl::UnavailableError(absl::StrFormat("\"%s\" did not send its log within %s; try again",
                                                            it->second.node, absl::FormatDuration(kLogReadTimeout))));
    it = waiting_.erase(it);
  }
}

}  // namespace cairn
