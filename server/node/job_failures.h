// JobFailures: the fault of a ps' store, and the jobs that it cannot serve because of failures.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/ids.h"
#include "common/base/status.h"

namespace cairn {

class JobFailures {
 public:
  struct Failure {
    Generation generation;
    absl::Status status;
  };

  // Records an error of the store; the first one is kept. Returns the status.
  absl::Status NoteFault(absl::Status status) {
    if (!status.ok()) {
      absl::MutexLock lock(&mutex_);
      if (fault_.empty()) fault_ = std::string(status.message());
    }
    return status;
  }
  std::string fault() const {
    absl::MutexLock lock(&mutex_);
    return fault_;
  }

  void Add(JobId job, const Failure& failure) {
    absl::MutexLock lock(&mutex_);
    by_job_[job.value] = failure;
  }
  void Remove(JobId job) {
    absl::MutexLock lock(&mutex_);
    by_job_.erase(job.value);
  }
  std::map<uint64_t, Failure> by_job() const {
    absl::MutexLock lock(&mutex_);
    return by_job_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::string fault_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Failure> by_job_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
