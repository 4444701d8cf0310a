#include "tests/sim/devices.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/model/fault_check.h"
#include "tests/sim/rng.h"

namespace cairn::sim {
namespace {

constexpr uint64_t kOwnNumbers = 0x9e3779b97f4a7c15;  // of this plan: what a seed draws besides is as it was

bool BitsMatter(const v1::JobSpec& spec) { return IsSynchronous(spec) && spec.backup_replicas() == 0; }

}  // namespace

DevicePlan DevicePlan::Random(uint64_t seed, int workers, v1::JobSpec& spec) {
  Rng rng(seed ^ kOwnNumbers);
  DevicePlan plan;
  plan.kinds.assign(static_cast<size_t>(workers), v1::CPU);
  if (!rng.Chance(0.3)) return plan;
  plan.mixed = true;
  for (v1::Device& kind : plan.kinds) kind = rng.Chance(0.5) ? v1::GPU : v1::CPU;
  const auto fits = [&](v1::Device kind) { return CanCompute(spec, kind); };
  if (rng.Chance(0.4)) spec.set_device(rng.Pick(plan.kinds));
  if (std::none_of(plan.kinds.begin(), plan.kinds.end(), fits)) {
    spec.clear_device();
    plan.kinds.front() = v1::GPU;
  }
  return plan;
}

void FillDevice(v1::Device kind, v1::Hello& hello) {
  hello.set_device_kind(kind);
  hello.set_fingerprint(v1::Device_Name(kind));
  hello.add_compute_dtypes(v1::FLOAT32);
  hello.add_compute_dtypes(v1::BFLOAT16);
  if (kind == v1::GPU) hello.add_compute_dtypes(v1::FLOAT16);
}

bool CanCompute(const v1::JobSpec& spec, v1::Device kind) {
  if (spec.compute_dtype() == v1::FLOAT16 && kind != v1::GPU) return false;
  return spec.device() == v1::DEVICE_UNSPECIFIED || spec.device() == v1::ANY || spec.device() == kind;
}

void DeviceChecker::Placed(const v1::JobStatus& status, const std::set<std::string>& steady) {
  if (kinds_.empty()) return;
  std::map<v1::Device, std::string> used;  // and by whom
  for (const v1::ReplicaPlacement& r : status.replicas()) {
    if (!r.worker().empty()) used[kinds_.at(r.worker())] = r.worker();
  }
  if (used.empty()) return;
  if (used.size() > 1) {
    return world_.Fail(absl::StrFormat("devices: replicas are on \"%s\" (%s) and on \"%s\" (%s) at a time",
                                       used.begin()->second, v1::Device_Name(used.begin()->first),
                                       used.rbegin()->second, v1::Device_Name(used.rbegin()->first)));
  }
  const auto& [kind, worker] = *used.begin();
  if (!CanCompute(status.spec(), kind))
    return world_.Fail(absl::StrFormat("devices: \"%s\" cannot compute the job", worker));
  const auto& named = status.devices();
  if (std::find(named.begin(), named.end(), kind) == named.end()) {
    return world_.Fail(absl::StrFormat("devices: the job's status does not name %s", v1::Device_Name(kind)));
  }
  if (!BitsMatter(status.spec()) || kind == named.Get(0)) return;
  for (const std::string& other : steady) {
    if (kinds_.at(other) != named.Get(0)) continue;
    return world_.Fail(absl::StrFormat("devices: a job that began on %s is on \"%s\" (%s), though \"%s\" is there",
                                       v1::Device_Name(named.Get(0)), worker, v1::Device_Name(kind), other));
  }
}

}  // namespace cairn::sim
