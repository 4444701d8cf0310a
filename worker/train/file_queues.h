// FileQueues: what the jobs of a worker do with files, here or on S3: those of one job in the order in which they were
// posted, one at a time; those of different jobs beside each other, so that a job whose S3 is away holds up no other.
//
// Thread rule: any thread, a task's own too; Stop and the destructor not from a task. Invariants:
//   1. Tasks of one job never overlap, and each sees what those before it did.
//   2. At most threads_max tasks run at the same time; jobs take turns where more have some. Threads have a low
//      priority; the first one is there from the start, the others begin when they are needed and the system has them.
//   3. A job costs nothing here while none of its tasks waits or runs.
// A queue is unbounded: what a job posts is bounded by the checkpoints, digests and model files that it is asked for.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/remote_files.h"
#include "worker/limits.h"

namespace cairn {

class FileQueues {
 public:
  // remote: the remote files as this job has them; null: every path is of this machine.
  using Task = std::function<void(RemoteFiles* remote)>;

  // remote: null: there are none; outlives this.
  explicit FileQueues(RemoteFiles* remote, size_t threads_max = kFileThreadsMax);
  ~FileQueues();
  FileQueues(const FileQueues&) = delete;
  FileQueues& operator=(const FileQueues&) = delete;

  // After Stop: drops the task.
  void Post(JobId job, Task task);
  // The remote files of the job's tasks so far: after Stop of them, what they ask ends with CANCELLED within about a
  // second. Files of this machine are finished, and tasks that are posted later are not concerned. Expired: there is
  // none, or all have ended.
  std::weak_ptr<RemoteFiles> DetachRemote(JobId job);
  // Stops them now, and those that were detached.
  void GiveUpRemote(JobId job);
  // Whether all tasks have ended within this time.
  bool AwaitIdle(absl::Duration wait_max);
  // Runs the tasks that were posted, and waits for them.
  void Stop();

 private:
  struct Waiting {
    Task task;
    std::shared_ptr<RemoteFiles> remote;
  };
  struct Queue {  // of a job that has a task that waits or runs
    std::deque<Waiting> waiting;
    std::shared_ptr<RemoteFiles> remote;  // of the tasks that come; null: made by the next one
    std::vector<std::weak_ptr<RemoteFiles>> detached;
  };

  void Run();

  RemoteFiles* const remote_;
  const size_t threads_max_;
  absl::Mutex mutex_;
  std::map<JobId, Queue> queues_ ABSL_GUARDED_BY(mutex_);
  std::deque<JobId> ready_ ABSL_GUARDED_BY(mutex_);  // jobs of which a task waits and none runs
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;          // threads that wait for one of them
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
