#include "worker/train/file_queues.h"

#include <pthread.h>

#include <system_error>
#include <utility>

#include "common/base/log.h"
#include "common/base/thread_priority.h"

namespace cairn {

FileQueues::FileQueues(RemoteFiles* remote, size_t threads_max) : remote_(remote), threads_max_(threads_max) {
  threads_.emplace_back([this] { Run(); });
}

FileQueues::~FileQueues() { Stop(); }

void FileQueues::Post(JobId job, Task task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  const auto [it, is_new] = queues_.try_emplace(job);
  Queue& queue = it->second;
  if (queue.remote == nullptr && remote_ != nullptr) queue.remote = remote_->ForJob();
  queue.waiting.push_back({std::move(task), queue.remote});
  if (!is_new) return;  // who runs its task goes on with this one
  ready_.push_back(job);
  if (ready_.size() <= idle_ || threads_.size() >= threads_max_) return;
  try {
    threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error& error) {
    LogWarning("checkpoints: no further thread, %d write: %s", threads_.size(), error.what());
  }
}

void FileQueues::Run() {
  pthread_setname_np(pthread_self(), "checkpoints");
  LowerThreadPriority();  // so that a checkpoint does not delay a step
  while (true) {
    JobId job;
    Waiting next;
    {
      absl::MutexLock lock(&mutex_);
      ++idle_;
      const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !ready_.empty(); };
      mutex_.Await(absl::Condition(&wanted));
      --idle_;
      if (ready_.empty()) return;
      job = ready_.front();
      ready_.pop_front();
      std::deque<Waiting>& waiting = queues_.at(job).waiting;
      next = std::move(waiting.front());
      waiting.pop_front();
    }
    next.task(next.remote.get());
    next = {};  // releases its captures before the next task runs
    absl::MutexLock lock(&mutex_);
    const auto it = queues_.find(job);
    if (it->second.waiting.empty()) {
      queues_.erase(it);
    } else {
      ready_.push_back(job);
    }
  }
}

std::weak_ptr<RemoteFiles> FileQueues::DetachRemote(JobId job) {
  absl::MutexLock lock(&mutex_);
  const auto it = queues_.find(job);
  if (it == queues_.end() || it->second.remote == nullptr) return {};
  std::erase_if(it->second.detached, [](const auto& remote) { return remote.expired(); });
  const std::shared_ptr<RemoteFiles> remote = std::exchange(it->second.remote, nullptr);  // the tasks hold it
  return it->second.detached.emplace_back(remote);
}

void FileQueues::GiveUpRemote(JobId job) {
  DetachRemote(job);
  std::vector<std::shared_ptr<RemoteFiles>> stopped;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = queues_.find(job);
    if (it == queues_.end()) return;
    for (const auto& weak : it->second.detached) stopped.push_back(weak.lock());
  }
  for (const auto& remote : stopped) {
    if (remote != nullptr) remote->Stop();
  }
}

bool FileQueues::AwaitIdle(absl::Duration wait_max) {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return queues_.empty(); };
  return mutex_.AwaitWithTimeout(absl::Condition(&idle), wait_max);
}

void FileQueues::Stop() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace cairn
