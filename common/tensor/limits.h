// Limits of the data besides the tensor in a frame, in addition to the system's limits (common/base/limits.h).
#pragma once

#include <cstddef>

namespace cairn {

// Sums of a job's metrics, of two numbers each; a partition's image holds two epochs of them
// (kFiguresBytesMax in common/model/limits.h).
inline constexpr int kMetricSumsMax = 496;
// The training figures of an update: one epoch, with kMetricSumsMax sums.
inline constexpr size_t kFrameSumsBytesMax = 8192;
static_assert(112 + 16 * kMetricSumsMax <= kFrameSumsBytesMax);

}  // namespace cairn
