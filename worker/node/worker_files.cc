#include "worker/node/worker_files.h"

#include <utility>

#include "worker/limits.h"

namespace cairn {

void WorkerFiles::OnDrop(JobId job, bool cancelled) {
  if (cancelled) queues_.GiveUpRemote(job);
  const auto drop = std::make_shared<Drop>();
  {
    absl::MutexLock lock(&mutex_);
    Close(job);
    drop->uploads.push_back(queues_.DetachRemote(job));
    open_[job] = drop;
  }
  timers_->PostAfter(kUploadsAfterDropMax, [this, job, drop] { OnTime(job, drop); });
}

void WorkerFiles::OnRequest(JobId job) {
  absl::MutexLock lock(&mutex_);
  Close(job);
}

void WorkerFiles::Close(JobId job) {
  const auto it = open_.find(job);
  if (it == open_.end()) return;
  it->second->uploads.push_back(queues_.DetachRemote(job));
  open_.erase(it);
}

void WorkerFiles::OnTime(JobId job, const std::shared_ptr<Drop>& drop) {
  std::vector<std::weak_ptr<RemoteFiles>> uploads;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = open_.find(job);
    if (it != open_.end() && it->second == drop) Close(job);  // the last part of a cut came late
    uploads = std::move(drop->uploads);
  }
  for (const std::weak_ptr<RemoteFiles>& weak : uploads) {
    if (const std::shared_ptr<RemoteFiles> remote = weak.lock()) remote->Stop();
  }
}

}  // namespace cairn
