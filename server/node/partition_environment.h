// PartitionEnvironment: what PartitionHost and PartitionRunner run on: clock, executors, connections to other ps.
// ProcessEnvironment makes that of a ps process; the simulator makes its own.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/trace.h"
#include "server/node/backup_transport.h"
#include "server/node/partition_observer.h"

namespace cairn {

struct PartitionEnvironment {
  Clock* clock = nullptr;                        // REQUIRED; outlives the host
  std::vector<std::unique_ptr<Executor>> lanes;  // REQUIRED, at least one: partitions are spread over them
  std::unique_ptr<Executor> disk;                // REQUIRED: writes images and reads values, apart from the lanes
  std::unique_ptr<BackupTransport> backups;      // REQUIRED
  // Returns free memory of this process to the system; may be slow.
  std::function<void()> give_back_memory = [] {};
  PartitionObserver* observer = nullptr;
  TraceRecorder* trace = nullptr;  // gets the times of steps of jobs that are traced; null: none
};

// threads: the number of lanes, at least one. trace: may be null.
PartitionEnvironment ProcessEnvironment(Clock& clock, int threads, TraceRecorder* trace = nullptr,
                                        bool shared_memory = true);

}  // namespace cairn
