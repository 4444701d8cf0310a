// FileQueues: what the jobs of a worker do with files, here or on S3: those of one job in the order in which they were
// posted, one at a time; those of different jobs beside each other, so that a job whose S3 is away holds up no other.
//
// Thread rule: any thread, a task's own too; Stop and the destructor not from a task. Invariants:
//   1. Tasks of one job never overlap, and each sees what those before it did.
//   2. Files of this machine and remote ones have threads of their own: however many jobs wait for an S3 that is away,
//      no task that uses files of this machine alone waits for theirs, but for one of the same job.
//   3. At most threads_max tasks run at the same time in each of these places; jobs take turns where more have some, so
//      that a job's task waits for at most one of each other job at a time. Threads have a low priority; the first of
//      each place is there from the start, the others begin when they are needed and the system has them.
//   4. A job costs nothing here while none of its tasks waits or runs.
// A queue is unbounded: what a job posts is bounded by the checkpoints, digests and model files that it is asked for.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
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

  // paths: the job's, of the files and folders that the task uses; none: it uses none. After Stop: drops the task.
  void Post(JobId job, const std::vector<std::string>& paths, Task task);
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
  enum Place { kLocal, kRemote, kPlaces };
  struct Waiting {
    Place place = kLocal;
    Task task;
    std::shared_ptr<RemoteFiles> remote;
  };
  struct Queue {  // of a job that has a task that waits or runs
    std::deque<Waiting> waiting;
    std::shared_ptr<RemoteFiles> remote;  // of the tasks that come; null: made by the next one
    std::vector<std::weak_ptr<RemoteFiles>> detached;
  };
  struct Pool {               // of one place
    std::deque<JobId> ready;  // jobs of which none runs, and the first that waits is for this place
    size_t idle = 0;          // threads that wait for one of them
    std::vector<std::thread> threads;
  };

  void Begin(Place place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A task of the job waits, and none runs.
  void MakeReady(JobId job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(Place place);

  RemoteFiles* const remote_;
  const size_t threads_max_;
  absl::Mutex mutex_;
  std::map<JobId, Queue> queues_ ABSL_GUARDED_BY(mutex_);
  std::array<Pool, kPlaces> pools_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
