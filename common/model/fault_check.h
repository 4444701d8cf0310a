// The check of what a job asks for against faults: durability, backups, dropped stragglers, checkpoints.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"

namespace cairn {

// Fills in what the spec alone decides. `backups` and `durability` stay unset where both were: ResolveBackups needs the
// cluster. strategy and replicas are checked before. Errors: INVALID_ARGUMENT, `field: what is wrong; what to do`.
absl::Status CheckFaultTolerance(v1::JobSpec* spec, std::vector<std::string>* warnings);

// Fills in `backups` and `durability` where both were left to the cluster: one backup where at least two ps are alive.
void ResolveBackups(int ps_alive, v1::JobSpec* spec);

// Whether an update is in a log before the worker is told of it.
bool LogsBeforeReply(v1::Durability durability);

// Whether a step of the job is complete only with every replica's gradient, one version a step.
bool IsSynchronous(const v1::JobSpec& spec);

}  // namespace cairn
