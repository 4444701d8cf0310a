// InspectJob: what a worker says of a job's data, and of the paths that the job reads and writes, before it is queued.
//
// Free functions; any thread, they read files. A path outside the worker's roots is refused as one that is missing.
#pragma once

#include <cstdint>

#include "cairn/v1/cluster.pb.h"
#include "common/base/remote_files.h"
#include "common/base/status.h"
#include "worker/train/dataset_cache.h"

namespace cairn {

// remote: null: every path is of this machine.
v1::DataInfoReply InspectJob(const v1::InspectData& command, DatasetCache& datasets, RemoteFiles* remote);

// Whether it looks at anything that lies remotely, which may take long.
bool InspectsRemotely(const v1::InspectData& command, const DatasetCache& datasets, const RemoteFiles* remote);

// An answer that has nothing but the error, or OK.
v1::DataInfoReply InspectionReply(uint64_t request_id, const absl::Status& status);

}  // namespace cairn
