// What a lost device costs: the programs on it, at once, and nothing else. And how long a step is waited for, until its device counts as lost.
//
// A device that hangs ends no step and frees no memory: it is treated as one that failed.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/backend/backend.h"

namespace cairn::cudnn {

// The first step of a plan loads kernels, and times them with --cudnn-autotune: it may take this long.
inline constexpr absl::Duration kPatience = absl::Minutes(10);
// Of later steps: so many times the slowest before it, but at least a minute. Others may use the device, too.
inline constexpr int kPatienceFactor = 10;
inline constexpr absl::Duration kPatienceMin = absl::Minutes(1);

// first: of its plan. slowest: of the program's steps so far; 0: there was none.
absl::Duration StepPatience(bool first, absl::Duration slowest);

// Of one device, for all its programs. Thread-safe.
class DeviceHealth {
 public:
  explicit DeviceHealth(std::string device) : device_(std::move(device)) {}  // "GPU 0"
  // Of a call that ended with this. A device that failed (UNAVAILABLE) or hangs (DEADLINE_EXCEEDED) is lost; then, and for other calls that fail
  // on a lost device: UNAVAILABLE, why it was lost.
  absl::Status Note(const absl::Status& status);
  absl::Status status() const;

 private:
  const std::string device_;
  mutable absl::Mutex mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
};

// The program, whose calls tell `health` how they end and are refused once the device is lost.
std::unique_ptr<Program> Watched(std::unique_ptr<Program> program, std::shared_ptr<DeviceHealth> health);

}  // namespace cairn::cudnn
