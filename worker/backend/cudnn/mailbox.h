// Mailbox: how a thread of CUDA tells the thread that waits for a device that signals of a step have arrived, or that
// all work is done.
//
// Thread-safe. The waiting thread looks at the device from time to time, since a failed device sends no messages.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"

namespace cairn::cudnn {

class Mailbox {
 public:
  // device: its name in errors.
  explicit Mailbox(std::string device) : device_(std::move(device)) {}

  void Reset(int count);  // forgets the signals that arrived
  void Put(int signal);
  // Returns a new number, greater than all before. PutDrain of it says that all work enqueued before is done.
  uint64_t AskDrain();
  void PutDrain(uint64_t drain);

  // Called every `look`. nullopt: the device still works; else it is idle: OK, or its error.
  using Look = std::function<std::optional<absl::Status>()>;
  // Errors: that of the device; INTERNAL if the device is idle and the signal has not arrived; DEADLINE_EXCEEDED after
  // `patience`.
  absl::Status Wait(int signal, absl::Duration patience, absl::Duration look, const Look& device);
  absl::Status WaitForDrain(uint64_t drain, absl::Duration patience, absl::Duration look, const Look& device);

 private:
  absl::Status WaitUntil(const absl::Condition& there, absl::Duration patience, absl::Duration look,
                         const Look& device);

  const std::string device_;
  absl::Mutex mutex_;
  std::vector<bool> arrived_ ABSL_GUARDED_BY(mutex_);
  uint64_t drains_asked_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t drained_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::cudnn
