#include "worker/train/file_queues.h"

#include <pthread.h>

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include "common/base/log.h"
#include "common/base/thread_priority.h"

namespace cairn {

FileQueues::FileQueues(RemoteFiles* remote, size_t threads_max) : remote_(remote), threads_max_(threads_max) {
  absl::MutexLock lock(&mutex_);
  Begin(kLocal);
  if (remote_ != nullptr) Begin(kRemote);
}

FileQueues::~FileQueues() { Stop(); }

void FileQueues::Post(JobId job, const std::vector<std::string>& paths, Task task) {
  const auto is_remote = [this](const std::string& path) { return remote_->Has(path); };
  const bool remote = remote_ != nullptr && std::any_of(paths.begin(), paths.end(), is_remote);
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  const auto [it, is_new] = queues_.try_emplace(job);
  Queue& queue = it->second;
  if (queue.remote == nullptr && remote_ != nullptr) queue.remote = remote_->ForJob();
  queue.waiting.push_back({remote ? kRemote : kLocal, std::move(task), queue.remote});
  if (is_new) MakeReady(job);  // else the end of the job's task does
}

void FileQueues::Begin(Place place) {
  pools_[place].threads.emplace_back([this, place] { Run(place); });
  ++pools_[place].idle;
}

void FileQueues::MakeReady(JobId job) {
  const Place place = queues_.at(job).waiting.front().place;
  Pool& pool = pools_[place];
  pool.ready.push_back(job);
  if (stopping_ || pool.ready.size() <= pool.idle || pool.threads.size() >= threads_max_) return;
  try {
    Begin(place);
  } catch (const std::system_error& error) {
    LogWarning("checkpoints: no further thread, %d write: %s", pool.threads.size(), error.what());
  }
}

void FileQueues::Run(Place place) {
  pthread_setname_np(pthread_self(), place == kRemote ? "checkpoints-s3" : "checkpoints");
  LowerThreadPriority();  // so that a checkpoint does not delay a step
  while (true) {
    JobId job;
    Waiting next;
    {
      absl::MutexLock lock(&mutex_);
      Pool& pool = pools_[place];
      // A task that runs elsewhere may have one of its job for this place behind it.
      const auto wanted = [this, &pool]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !pool.ready.empty() || (stopping_ && queues_.empty());
      };
      mutex_.Await(absl::Condition(&wanted));
      if (pool.ready.empty()) return;
      --pool.idle;
      job = pool.ready.front();
      pool.ready.pop_front();
      std::deque<Waiting>& waiting = queues_.at(job).waiting;
      next = std::move(waiting.front());
      waiting.pop_front();
    }
    next.task(next.remote.get());
    next = {};  // releases its captures before the next task runs
    absl::MutexLock lock(&mutex_);
    ++pools_[place].idle;
    const auto it = queues_.find(job);
    if (it->second.waiting.empty()) {
      queues_.erase(it);
    } else {
      MakeReady(job);
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
    for (Pool& pool : pools_) {
      std::move(pool.threads.begin(), pool.threads.end(), std::back_inserter(threads));
      pool.threads.clear();
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace cairn
