// JobWatchers: who watches which job, and when each is written the job's status.
//
// Lives on the executor of its ClusterDriver; TakePlace is for any thread. Invariants:
//   1. A watcher has at most one write in progress, and no two begin within kWatchInterval, unless the job's state has
//      changed. Other changes meanwhile are written together, by the next one.
//   2. Each sink is finished once: after a write of the job's final state, when the job is deleted, or by End. Only a
//      watcher that is Gone is not finished.
//   3. There are at most kDriverWatchersMax watchers, at most kDriverWatchersOfMachineMax of one machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/ids.h"
#include "coordinator/core/cluster_core.h"
#include "coordinator/node/cluster_sinks.h"
#include "coordinator/node/machine_places.h"

namespace cairn {

class JobWatchers {
 public:
  // The minimum time between two updates of a watched job in the same state.
  static constexpr absl::Duration kWatchInterval = absl::Milliseconds(200);

  // core: the core to ask for a status; null if the driver may no longer act, which has then ended all watchers. clock
  // and executor outlive the watchers.
  JobWatchers(Clock* clock, Executor* executor, std::function<const ClusterCore*()> core);

  // Errors: RESOURCE_EXHAUSTED: there are too many watchers, or of this machine.
  absl::StatusOr<MachinePlaces::Place> TakePlace(const std::string& machine) { return places_.Take(machine); }
  // The first status is written by Notify.
  void Add(uint64_t watcher, JobId job, std::shared_ptr<WatchSink> sink, MachinePlaces::Place place);
  // Writes the job's status if it changed, the last write is done and the minimum interval has passed or its state is
  // another; otherwise it is written later.
  void Notify(uint64_t watcher);
  // As Notify, for all who watch these jobs.
  void Changed(const std::vector<JobId>& jobs);
  // The sink's last Write is done.
  void Written(uint64_t watcher);
  void Gone(uint64_t watcher) { watchers_.erase(watcher); }
  void RecheckAll();  // WatchSink::Recheck
  void End(const absl::Status& why);

 private:
  struct Watcher {
    std::shared_ptr<WatchSink> sink;
    MachinePlaces::Place place;
    JobId job;
    bool dirty = true;
    bool writing = false;
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;  // that was written last
    bool timer = false;
    absl::Time written_at = absl::InfinitePast();
  };

  void Finish(uint64_t watcher, const absl::Status& status);

  Clock* const clock_;
  Executor* const executor_;
  const std::function<const ClusterCore*()> core_;
  MachinePlaces places_;
  std::map<uint64_t, Watcher> watchers_;
};

}  // namespace cairn
