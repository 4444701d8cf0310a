// Mailbox: what CUDA's own thread tells the thread that waits for a device: signals of a step that arrived, and that
// all work is done.
//
// Thread-safe. Who waits looks at the device now and then: a device that failed tells nothing.
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
  // `device`: in errors.
  explicit Mailbox(std::string device) : device_(std::move(device)) {}

  void Reset(int count);  // forgets the signals that arrived
  void Put(int signal);
  // A number greater than those before; PutDrain of it says that all work enqueued before is done.
  uint64_t AskDrain();
  void PutDrain(uint64_t drain);

  // Called every `look`. Unset: work goes on. Else the device has nothing to do any more: OK, or its error.
  using Look = std::function<std::optional<absl::Status>()>;
  // Errors: the device's; INTERNAL, it has nothing to do and the signal did not arrive; DEADLINE_EXCEEDED after
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
