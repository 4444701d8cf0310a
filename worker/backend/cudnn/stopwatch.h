// Stopwatch: measures how long launches take on the current device, with memory of its own for them.
//
// Used for one choice among candidates (tuning.h), on one thread; it releases what it holds. It has a stream of its
// own: what others do on the device at the same time is measured, too.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/status.h"

namespace cairn::cudnn {

class Stopwatch {
 public:
  Stopwatch() = default;
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Memory filled with small numbers; zeros would be faster than real data. Null for 0 bytes. Errors:
  // RESOURCE_EXHAUSTED.
  absl::StatusOr<void*> Memory(int64_t bytes);
  // The time of the shortest of a few runs, after a first one that loads the kernels. Waits for the device.
  absl::StatusOr<double> Microseconds(const std::function<absl::Status(cudaStream_t)>& enqueue);
  // The stream of its runs.
  absl::StatusOr<cudaStream_t> stream();

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<void*> memory_;
};

}  // namespace cairn::cudnn
