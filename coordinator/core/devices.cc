#include "coordinator/core/devices.h"

#include <algorithm>

#include "common/model/external_check.h"

namespace cairn {

// Whether the job promises the same bits of its weights from run to run.
bool BitsMatter(const Job& job) {
  const v1::JobSpec& spec = job.status.spec();
  return job.synchronous() && (!spec.has_deterministic() || spec.deterministic()) && spec.backup_replicas() == 0;
}

// Whether the node has the job's program and supports its compute_dtype, without which it cannot work for the job.
bool Computes(const v1::JobSpec& spec, const ClusterNode& node) {
  if (const v1::External* const external = ExternalOf(spec)) {
    return std::any_of(node.machine.programs.begin(), node.machine.programs.end(),
                       [&](const v1::ExternalProgram& program) {
                         return program.name() == external->program() && program.version() == external->version();
                       });
  }
  if (node.machine.programs_only) return false;
  const std::vector<v1::DataType>& types = node.machine.compute_dtypes;
  return types.empty() || spec.compute_dtype() == v1::DATA_TYPE_UNSPECIFIED ||
         std::find(types.begin(), types.end(), spec.compute_dtype()) != types.end();
}

// Also compares the kind of device that the user asks for, for training.
bool Fits(const v1::JobSpec& spec, const ClusterNode& worker) {
  const bool any = spec.device() == v1::DEVICE_UNSPECIFIED || spec.device() == v1::ANY;
  return Computes(spec, worker) && (any || spec.device() == worker.machine.device_kind);
}

std::vector<v1::Device> PreferredDevices(const Job& job) {
  if (BitsMatter(job) && job.status.devices_size() > 0 && job.status.devices(0) == v1::CPU) return {v1::CPU, v1::GPU};
  return {v1::GPU, v1::CPU};
}

size_t WorkersNeeded(const Job& job) {
  return job.mirrored() ? 1 : static_cast<size_t>(std::max(1, job.status.spec().min_workers()));
}

Needs NeedsOf(const Job& job) {
  const v1::JobSpec& spec = job.status.spec();
  const v1::External* const external = ExternalOf(spec);
  return {spec.compute_dtype(), spec.device(), WorkersNeeded(job), spec.backups(),
          external == nullptr ? "" : ProgramText(external->program(), external->version())};
}

}  // namespace cairn
