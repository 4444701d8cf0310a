// What a job asks of the nodes that compute it: pure functions. GPUs come before CPUs, never both at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "coordinator/core/job.h"
#include "coordinator/core/membership.h"

namespace cairn {

// Its compute_dtype: what no node without it can do for the job.
bool Computes(const v1::JobSpec& spec, const ClusterNode& node);
// Also the kind of device that the user asks for, for training.
bool Fits(const v1::JobSpec& spec, const ClusterNode& worker);
// The bits of its weights are promised to be the same from run to run.
bool BitsMatter(const Job& job);
std::vector<v1::Device> PreferredDevices(const Job& job);
size_t WorkersNeeded(const Job& job);

// What decides whether a queued job can start, and why it does not: the same for many jobs.
using Needs = std::tuple<v1::DataType, v1::Device, size_t, int32_t>;  // compute_dtype, device, workers, backups
Needs NeedsOf(const Job& job);

}  // namespace cairn
