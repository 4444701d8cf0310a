#include "worker/backend/row_metrics.h"

#include <algorithm>
#include <cmath>

#include "common/model/metric_sums.h"
#include "worker/backend/class_loss.h"

namespace cairn {

template <typename Real>
RowMetrics<Real>::RowMetrics(const v1::Loss& loss, const LossPlan& plan, absl::Span<const v1::Metric> metrics,
                             int64_t size, std::vector<double>* sums)
    : loss_(loss),
      plan_(plan),
      logits_(plan.fused || loss.from_logits()),
      share_(1.0 / static_cast<double>(plan.metric_rows)),
      p_(static_cast<size_t>(size)),
      scratch_(static_cast<size_t>(size)),
      smoothed_(static_cast<size_t>(size)) {
  sums->assign(static_cast<size_t>(MetricSumCount(metrics)), 0.0);
  double* next = sums->data();
  for (const v1::Metric& metric : metrics) {
    const int64_t count = MetricSumCount(metric);
    places_.push_back({&metric, next, count});
    next += count;
    needs_outputs_ |= metric.kind() != v1::Metric::ACCURACY && metric.kind() != v1::Metric::TOP_K_ACCURACY;
  }
}

template <typename Real>
void RowMetrics<Real>::Add(absl::Span<const Real> x, absl::Span<const Real> t, bool known) {
  if (needs_outputs_) MakeOutputs(x);
  for (const Place& place : places_) AddOne(place, x, t, known);
}

template <typename Real>
void RowMetrics<Real>::MakeOutputs(absl::Span<const Real> x) {
  if (plan_.fused && plan_.softmax) {
    row::Softmax<Real>(x, absl::MakeSpan(p_));
  } else {
    std::transform(x.begin(), x.end(), p_.begin(), [&](Real v) { return plan_.fused ? row::Sigmoid(v) : v; });
  }
}

namespace {

// keras.metrics.pearson_correlation and concordance_correlation of one row.
template <typename Real>
double CorrelationOf(v1::Metric::Kind kind, absl::Span<const Real> p, absl::Span<const Real> t) {
  constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()
  const auto n = static_cast<double>(t.size());
  double p_mean = 0, t_mean = 0, p_variance = 0, t_variance = 0, both = 0;
  for (size_t i = 0; i < t.size(); ++i) {
    p_mean += p[i] / n;
    t_mean += t[i] / n;
  }
  for (size_t i = 0; i < t.size(); ++i) {
    p_variance += (p[i] - p_mean) * (p[i] - p_mean) / n;
    t_variance += (t[i] - t_mean) * (t[i] - t_mean) / n;
    both += (p[i] - p_mean) * (t[i] - t_mean) / n;
  }
  if (kind == v1::Metric::PEARSON_CORRELATION) return both / std::sqrt(p_variance * t_variance);
  return 2 * both / (p_variance + t_variance + (t_mean - p_mean) * (t_mean - p_mean) + kEpsilon);
}

// Whether the metric leaves a row of this target out.
template <typename Real>
bool Ignores(const v1::Metric& metric, absl::Span<const Real> t, bool known) {
  if (!metric.has_ignore_class() || metric.kind() == v1::Metric::BINARY_IOU) return false;
  return !known || row::ArgMax<Real>(t) == metric.ignore_class();
}

}  // namespace

template <typename Real>
void RowMetrics<Real>::AddOne(const Place& place, absl::Span<const Real> x, absl::Span<const Real> t, bool known) {
  if (Ignores<Real>(*place.metric, t, known)) return;
  switch (FamilyOf(place.metric->kind())) {
    case MetricFamily::kMean: {
      const double value = Mean(*place.metric, x, t, known);
      if (place.metric->average() == v1::Metric::MICRO) {
        place.sums[0] += value;
        place.sums[1] += 1;
        return;
      }
      place.sums[0] += plan_.metric_rows == 1 ? value : value * share_;
      return;
    }
    case MetricFamily::kCount:
    case MetricFamily::kPositives: return AddConfusion(*place.metric, t, place.sums);
    case MetricFamily::kThresholds: return AddThresholds(*place.metric, t, place.sums, place.count / 2);
    case MetricFamily::kScores: return AddScores(*place.metric, t, place.sums);
    case MetricFamily::kIntersections: return AddIntersections(*place.metric, x, t, place.sums, known);
    case MetricFamily::kR2: return AddR2(t, place.sums);
  }
}

// ---- means ----

template <typename Real>
double RowMetrics<Real>::Mean(const v1::Metric& metric, absl::Span<const Real> x, absl::Span<const Real> t,
                              bool known) {
  const auto error = [&](auto norm) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += norm(p_[i] - t[i]);
    return sum / static_cast<double>(x.size());
  };
  switch (metric.kind()) {
    case v1::Metric::ACCURACY: return Accuracy(x, t, known);
    case v1::Metric::CATEGORICAL_ACCURACY:
    case v1::Metric::SPARSE_CATEGORICAL_ACCURACY: return known && row::ArgMax(x) == row::ArgMax<Real>(t) ? 1 : 0;
    case v1::Metric::BINARY_ACCURACY: {
      const Real threshold = metric.has_threshold() ? metric.threshold() : Real(0.5);
      double right = 0;
      for (size_t i = 0; i < t.size(); ++i) right += (p_[i] > threshold ? Real(1) : Real(0)) == t[i] ? 1 : 0;
      return right / static_cast<double>(t.size());
    }
    case v1::Metric::EXACT_ACCURACY: {
      double right = 0;
      for (size_t i = 0; i < t.size(); ++i) right += p_[i] == t[i] ? 1 : 0;
      return right / static_cast<double>(t.size());
    }
    case v1::Metric::PEARSON_CORRELATION:
    case v1::Metric::CONCORDANCE_CORRELATION: return CorrelationOf<Real>(metric.kind(), p_, t);
    case v1::Metric::TOP_K_ACCURACY: {
      if (!known) return 0;
      const Real own = x[row::ArgMax<Real>(t)];
      const int64_t before = std::count_if(x.begin(), x.end(), [&](Real v) { return !(v <= own); });
      return before < (metric.k() == 0 ? 5 : metric.k()) ? 1 : 0;
    }
    case v1::Metric::MEAN_ABSOLUTE_ERROR: return error([](double e) { return std::abs(e); });
    case v1::Metric::MEAN_SQUARED_ERROR:
    case v1::Metric::ROOT_MEAN_SQUARED_ERROR: return error([](double e) { return e * e; });
    case v1::Metric::MEAN_ABSOLUTE_PERCENTAGE_ERROR: return OfLoss(v1::Loss::MEAN_ABSOLUTE_PERCENTAGE_ERROR, metric, t);
    case v1::Metric::MEAN_SQUARED_LOGARITHMIC_ERROR: return OfLoss(v1::Loss::MEAN_SQUARED_LOGARITHMIC_ERROR, metric, t);
    case v1::Metric::COSINE_SIMILARITY: return -OfLoss(v1::Loss::COSINE_SIMILARITY, metric, t);
    case v1::Metric::LOG_COSH_ERROR: return OfLoss(v1::Loss::LOG_COSH, metric, t);
    case v1::Metric::POISSON: return OfLoss(v1::Loss::POISSON, metric, t);
    case v1::Metric::KL_DIVERGENCE: return OfLoss(v1::Loss::KL_DIVERGENCE, metric, t);
    case v1::Metric::HINGE: return OfLoss(v1::Loss::HINGE, metric, t);
    case v1::Metric::SQUARED_HINGE: return OfLoss(v1::Loss::SQUARED_HINGE, metric, t);
    case v1::Metric::CATEGORICAL_HINGE: return OfLoss(v1::Loss::CATEGORICAL_HINGE, metric, t);
    case v1::Metric::BINARY_CROSSENTROPY: return OfLoss(v1::Loss::BINARY_CROSSENTROPY, metric, t);
    case v1::Metric::CATEGORICAL_CROSSENTROPY: return OfLoss(v1::Loss::CATEGORICAL_CROSSENTROPY, metric, t);
    case v1::Metric::SPARSE_CATEGORICAL_CROSSENTROPY:
      return known ? OfLoss(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY, metric, t) : 0;
    default: return 0;
  }
}

