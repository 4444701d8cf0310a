// Checks the fault-tolerance settings of a job: durability, backups, dropped stragglers, checkpoints.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"

namespace cairn {

// Fills in what follows from the spec alone. `backups` and `durability` stay unset if both were unset: ResolveBackups
// needs the cluster. The strategy and replicas must be checked before. Errors: INVALID_ARGUMENT, `field: what is wrong;
// what to do`.
absl::Status CheckFaultTolerance(v1::JobSpec* spec, std::vector<std::string>* warnings);

// Fills in `backups` and `durability` if both were left to the cluster: one backup if at least two ps are alive.
void ResolveBackups(int ps_alive, v1::JobSpec* spec);

// Whether an update is in a log before it is acknowledged to the worker.
bool LogsBeforeReply(v1::Durability durability);

// Whether a step of the job needs the gradient of every replica, with one version per step.
bool IsSynchronous(const v1::JobSpec& spec);

}  // namespace cairn
