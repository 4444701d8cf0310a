// DeviceHealth: whether a device is lost: it failed for good, or it hangs. The programs and machines of a device, and
// their memory, share one.
//
// Thread-safe. A device that hangs ends no step and frees no memory, and a wait for it would never end; so it is
// treated like one that failed.
#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"

namespace cairn::cudnn {

class DeviceHealth {
 public:
  explicit DeviceHealth(std::string device) : device_(std::move(device)) {}  // "GPU 0"
  // Takes note of how a call on the device ended, and returns the status for the caller. A device that failed
  // (UNAVAILABLE) or hangs (DEADLINE_EXCEEDED) is lost for good. On a lost device every failed call returns UNAVAILABLE
  // with the reason of the loss, except CANCELLED.
  absl::Status Note(const absl::Status& status);
  absl::Status status() const;
  bool lost() const { return !status().ok(); }

 private:
  const std::string device_;
  mutable absl::Mutex mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::cudnn