template <typename Real>
double RowMetrics<Real>::Accuracy(absl::Span<const Real> x, absl::Span<const Real> t, bool known) const {
  const v1::Loss::Kind kind = loss_.kind();
  const bool entropy = kind == v1::Loss::BINARY_CROSSENTROPY || kind == v1::Loss::BINARY_FOCAL_CROSSENTROPY;
  const bool binary = entropy || x.size() == 1;
  if (!binary) return known && row::ArgMax(x) == row::ArgMax<Real>(t) ? 1 : 0;
  // The logit of probability 0.5 is 0.
  const Real threshold = entropy && logits_ ? Real(0) : Real(0.5);
  double right = 0;
  for (size_t i = 0; i < x.size(); ++i) right += (x[i] > threshold) == (t[i] > Real(0.5)) ? 1 : 0;
  return right / static_cast<double>(x.size());
}

// A loss, computed on the model's output.
template <typename Real>
double RowMetrics<Real>::OfLoss(v1::Loss::Kind kind, const v1::Metric& metric, absl::Span<const Real> t) {
  const absl::Span<const Real> p(p_), target(smoothed_);
  const Real smoothing = metric.label_smoothing();
  const Real share = kind == v1::Loss::BINARY_CROSSENTROPY ? smoothing / 2 : smoothing / static_cast<Real>(t.size());
  std::transform(t.begin(), t.end(), smoothed_.begin(), [&](Real v) { return v * (1 - smoothing) + share; });
  switch (kind) {
    case v1::Loss::BINARY_CROSSENTROPY:
      return metric.from_logits() ? row::BinaryFromLogits<Real>(p, target, {})
                                  : row::BinaryFromProbabilities<Real>(p, target, {});
    case v1::Loss::CATEGORICAL_CROSSENTROPY:
      return metric.from_logits() ? row::CategoricalFromLogits<Real>(p, target, absl::MakeSpan(scratch_), {})
                                  : row::CategoricalFromProbabilities<Real>(p, target, {});
    case v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY:
      return metric.from_logits() ? row::CategoricalFromLogits<Real>(p, target, absl::MakeSpan(scratch_), {})
                                  : row::SparseFromProbabilities<Real>(p, target, {});
    default: break;
  }
  RowLossSettings settings;
  settings.kind = kind;
  const auto of = [&](int64_t i) { return t[static_cast<size_t>(i)]; };
  const auto none = [](int64_t, Real) {};
  return RowLoss<Real, false, decltype(of), decltype(none)>(settings, p_.data(), static_cast<int64_t>(t.size()), of,
                                                            none)
      .Compute();
}

