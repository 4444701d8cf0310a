// Every limit of the backends, its reason, and how the limits depend on one another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace cairn {

// ---- CPUs ----

inline constexpr int kComputeThreadsMax = 1024;

// ---- GPUs ----

// Of a window; a place in it fits a byte.
inline constexpr int64_t kPoolingPlacesMax = 256;
inline constexpr int64_t kConvolutionWorkspaceBytesMax = int64_t{1} << 30;
// What NVIDIA advises for Hopper.
inline constexpr int64_t kProductWorkspaceBytesMax = int64_t{32} << 20;
// Of a choice by time.
inline constexpr size_t kCandidatesMax = 12;
// A model has some hundred shapes. Beyond this nothing is added.
inline constexpr size_t kTuningEntriesMax = 20000;
inline constexpr uintmax_t kTuningFileBytesMax = 16 << 20;

}  // namespace cairn
