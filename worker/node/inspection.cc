#include "worker/node/inspection.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/roots.h"
#include "common/data/dataset.h"
#include "common/model/step_plan.h"
#include "common/model/written_paths.h"
#include "worker/checkpoint/path_probe.h"
#include "worker/limits.h"
#include "worker/node/restorer.h"

namespace cairn {
namespace {

absl::Status CheckStartInRoots(const v1::JobSpec& spec) {
  CAIRN_RETURN_IF_ERROR(CheckInAnyRoot("resume_from", spec.resume_from(), Access::kRead));
  return CheckInAnyRoot("initial_weights", spec.initial_weights(), Access::kRead);
}

absl::Status TryToWriteAll(const v1::JobSpec& spec, RemoteFiles* remote, absl::Time until) {
  for (const WrittenPath& written : WrittenPaths(spec)) CAIRN_RETURN_IF_ERROR(TryToWrite(written, remote, until));
  return absl::OkStatus();
}

absl::Status CheckUse(const v1::InspectData& command, const Dataset& dataset) {
  if (command.to_predict()) return absl::OkStatus();
  return command.to_evaluate() ? CheckLabelled(dataset) : CheckTrains(dataset);
}

absl::Status Inspect(const v1::InspectData& command, DatasetCache& datasets, RemoteFiles* remote,
                     v1::DataInfoReply* out) {
  const absl::Time until = absl::Now() + kInspectProbeMax;
  const v1::JobSpec& spec = command.spec();
  const Shape shape(command.input_shape().begin(), command.input_shape().end());
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const Dataset> dataset,
                         datasets.Open(command.data(), shape, DatasetCache::How::kAnew, kInspectFetchMax));
  *out->mutable_info() = dataset->info();
  CAIRN_RETURN_IF_ERROR(CheckUse(command, *dataset));
  if (command.has_spec()) CAIRN_RETURN_IF_ERROR(TryToWriteAll(spec, remote, until));
  CAIRN_RETURN_IF_ERROR(CheckStartInRoots(spec));
  if (!StartsFromFile(spec)) return absl::OkStatus();
  const StepPlan plan = StepPlan::Of(spec, static_cast<int64_t>(out->info().train_examples()));
  CAIRN_ASSIGN_OR_RETURN(*out->mutable_checkpoint(), InspectCheckpoint(spec, plan.steps_per_epoch, remote));
  return absl::OkStatus();
}

}  // namespace

v1::DataInfoReply InspectionReply(uint64_t request_id, const absl::Status& status) {
  v1::DataInfoReply out;
  out.set_request_id(request_id);
  if (!status.ok()) out.set_error(std::string(status.message()));
  // What is missing on this machine may exist on another, which has its own disk or other mounts.
  out.set_worker_only(absl::IsNotFound(status) || absl::IsPermissionDenied(status) ||
                      absl::IsResourceExhausted(status));
  return out;
}

bool InspectsRemotely(const v1::InspectData& command, const DatasetCache& datasets, const RemoteFiles* remote) {
  if (datasets.IsRemote(command.data())) return true;
  if (remote == nullptr || !command.has_spec()) return false;
  const v1::JobSpec& spec = command.spec();
  const std::vector<WrittenPath> written = WrittenPaths(spec);
  return remote->Has(spec.resume_from()) || remote->Has(spec.initial_weights()) ||
         std::any_of(written.begin(), written.end(), [&](const WrittenPath& one) { return remote->Has(one.path); });
}

v1::DataInfoReply InspectJob(const v1::InspectData& command, DatasetCache& datasets, RemoteFiles* remote) {
  v1::DataInfoReply out;
  const absl::Status status = Inspect(command, datasets, remote, &out);
  out.MergeFrom(InspectionReply(command.request_id(), status));
  return out;
}

}  // namespace cairn
