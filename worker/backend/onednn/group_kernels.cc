#include "worker/backend/onednn/group_kernels.h"

#include <algorithm>
#include <cmath>

#include "worker/backend/onednn/kernels.h"
#include "worker/backend/onednn/vector.h"

namespace cairn::onednn {
namespace {

// Three lines of an example's channels: sums, or the factors of a line's loop.
struct Lines {
  double *a, *b, *c;
};
Lines LinesOf(const GroupShape& s, double* scratch, int64_t example) {
  double* lines = scratch + example * 3 * s.channels;
  return {lines, lines + s.channels, lines + 2 * s.channels};
}

CAIRN_VECTOR void AddLine(const float* __restrict x, int64_t count, double* __restrict sums) {
  for (int64_t c = 0; c < count; ++c) sums[c] += x[c];
}
CAIRN_VECTOR void AddSquares(const float* __restrict x, const double* __restrict mean, int64_t count,
                             double* __restrict sums) {
  for (int64_t c = 0; c < count; ++c) sums[c] += (x[c] - mean[c]) * (x[c] - mean[c]);
}
// y = (x - mean) * factor + offset
CAIRN_VECTOR void NormalizeLine(const float* __restrict x, const double* __restrict mean,
                                const double* __restrict factor, const float* __restrict offset, int64_t count,
                                float* __restrict y) {
  if (offset == nullptr) {
    for (int64_t c = 0; c < count; ++c) y[c] = static_cast<float>((x[c] - mean[c]) * factor[c]);
  } else {
    for (int64_t c = 0; c < count; ++c) y[c] = static_cast<float>((x[c] - mean[c]) * factor[c] + offset[c]);
  }
}
CAIRN_VECTOR void AddProducts(const float* __restrict x, const double* __restrict mean, const float* __restrict dy,
                              int64_t count, double* __restrict sums, double* __restrict products) {
  for (int64_t c = 0; c < count; ++c) {
    sums[c] += dy[c];
    products[c] += dy[c] * (x[c] - mean[c]);
  }
}

struct Statistics {
  double mean, factor;
};
Statistics StatisticsOf(const GroupShape& s, const float* statistics, int64_t example, int64_t group) {
  const float* pair = statistics + (example * s.groups + group) * 2;
  return {pair[0], pair[1]};
}

template <typename Fn>
void ForEachExample(const GroupShape& s, Fn fn) {
#pragma omp parallel for schedule(static) if (s.examples * s.positions * s.channels >= kParallelNumbersMin)
  for (int64_t e = 0; e < s.examples; ++e) fn(e);
}

// The sum over each group's channels of `line`, times `factor`, into every channel of the group.
void SpreadSums(const GroupShape& s, double factor, double* line) {
  const int64_t width = s.channels / s.groups;
  for (int64_t g = 0; g < s.groups; ++g) {
    double sum = 0;
    for (int64_t c = g * width; c < (g + 1) * width; ++c) sum += line[c];
    std::fill(line + g * width, line + (g + 1) * width, sum * factor);
  }
}

}  // namespace

int64_t GroupScratchBytes(const GroupShape& s) {
  return s.examples * 3 * s.channels * static_cast<int64_t>(sizeof(double));
}

void GroupForward(const GroupShape& s, const float* x, const GroupWeights& weights, double* scratch, float* statistics,
                  float* y) {
  const float *const gamma = weights.gamma, *const beta = weights.beta;
  const int64_t width = s.channels / s.groups, size = s.positions * s.channels;
  const double share = 1.0 / static_cast<double>(s.positions * width);
  ForEachExample(s, [&](int64_t e) {
    const Lines lines = LinesOf(s, scratch, e);
    double *mean = lines.a, *factor = lines.b;
    std::fill(mean, mean + s.channels, 0.0);
    for (int64_t p = 0; p < s.positions; ++p) AddLine(x + e * size + p * s.channels, s.channels, mean);
    SpreadSums(s, share, mean);
    std::fill(factor, factor + s.channels, 0.0);
    for (int64_t p = 0; p < s.positions; ++p) AddSquares(x + e * size + p * s.channels, mean, s.channels, factor);
    SpreadSums(s, share, factor);
    for (int64_t c = 0; c < s.channels; ++c) {
      float* pair = statistics + (e * s.groups + c / width) * 2;
      if (c % width == 0) {
        pair[0] = static_cast<float>(mean[c]);
        pair[1] = static_cast<float>(1 / std::sqrt(factor[c] + s.epsilon));
      }
      mean[c] = pair[0];  // as backward will see it
      factor[c] = gamma == nullptr ? double{pair[1]} : double{pair[1]} * gamma[c];
    }
    for (int64_t p = 0; p < s.positions; ++p) {
      const int64_t line = e * size + p * s.channels;
      NormalizeLine(x + line, mean, factor, beta, s.channels, y + line);
    }
  });
}

void GroupBackwardSums(const GroupShape& s, const GroupInput& in, const float* dy, double* scratch, float* dgamma,
                       float* dbeta) {
  const float *const x = in.x, *const statistics = in.statistics;
  const int64_t width = s.channels / s.groups, size = s.positions * s.channels;
  ForEachExample(s, [&](int64_t e) {
    const Lines lines = LinesOf(s, scratch, e);
    double* mean = lines.c;
    std::fill(lines.a, lines.a + 2 * s.channels, 0.0);
    for (int64_t c = 0; c < s.channels; ++c) mean[c] = StatisticsOf(s, statistics, e, c / width).mean;
    for (int64_t p = 0; p < s.positions; ++p) {
      const int64_t line = e * size + p * s.channels;
      AddProducts(x + line, mean, dy + line, s.channels, lines.a, lines.b);
    }
    for (int64_t c = 0; c < s.channels; ++c) lines.b[c] *= StatisticsOf(s, statistics, e, c / width).factor;
  });
  for (int64_t c = 0; c < s.channels; ++c) {
    double sum = 0, product = 0;
    for (int64_t e = 0; e < s.examples; ++e) {
      const Lines lines = LinesOf(s, scratch, e);
      sum += lines.a[c];
      product += lines.b[c];
    }
    if (dbeta != nullptr) dbeta[c] = static_cast<float>(sum);
    if (dgamma != nullptr) dgamma[c] = static_cast<float>(product);
  }
}

namespace {

// What some channels of a group are computed with: dx = dy * a + (x - mean) * b + offset
struct BackwardFactors {
  static constexpr int64_t kChannels = 256;
  float a[kChannels], mean[kChannels], b[kChannels], offset[kChannels];
};
CAIRN_VECTOR void BackwardLine(const float* __restrict x, const float* __restrict dy,
                               const BackwardFactors& __restrict f, int64_t count, float* __restrict dx) {
  for (int64_t c = 0; c < count; ++c) dx[c] = dy[c] * f.a[c] + (x[c] - f.mean[c]) * f.b[c] + f.offset[c];
}

}  // namespace

void GroupBackward(const GroupShape& s, const GroupInput& in, const float* gamma, const float* dy,
                   const double* scratch, float* dx) {
  const float *const x = in.x, *const statistics = in.statistics;
  const int64_t width = s.channels / s.groups, size = s.positions * s.channels;
  const double share = 1.0 / static_cast<double>(s.positions * width);
  ForEachExample(s, [&](int64_t e) {
    const Lines lines = LinesOf(s, const_cast<double*>(scratch), e);
    for (int64_t g = 0; g < s.groups; ++g) {
      const auto [mean, factor] = StatisticsOf(s, statistics, e, g);
      const int64_t begin = g * width;
      double sum = 0, product = 0;  // of dy * gamma, and of that times normalized x
      for (int64_t c = begin; c < begin + width; ++c) {
        const double scale = gamma == nullptr ? 1.0 : double{gamma[c]};
        sum += scale * lines.a[c];
        product += scale * lines.b[c];
      }
      constexpr int64_t kChunk = BackwardFactors::kChannels;
      BackwardFactors f;
      for (int64_t first = 0; first < width; first += kChunk) {
        const int64_t count = std::min(kChunk, width - first);
        for (int64_t c = 0; c < count; ++c) {
          f.a[c] = static_cast<float>(factor * (gamma == nullptr ? 1.0 : double{gamma[begin + first + c]}));
          f.mean[c] = static_cast<float>(mean);
          f.b[c] = static_cast<float>(-factor * factor * product * share);
          f.offset[c] = static_cast<float>(-factor * sum * share);
        }
        for (int64_t p = 0; p < s.positions; ++p) {
          const int64_t at = e * size + p * s.channels + begin + first;
          BackwardLine(x + at, dy + at, f, count, dx + at);
        }
      }
    }
  });
}

}  // namespace cairn::onednn
