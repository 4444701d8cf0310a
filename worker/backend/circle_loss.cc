#include "worker/backend/circle_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cairn {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

// The pairs of one example.
class Pairs {
 public:
  Pairs(const CircleSettings& settings, int64_t examples) : s_(settings), scores_(examples), slopes_(examples) {}

  // distances: from example i to each. Returns its loss.
  double Compute(int64_t i, absl::Span<const double> distances, absl::Span<const float> classes) {
    double most[2] = {kNone, kNone}, sum[2] = {0, 0};
    for (size_t j = 0; j < scores_.size(); ++j) {
      const Sloped score = CircleScore(s_, classes[j] == classes[static_cast<size_t>(i)], distances[j]);
      scores_[j] = score.value;
      slopes_[j] = score.slope;
      const int side = SideOf(i, j, classes);
      if (side >= 0) most[side] = LargerOrNan(most[side], scores_[j]);
    }
    for (size_t j = 0; j < scores_.size(); ++j) {
      const int side = SideOf(i, j, classes);
      if (side >= 0) sum[side] += std::exp(scores_[j] - most[side]);
    }
    if (most[0] == kNone || most[1] == kNone) return loss_slope_ = 0;
    for (int side = 0; side < 2; ++side) logs_[side] = most[side] + std::log(sum[side]);
    const Sloped loss = CircleOf(logs_[0] + logs_[1]);
    loss_slope_ = loss.slope;
    return loss.value;
  }

  // The derivative of the loss with respect to the distance of j.
  double Slope(int64_t i, size_t j, absl::Span<const float> classes) const {
    const int side = SideOf(i, j, classes);
    return side < 0 || loss_slope_ == 0 ? 0 : loss_slope_ * std::exp(scores_[j] - logs_[side]) * slopes_[j];
  }

 private:
  // 0: of the same class; 1: of another one; -1: no pair.
  int SideOf(int64_t i, size_t j, absl::Span<const float> classes) const {
    if (classes[j] != classes[static_cast<size_t>(i)]) return 1;
    return s_.remove_diagonal && j == static_cast<size_t>(i) ? -1 : 0;
  }

  const CircleSettings& s_;
  std::vector<double> scores_, slopes_;
  double logs_[2] = {0, 0};
  double loss_slope_ = 0;
};

}  // namespace

template <typename Real>
double CircleLoss(const CircleSettings& settings, int64_t examples, absl::Span<const Real> x,
                  absl::Span<const float> classes, absl::Span<const float> weights, absl::Span<Real> gradient) {
  const auto n = static_cast<size_t>(examples), size = x.size() / n;
  const auto row = [&](size_t i) { return x.subspan(i * size, size); };
  std::vector<double> distances(n * n), raw(n * n), slopes(n * n, 0.0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      double dot = 0;
      for (size_t k = 0; k < size; ++k) dot += static_cast<double>(row(i)[k]) * static_cast<double>(row(j)[k]);
      raw[i * n + j] = 1 - dot;
      distances[i * n + j] = std::max(1 - dot, 0.0);
    }
  }
  Pairs pairs(settings, examples);
  double sum = 0;
  size_t counted = 0;
  for (size_t i = 0; i < n; ++i) {
    const double weight = weights.empty() ? 1 : weights[i];
    const double loss = pairs.Compute(static_cast<int64_t>(i), absl::MakeSpan(distances).subspan(i * n, n), classes);
    if (!(static_cast<float>(loss) != 0)) continue;
    ++counted;
    sum += weight * loss;
    for (size_t j = 0; j < n; ++j) {
      if (raw[i * n + j] > 0) slopes[i * n + j] = weight * pairs.Slope(static_cast<int64_t>(i), j, classes);
    }
  }
  const double scale = static_cast<double>(n) / static_cast<double>(std::max<size_t>(counted, 1));
  if (!gradient.empty()) {
    std::vector<double> of_row(size);
    for (size_t i = 0; i < n; ++i) {
      std::fill(of_row.begin(), of_row.end(), 0.0);
      for (size_t j = 0; j < n; ++j) {
        const double slope = -(slopes[i * n + j] + slopes[j * n + i]);
        for (size_t k = 0; k < size; ++k) of_row[k] += slope * static_cast<double>(row(j)[k]);
      }
      for (size_t k = 0; k < size; ++k) gradient[i * size + k] = static_cast<Real>(scale * of_row[k]);
    }
  }
  return scale * sum;
}

template double CircleLoss<float>(const CircleSettings&, int64_t, absl::Span<const float>, absl::Span<const float>,
                                  absl::Span<const float>, absl::Span<float>);
template double CircleLoss<double>(const CircleSettings&, int64_t, absl::Span<const double>, absl::Span<const float>,
                                   absl::Span<const float>, absl::Span<double>);

}  // namespace cairn
