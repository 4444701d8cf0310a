// DeviceHealth: whether a device is lost: it failed for good, or hangs. All who use the device share one: its programs,
// machines, their memory.
//
// A device that hangs ends no step, frees no memory and can be waited for for ever; it is treated as one that failed.
// Thread-safe.
#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"

namespace cairn::cudnn {

class DeviceHealth {
 public:
  explicit DeviceHealth(std::string device) : device_(std::move(device)) {}  // "GPU 0"
  // Of a call that ended with this. A device that failed (UNAVAILABLE) or hangs (DEADLINE_EXCEEDED) is lost, for good;
  // then, and for other calls that fail on a lost device: UNAVAILABLE, why it was lost.
  absl::Status Note(const absl::Status& status);
  absl::Status status() const;
  bool lost() const { return !status().ok(); }

 private:
  const std::string device_;
  mutable absl::Mutex mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::cudnn
