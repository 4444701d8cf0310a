// Every limit of the kernels. Plain types only, as in kernels.h.
#pragma once

#include <cstdint>

namespace cairn::cudnn::kernels {

inline constexpr int kJoinMax = 8;  // inputs of one launch; a program chains longer joins
inline constexpr int kMetricsMax = 32;
// Rows up to so many numbers are one warp's.
inline constexpr int64_t kWarpColumnsMax = 512;
inline constexpr int64_t kWarpOutputsMax = 512;
inline constexpr int64_t kWarpCountMax = 1024;
// Places of the input that one of the output is made of: Lanczos with a radius of 5. A line of the table has the first
// of them in front, and behind them the share of what lies outside.
inline constexpr int64_t kResampleTaps = 11;
inline constexpr int64_t kResampleLine = kResampleTaps + 2;

}  // namespace cairn::cudnn::kernels
