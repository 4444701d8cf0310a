#include "common/model/penalty.h"

#include <algorithm>
#include <cmath>

#include "common/base/decimal.h"
#include "common/tensor/vectorize.h"

namespace cairn {
namespace {

constexpr int64_t kLanes = 8;

struct Sums {
  double absolute = 0, squares = 0;
};

// Lane j adds up the numbers j, j + kLanes, ...; the lanes are added in order.
CAIRN_VECTORIZED Sums Add(const float* __restrict w, int64_t n) {
  double absolute[kLanes] = {}, squares[kLanes] = {};
  const int64_t whole = n - n % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const double x = w[i + j];
      absolute[j] += std::fabs(x);
      squares[j] += x * x;
    }
  }
  for (int64_t i = whole; i < n; ++i) {
    const double x = w[i];
    absolute[i - whole] += std::fabs(x);
    squares[i - whole] += x * x;
  }
  Sums sums;
  for (int64_t j = 0; j < kLanes; ++j) {
    sums.absolute += absolute[j];
    sums.squares += squares[j];
  }
  return sums;
}

CAIRN_VECTORIZED void AddGradient(const float* __restrict w, float* __restrict g, int64_t n, float examples, float l1,
                                  float twice_l2) {
  for (int64_t i = 0; i < n; ++i) {
    const float sign = static_cast<float>(w[i] > 0) - static_cast<float>(w[i] < 0);
    g[i] += examples * (l1 * sign + twice_l2 * w[i]);
  }
}

}  // namespace

std::vector<PenaltyRange> PenaltyRangesOf(const Graph& graph, int64_t begin, int64_t end) {
  std::vector<PenaltyRange> ranges;
  for (const Variable& v : graph.variables()) {
    const int64_t from = std::max(v.offset, begin), to = std::min(v.offset + v.size, end);
    if (v.kind != VariableKind::kTrainable || (v.l1 == 0 && v.l2 == 0) || from >= to) continue;
    ranges.push_back({from - begin, to - begin, Decimal(v.l1), Decimal(v.l2)});
  }
  return ranges;
}

double PenaltyOf(const PenaltyRange& range, absl::Span<const float> values) {
  const Sums sums = Add(values.data() + range.begin, range.end - range.begin);
  return (range.l1 == 0 ? 0 : range.l1 * sums.absolute) + (range.l2 == 0 ? 0 : range.l2 * sums.squares);
}

void AddPenaltyGradient(absl::Span<const PenaltyRange> ranges, uint64_t examples, absl::Span<const float> values,
                        absl::Span<float> gradient) {
  for (const PenaltyRange& r : ranges) {
    AddGradient(values.data() + r.begin, gradient.data() + r.begin, r.end - r.begin, static_cast<float>(examples),
                static_cast<float>(r.l1), static_cast<float>(2 * r.l2));
  }
}

}  // namespace cairn
