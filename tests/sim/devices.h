// Clusters of CPUs and GPUs: the device of each worker, and a checker of job placement.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "tests/sim/world.h"

namespace cairn::sim {

// Some seeds mix devices; others have only CPUs and jobs without a preference. At least one worker can compute the job.
struct DevicePlan {
  static DevicePlan Random(uint64_t seed, int workers, v1::JobSpec& spec);
  bool mixed = false;
  std::vector<v1::Device> kinds;  // by worker
};

// Fills in what a worker with this device reports of itself.
void FillDevice(v1::Device kind, v1::Hello& hello);
bool CanCompute(const v1::JobSpec& spec, v1::Device kind);

// Replicas are never on both kinds at a time, and only on workers that can compute the job. A deterministic synchronous
// job stays on the kind that it began on while a worker of that kind is there; its status names every kind used.
class DeviceChecker {
 public:
  explicit DeviceChecker(World& world) : world_(world) {}
  void Know(const std::string& worker, v1::Device kind) { kinds_[worker] = kind; }
  // Checks a coordinator's placement. steady: workers that are up and had no trouble recently.
  void Placed(const v1::JobStatus& status, const std::set<std::string>& steady);

 private:
  World& world_;
  std::map<std::string, v1::Device> kinds_;
};

}  // namespace cairn::sim