// ---- counts ----

template <typename Real>
void RowMetrics<Real>::AddConfusion(const v1::Metric& metric, absl::Span<const Real> t, double* sums) const {
  // As in Keras: with top_k (k) and without a threshold, all of the first k count.
  const bool any = metric.has_k() && !metric.has_threshold();
  const Real threshold = metric.has_threshold() ? metric.threshold() : Real(0.5);
  for (size_t i = 0; i < t.size(); ++i) {
    if (metric.has_class_id() && static_cast<size_t>(metric.class_id()) != i) continue;
    bool positive = any || p_[i] > threshold;
    if (metric.has_k() && positive) {
      int64_t before = 0;  // ties go to the lower index, as in tf.math.top_k
      for (size_t j = 0; j < t.size(); ++j) before += p_[j] > p_[i] || (p_[j] == p_[i] && j < i) ? 1 : 0;
      positive = before < metric.k();
    }
    const bool truth = t[i] != 0;
    switch (metric.kind()) {
      case v1::Metric::TRUE_POSITIVES: sums[0] += positive && truth ? 1 : 0; break;
      case v1::Metric::TRUE_NEGATIVES: sums[0] += !positive && !truth ? 1 : 0; break;
      case v1::Metric::FALSE_POSITIVES: sums[0] += positive && !truth ? 1 : 0; break;
      case v1::Metric::FALSE_NEGATIVES: sums[0] += !positive && truth ? 1 : 0; break;
      case v1::Metric::PRECISION:
        if (positive) sums[truth ? 0 : 1] += 1;
        break;
      default:  // RECALL
        if (truth) sums[positive ? 0 : 1] += 1;
        break;
    }
  }
}

