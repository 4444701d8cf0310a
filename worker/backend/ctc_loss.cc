#include "worker/backend/ctc_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "worker/backend/batch_formulas.h"

namespace cairn {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();  // the logarithm of 0

}  // namespace

absl::StatusOr<int64_t> CheckCtcLabels(int64_t example, int64_t steps, int64_t classes,
                                       absl::Span<const float> labels) {
  const auto count = std::find(labels.begin(), labels.end(), 0.0f) - labels.begin();
  for (int64_t i = 0; i < static_cast<int64_t>(labels.size()); ++i) {
    const float label = labels[static_cast<size_t>(i)];
    if (!(label >= 0 && label < static_cast<float>(classes) && label == std::floor(label))) {
      return absl::InvalidArgumentError(absl::StrCat("label ", label, " of example ", example,
                                                     " of the batch is not one of the model's classes 1 .. ",
                                                     classes - 1, ", nor 0 behind the last one; correct the data"));
    }
    if (i > count && label != 0) {
      return absl::InvalidArgumentError(absl::StrCat("the labels of example ", example, " of the batch have a ", label,
                                                     " behind a 0, which fills them up at the end; correct the data"));
    }
  }
  int64_t needed = count;
  for (int64_t i = 1; i < count; ++i) needed += labels[static_cast<size_t>(i)] == labels[static_cast<size_t>(i - 1)];
  if (needed <= steps) return count;
  return absl::InvalidArgumentError(
      absl::StrCat("the ", count, " labels of example ", example, " of the batch need ", needed,
                   " steps, one for each and one between equal ones, but the model gives ", steps,
                   "; leave the example out, or shrink the steps less"));
}

template <typename Real>
double CtcLoss<Real>::Compute(absl::Span<const Real> x, absl::Span<const float> labels, int64_t count,
                              absl::Span<Real> gradient) {
  const int64_t places = 2 * count + 1;
  Normalize(x);
  Forward(labels, places);
  const double* const last = alpha_.data() + (steps_ - 1) * places;
  const double log_probability = places == 1 ? last[0] : AddLogs(last[places - 1], last[places - 2]);
  if (!gradient.empty()) Backward(labels, places, log_probability, gradient);
  return -log_probability;
}

template <typename Real>
void CtcLoss<Real>::Normalize(absl::Span<const Real> x) {
  log_p_.resize(static_cast<size_t>(steps_ * classes_));
  for (int64_t t = 0; t < steps_; ++t) {
    const Real* const from = x.data() + t * classes_;
    const double most = *std::max_element(from, from + classes_);
    double sum = 0;
    for (int64_t k = 0; k < classes_; ++k) sum += std::exp(static_cast<double>(from[k]) - most);
    const double log_sum = most + std::log(sum);
    for (int64_t k = 0; k < classes_; ++k) log_p_[static_cast<size_t>(t * classes_ + k)] = from[k] - log_sum;
  }
}

template <typename Real>
void CtcLoss<Real>::Forward(absl::Span<const float> labels, int64_t places) {
  alpha_.assign(static_cast<size_t>(steps_ * places), kNever);
  alpha_[0] = log_p_[0];
  if (places > 1) alpha_[1] = log_p_[static_cast<size_t>(ClassAt(labels, 1))];
  for (int64_t t = 1; t < steps_; ++t) {
    const double* const before = alpha_.data() + (t - 1) * places;
    const double* const log_p = log_p_.data() + t * classes_;
    for (int64_t s = 0; s < places; ++s) {
      double ways = before[s];
      if (s > 0) ways = AddLogs(ways, before[s - 1]);
      if (Skips(labels, s)) ways = AddLogs(ways, before[s - 2]);
      alpha_[static_cast<size_t>(t * places + s)] = ways + log_p[ClassAt(labels, s)];
    }
  }
}

// The derivative with respect to a logit is its softmax less the share of the alignments that take its class there.
template <typename Real>
void CtcLoss<Real>::Backward(absl::Span<const float> labels, int64_t places, double log_probability,
                             absl::Span<Real> gradient) {
  beta_.assign(static_cast<size_t>(places), kNever);
  beta_[static_cast<size_t>(places - 1)] = 0;
  if (places > 1) beta_[static_cast<size_t>(places - 2)] = 0;
  std::vector<double> shares(static_cast<size_t>(classes_));
  for (int64_t t = steps_ - 1; t >= 0; --t) {
    const double* const log_p = log_p_.data() + t * classes_;
    std::fill(shares.begin(), shares.end(), 0.0);
    for (int64_t s = 0; s < places; ++s) {
      const double way = alpha_[static_cast<size_t>(t * places + s)] + beta_[static_cast<size_t>(s)];
      if (way != kNever) shares[static_cast<size_t>(ClassAt(labels, s))] += std::exp(way - log_probability);
    }
    Real* const out = gradient.data() + t * classes_;
    for (int64_t k = 0; k < classes_; ++k) {
      out[k] = static_cast<Real>(std::exp(log_p[k]) - shares[static_cast<size_t>(k)]);
    }
    earlier_.assign(static_cast<size_t>(places), kNever);
    for (int64_t s = 0; s < places; ++s) {
      const auto from = [&](int64_t next) { return beta_[static_cast<size_t>(next)] + log_p[ClassAt(labels, next)]; };
      double ways = from(s);
      if (s + 1 < places) ways = AddLogs(ways, from(s + 1));
      if (s + 2 < places && Skips(labels, s + 2)) ways = AddLogs(ways, from(s + 2));
      earlier_[static_cast<size_t>(s)] = ways;
    }
    beta_.swap(earlier_);
  }
}

template class CtcLoss<float>;
template class CtcLoss<double>;

}  // namespace cairn
