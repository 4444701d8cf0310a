// Requester: the user who asks about a job, or asks to change it, and which jobs are that user's: their own, those of
// a group of theirs, and those without an owner.
//
// Values; any thread.
#pragma once

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_format.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"

namespace cairn {

struct Requester {
  bool everything = true;  // without TLS, or an admin: every job
  std::string user;        // owner of the jobs that are submitted; empty: they have none
  std::set<std::string> groups = {};

  bool MayUse(const v1::JobStatus& job) const {
    return everything || job.owner().empty() || job.owner() == user ||
           std::any_of(job.groups().begin(), job.groups().end(),
                       [&](const std::string& group) { return groups.contains(group); });
  }
  // Errors: PERMISSION_DENIED.
  absl::Status Check(const v1::JobStatus& job) const {
    if (MayUse(job)) return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrFormat("job %d is %s's: only its owner, members of its owner's groups and admins may see or change "
                        "it; see docs/security.md",
                        job.job_id(), job.owner()));
  }
  // The job becomes this user's.
  void Own(v1::JobStatus* job) const {
    job->set_owner(user);
    job->mutable_groups()->Assign(groups.begin(), groups.end());
  }
};

}  // namespace cairn
