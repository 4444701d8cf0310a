// The limits of the backends, the reason for each, and how they depend on one another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace cairn {

// ---- CPUs ----

inline constexpr int kComputeThreadsMax = 1024;

// ---- GPUs ----

// Positions of a pooling window: the index of one fits into a byte.
inline constexpr int64_t kPoolingPlacesMax = 256;
inline constexpr int64_t kConvolutionWorkspaceBytesMax = int64_t{1} << 30;
// The size that NVIDIA recommends for Hopper.
inline constexpr int64_t kProductWorkspaceBytesMax = int64_t{32} << 20;
// How many engines are timed to choose one.
inline constexpr size_t kCandidatesMax = 12;
// A model has some hundred shapes. A full file takes no more entries.
inline constexpr size_t kTuningEntriesMax = 20000;
inline constexpr uintmax_t kTuningFileBytesMax = 16 << 20;

}  // namespace cairn
