// QuotaFile: the quotas in a file that may be changed at any time.
//
// Thread-safe. Invariants: 1. A changed file is in use for the submissions that come kQuotaFileRefresh later, as a
// whole; one that cannot be used leaves the quotas as they were, with a line in the log, said once. 2. A file that is
// gone is one that cannot be used: quotas do not end by accident.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "coordinator/core/quotas.h"

namespace cairn {

class QuotaFile {
 public:
  // clock: thread-safe, outlives it. Errors: INVALID_ARGUMENT names the file, the line and what is wrong.
  static absl::StatusOr<std::unique_ptr<QuotaFile>> Open(const std::string& path, Clock* clock);

  // Reads the file if it is time to.
  std::shared_ptr<const Quotas> Current();

 private:
  QuotaFile(std::string path, Clock* clock, Quotas quotas);

  const std::string path_;
  Clock* const clock_;
  absl::Mutex mutex_;
  std::shared_ptr<const Quotas> quotas_ ABSL_GUARDED_BY(mutex_);
  std::string text_ ABSL_GUARDED_BY(mutex_);      // when it was read last
  absl::Status of_text_ ABSL_GUARDED_BY(mutex_);  // what is wrong with that
  absl::Time looked_at_ ABSL_GUARDED_BY(mutex_);
  absl::Status said_ ABSL_GUARDED_BY(mutex_);  // what the log has of it
};

}  // namespace cairn
