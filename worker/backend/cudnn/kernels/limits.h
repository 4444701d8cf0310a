// The limits of the kernels. Plain types only, as in kernels.h.
#pragma once

#include <cstdint>

namespace cairn::cudnn::kernels {

inline constexpr int kJoinMax = 8;  // inputs of one launch; a program chains longer joins
inline constexpr int kMetricsMax = 32;
inline constexpr int kOperandsMax = 3;  // of an operation
inline constexpr int kAxesMax = 6;      // the examples and up to five axes of a layer
// Rows of up to this many numbers are processed by one warp.
inline constexpr int64_t kWarpColumnsMax = 512;
inline constexpr int64_t kWarpOutputsMax = 512;
inline constexpr int64_t kWarpCountMax = 1024;
// How many numbers of the input one number of the output depends on: those of Lanczos with a radius of 5. A line of the
// table begins with the first position and ends with the share of the padding.
inline constexpr int64_t kResampleTaps = 11;
inline constexpr int64_t kResampleLine = kResampleTaps + 2;

}  // namespace cairn::cudnn::kernels
