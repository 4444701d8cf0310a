// Limits of what travels with tensors in a frame, beside those of the whole system (common/base/limits.h).
#pragma once

#include <cstddef>

namespace cairn {

// Sums that a job's metrics are made of: a figure of two numbers each, and two epochs of them in a partition's image
// (kFiguresBytesMax in common/model/limits.h).
inline constexpr int kMetricSumsMax = 496;
// An update's training figures: of one epoch, with kMetricSumsMax sums.
inline constexpr size_t kFrameSumsBytesMax = 8192;
static_assert(112 + 16 * kMetricSumsMax <= kFrameSumsBytesMax);

}  // namespace cairn