// Bucket b has the numbers above threshold b and not above threshold b + 1; threshold b is b / (buckets - 1).
template <typename Real>
void RowMetrics<Real>::AddThresholds(const v1::Metric& metric, absl::Span<const Real> t, double* sums,
                                     int64_t buckets) const {
  const auto steps = static_cast<double>(buckets - 1);
  for (size_t i = 0; i < t.size(); ++i) {
    const double p = metric.from_logits() ? row::Sigmoid(p_[i]) : p_[i];
    const double at = std::ceil(p * steps) - 1;
    const int64_t bucket = at > 0 ? std::min(static_cast<int64_t>(std::min(at, steps)), buckets - 2) : 0;
    sums[t[i] != 0 ? bucket : buckets + bucket] += 1;
  }
}

template <typename Real>
void RowMetrics<Real>::AddScores(const v1::Metric& metric, absl::Span<const Real> t, double* sums) const {
  const size_t n = t.size();
  const Real most = *std::max_element(p_.begin(), p_.end());
  for (size_t i = 0; i < n; ++i) {
    const bool positive =
        metric.has_threshold() ? p_[i] > Real(metric.threshold()) : p_[i] >= most && std::abs(p_[i]) > Real(1e-9);
    const bool truth = t[i] != 0;
    if (truth) {
      sums[positive ? i : 2 * n + i] += 1;
    } else if (positive) {
      sums[n + i] += 1;
    }
  }
}

template <typename Real>
void RowMetrics<Real>::AddIntersections(const v1::Metric& metric, absl::Span<const Real> x, absl::Span<const Real> t,
                                        double* sums, bool known) const {
  const auto add = [&](int64_t classes, int64_t truth, int64_t predicted) {
    if (truth == predicted) sums[truth] += 1;
    sums[classes + truth] += 1;
    sums[2 * classes + predicted] += 1;
  };
  if (metric.kind() != v1::Metric::BINARY_IOU) {
    if (known) add(static_cast<int64_t>(t.size()), row::ArgMax<Real>(t), row::ArgMax(x));
    return;
  }
  const Real threshold = metric.has_threshold() ? metric.threshold() : Real(0.5);
  for (size_t i = 0; i < t.size(); ++i) {
    const int64_t truth = t[i] > Real(0.5) ? 1 : 0;
    if (metric.has_ignore_class() && metric.ignore_class() == truth) continue;
    add(2, truth, p_[i] >= threshold ? 1 : 0);
  }
}

template <typename Real>
void RowMetrics<Real>::AddR2(absl::Span<const Real> t, double* sums) const {
  const size_t n = t.size();
  for (size_t i = 0; i < n; ++i) {
    const double target = t[i], error = target - p_[i];
    sums[i] += target;
    sums[n + i] += target * target;
    sums[2 * n + i] += error * error;
  }
  sums[3 * n] += 1;
}

template class RowMetrics<float>;
template class RowMetrics<double>;

}  // namespace cairn
