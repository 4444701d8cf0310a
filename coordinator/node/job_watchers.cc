#include "coordinator/node/job_watchers.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "common/model/state_text.h"
#include "coordinator/core/limits.h"

namespace cairn {

JobWatchers::JobWatchers(Clock* clock, Executor* executor, std::function<const ClusterCore*()> core)
    : clock_(clock),
      executor_(executor),
      core_(std::move(core)),
      places_({"watches of jobs are open", kDriverWatchersMax, kDriverWatchersOfMachineMax}) {}

void JobWatchers::Add(uint64_t watcher, JobId job, std::shared_ptr<WatchSink> sink, MachinePlaces::Place place) {
  Watcher& added = watchers_[watcher];
  added.sink = std::move(sink);
  added.place = std::move(place);
  added.job = job;
}

void JobWatchers::Notify(uint64_t watcher) {
  auto it = watchers_.find(watcher);
  if (it == watchers_.end()) return;
  const ClusterCore* const core = core_();
  if (core == nullptr) return;
  Watcher& w = it->second;
  if (!w.dirty || w.writing) return;
  const absl::Time now = clock_->Now();
  const absl::Duration wait = w.written_at + kWatchInterval - now;
  if (wait > absl::ZeroDuration() && core->StateOf(w.job) == w.state) {
    if (std::exchange(w.timer, true)) return;
    executor_->PostAfter(wait, [this, watcher] {
      auto late = watchers_.find(watcher);
      if (late == watchers_.end()) return;
      late->second.timer = false;
      Notify(watcher);
    });
    return;
  }
  absl::StatusOr<v1::JobStatus> status = core->GetJob(w.job, now);
  if (!status.ok()) return Finish(watcher, status.status());  // deleted
  w.dirty = false;
  w.writing = true;
  w.state = status->state();
  w.written_at = now;
  status->clear_step_digests();  // who wants them asks once
  w.sink->Write(*std::move(status));
}

void JobWatchers::Changed(const std::vector<JobId>& jobs) {
  std::vector<uint64_t> notified;
  for (const JobId& job : jobs) {
    for (auto& [watcher, w] : watchers_) {
      if (w.job != job) continue;
      w.dirty = true;
      notified.push_back(watcher);
    }
  }
  for (const uint64_t watcher : notified) Notify(watcher);
}

void JobWatchers::Written(uint64_t watcher) {
  auto it = watchers_.find(watcher);
  if (it == watchers_.end()) return;
  it->second.writing = false;
  if (IsFinal(it->second.state)) return Finish(watcher, absl::OkStatus());
  Notify(watcher);
}

void JobWatchers::RecheckAll() {
  for (auto& [watcher, w] : watchers_) w.sink->Recheck();
}

void JobWatchers::End(const absl::Status& why) {
  for (auto& [watcher, w] : std::exchange(watchers_, {})) w.sink->Finish(why);
}

void JobWatchers::Finish(uint64_t watcher, const absl::Status& status) {
  auto node = watchers_.extract(watcher);
  if (!node.empty()) node.mapped().sink->Finish(status);
}

}  // namespace cairn
