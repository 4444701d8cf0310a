// Clusters of CPUs and GPUs: which workers have which, and what must hold of where a job goes.
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

// Of some seeds; the others have CPUs alone, and jobs without a wish. A worker at least can compute the job.
struct DevicePlan {
  static DevicePlan Random(uint64_t seed, int workers, v1::JobSpec& spec);
  bool mixed = false;
  std::vector<v1::Device> kinds;  // by worker
};

// What a worker with this device says of itself.
void FillDevice(v1::Device kind, v1::Hello& hello);
bool CanCompute(const v1::JobSpec& spec, v1::Device kind);

// Replicas are never on both kinds at a time, and only where the job can be computed. A job whose bits matter is on the
// kind that it began on, as long as a worker with that one is there; its status names each kind that it was on.
class DeviceChecker {
 public:
  explicit DeviceChecker(World& world) : world_(world) {}
  void Know(const std::string& worker, v1::Device kind) { kinds_[worker] = kind; }
  // As a coordinator has placed it. steady: workers that are up, and had no trouble lately.
  void Placed(const v1::JobStatus& status, const std::set<std::string>& steady);

 private:
  World& world_;
  std::map<std::string, v1::Device> kinds_;
};

}  // namespace cairn::sim
