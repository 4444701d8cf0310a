#include <malloc.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/thread_priority.h"
#include "server/node/backup_connections.h"
#include "server/node/partition_environment.h"

namespace cairn {

PartitionEnvironment ProcessEnvironment(Clock& clock, int threads, TraceRecorder* trace, bool shared_memory) {
  PartitionEnvironment environment;
  environment.clock = &clock;
  for (int i = 0; i < std::max(threads, 1); ++i) {
    environment.lanes.push_back(std::make_unique<SerialExecutor>(absl::StrFormat("partitions-%d", i)));
  }
  environment.disk = std::make_unique<SerialExecutor>("images");
  environment.disk->Post(LowerThreadPriority);  // so that a delayed image does not delay a step
  environment.backups = std::make_unique<BackupConnections>(clock, trace, shared_memory);
  environment.trace = trace;
  environment.give_back_memory = [] { malloc_trim(0); };
  return environment;
}

}  // namespace cairn
