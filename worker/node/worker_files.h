// WorkerFiles: what the jobs of a worker do with files (file_queues.h), and the end of what a job still writes to S3
// after it was dropped: the copy of its best checkpoint, the last checkpoint of a former chief. A dead endpoint does
// not keep a thread.
//
// Thread-safe. Invariants:
//   1. What is under way at a drop, or begins after it, ends kUploadsAfterDropMax after the drop; of a cancelled job
//      what is under way ends at once.
//   2. What a job begins after it has come back, or after something was asked of it anew, is not concerned, also where
//      it is dropped again meanwhile: that drop has its own time. Until then it is bounded as what any job does that is
//      here: each request to S3 is repeated for a bounded time (common/base/remote_files.h).
//   3. A dropped job costs nothing here after that time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/executor.h"
#include "common/base/ids.h"
#include "common/base/remote_files.h"
#include "worker/train/file_queues.h"

namespace cairn {

class WorkerFiles {
 public:
  // remote: null: every path is of this machine. Both outlive this; `timers` is stopped before it ends.
  WorkerFiles(Executor* timers, RemoteFiles* remote) : timers_(timers), queues_(remote) {}

  FileQueues& queues() { return queues_; }
  // Before tasks are posted that follow the drop.
  void OnDrop(JobId job, bool cancelled);
  // The job is here, perhaps again, or the coordinator asks this worker for a file of it, whether it is here or not;
  // before the first task of that is posted.
  void OnRequest(JobId job);

 private:
  struct Drop {
    std::vector<std::weak_ptr<RemoteFiles>> uploads;  // of the tasks that it concerns
  };
  // The job's last drop, if it is open, concerns what has begun since, and nothing later.
  void Close(JobId job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnTime(JobId job, const std::shared_ptr<Drop>& drop);

  Executor* const timers_;
  FileQueues queues_;
  absl::Mutex mutex_;
  // Of each job of which nothing was asked since, the last drop, until its time is over.
  std::map<JobId, std::shared_ptr<Drop>> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
