// What a job requires of the nodes that compute it: pure functions. GPUs are preferred to CPUs; a job never uses both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "coordinator/core/job.h"
#include "coordinator/core/membership.h"

namespace cairn {

// Whether the node has the job's program (model.external), or computes layers, and supports the job's compute_dtype. A
// node without it can compute nothing for the job.
bool Computes(const v1::JobSpec& spec, const ClusterNode& node);
// For training: whether it also has the kind of device that the user asks for.
bool Fits(const v1::JobSpec& spec, const ClusterNode& worker);
// Whether the job's weights are promised to be bit-identical from run to run.
bool BitsMatter(const Job& job);
std::vector<v1::Device> PreferredDevices(const Job& job);
size_t WorkersNeeded(const Job& job);

// What decides whether a queued job can start, and why it cannot. Many jobs share the same needs.
// Compute_dtype, device, workers, backups, program.
using Needs = std::tuple<v1::DataType, v1::Device, size_t, int32_t, std::string>;
Needs NeedsOf(const Job& job);

}  // namespace cairn
