#include "worker/backend/loss.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/model/data_check.h"

namespace cairn {
namespace {

// keras.config.epsilon(): probabilities are clipped to [epsilon, 1 - epsilon] before a logarithm.
constexpr double kEpsilon = 1e-7;

template <typename Real>
int64_t ArgMax(absl::Span<const Real> x) {
  return std::max_element(x.begin(), x.end()) - x.begin();
}

template <typename Real>
Real Clip(Real p) {
  return std::clamp(p, Real(kEpsilon), Real(1 - kEpsilon));
}
template <typename Real>
bool Clipped(Real p) {
  return p < Real(kEpsilon) || p > Real(1 - kEpsilon);
}

// Into p: softmax(x). Returns log(sum(exp(x))).
template <typename Real>
Real Softmax(absl::Span<const Real> x, absl::Span<Real> p) {
  const Real max = *std::max_element(x.begin(), x.end());
  Real sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += p[i] = std::exp(x[i] - max);
  for (Real& v : p) v /= sum;
  return max + std::log(sum);
}

template <typename Real>
Real Sigmoid(Real x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

// The losses of one example. x: the outputs, t: the target, g: the gradient with regard to x, empty where it is not
// wanted.
// ---- cross-entropy over classes ----

// keras.ops.categorical_crossentropy(from_logits=True): sum_j t_j (log sum exp x - x_j).
template <typename Real>
double CategoricalFromLogits(absl::Span<const Real> x, absl::Span<const Real> t, absl::Span<Real> scratch,
                             absl::Span<Real> g) {
  const Real log_sum = Softmax(x, scratch);
  Real total = 0;  // of t: 1 for a distribution
  double loss = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    total += t[i];
    if (t[i] != 0) loss += t[i] * (log_sum - x[i]);
  }
  for (size_t i = 0; i < g.size(); ++i) g[i] = total * scratch[i] - t[i];
  return loss;
}

// keras.ops.categorical_crossentropy: the outputs are divided by their sum, then clipped.
template <typename Real>
double CategoricalFromProbabilities(absl::Span<const Real> x, absl::Span<const Real> t, absl::Span<Real> g) {
  Real sum = 0;
  for (Real v : x) sum += v;
  double loss = 0;
  Real weighted = 0;  // sum_j n_j dL/dn_j, n = x / sum
  for (size_t i = 0; i < x.size(); ++i) {
    const Real n = x[i] / sum;
    if (t[i] != 0) loss -= t[i] * std::log(Clip(n));
    if (!Clipped(n)) weighted -= t[i];
  }
  for (size_t i = 0; i < g.size(); ++i) {
    const Real n = x[i] / sum;
    g[i] = ((Clipped(n) ? Real(0) : -t[i] / n) - weighted) / sum;
  }
  return loss;
}

// keras.ops.sparse_categorical_crossentropy: the outputs are clipped, and their logarithms taken as logits.
template <typename Real>
double SparseFromProbabilities(absl::Span<const Real> x, absl::Span<const Real> t, absl::Span<Real> g) {
  Real sum = 0;
  for (Real v : x) sum += Clip(v);
  const int64_t label = ArgMax(t);
  for (size_t i = 0; i < g.size(); ++i) g[i] = Clipped(x[i]) ? Real(0) : 1 / sum;
  if (!g.empty() && !Clipped(x[label])) g[label] -= 1 / x[label];
  return std::log(sum) - std::log(Clip(x[label]));
}

// ---- element by element, the mean over the outputs ----

// keras.ops.binary_crossentropy(from_logits=True): max(x, 0) - x t + log(1 + exp(-|x|)).
template <typename Real>
double BinaryFromLogits(absl::Span<const Real> x, absl::Span<const Real> t, absl::Span<Real> g) {
  const Real n = static_cast<Real>(x.size());
  double loss = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    loss += std::max(x[i], Real(0)) - x[i] * t[i] + std::log1p(std::exp(-std::abs(x[i])));
    if (!g.empty()) g[i] = (Sigmoid(x[i]) - t[i]) / n;
  }
  return loss / n;
}

template <typename Real>
double BinaryFromProbabilities(absl::Span<const Real> x, absl::Span<const Real> t, absl::Span<Real> g) {
  const Real n = static_cast<Real>(x.size());
  double loss = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const Real p = Clip(x[i]);
    loss -= t[i] * std::log(p) + (1 - t[i]) * std::log(1 - p);
    if (!g.empty()) g[i] = Clipped(x[i]) ? Real(0) : (p - t[i]) / (p * (1 - p)) / n;
  }
  return loss / n;
}

template <typename Real>
double MeanSquared(absl::Span<const Real> x, absl::Span<const Real> t, absl::Span<Real> g) {
  const Real n = static_cast<Real>(x.size());
  double loss = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const Real error = x[i] - t[i];
    loss += error * error;
    if (!g.empty()) g[i] = 2 * error / n;
  }
  return loss / n;
}

// One example after another: its target, then its loss and metrics.

template <typename Real>
class ExampleLoss {
 public:
  ExampleLoss(const v1::Loss& loss, const LossPlan& plan, int64_t outputs)
      : kind_(loss.kind()),
        plan_(plan),
        logits_(plan.fused || loss.from_logits()),
        smoothing_(loss.label_smoothing()),
        target_(outputs),
        smoothed_(smoothing_ > 0 ? outputs : 0),
        scratch_(outputs) {}

  // The target of one example: the labels, or a class number as a one-hot vector.
  absl::Status SetTarget(int64_t example, absl::Span<const float> labels) {
    const int64_t outputs = static_cast<int64_t>(target_.size());
    const bool class_number =
        kind_ == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY || (plan_.softmax && labels.size() == 1);
    if (!class_number) {
      std::copy(labels.begin(), labels.end(), target_.begin());
      CAIRN_RETURN_IF_ERROR(CheckTarget(example));
      Smooth();
      return absl::OkStatus();
    }
    const float label = labels[0];
    if (!(label >= 0 && label < outputs && label == std::floor(label))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "label ", label, " of example ", example, " of the batch is not one of the model's classes 0 .. ",
          outputs - 1, "; give the last layer more units or correct the data"));
    }
    std::fill(target_.begin(), target_.end(), Real(0));
    target_[static_cast<int64_t>(label)] = 1;
    Smooth();
    return absl::OkStatus();
  }

  // Of the target's class.
  Real ClassWeight() const {
    if (plan_.class_weights.empty()) return 1;
    const size_t of =
        target_.size() == 1 ? (target_[0] > Real(0.5) ? 1 : 0) : static_cast<size_t>(ArgMax<Real>(target_));
    return of < plan_.class_weights.size() ? Real(plan_.class_weights[of]) : Real(1);
  }

  double Loss(absl::Span<const Real> x, absl::Span<Real> g) {
    const absl::Span<const Real> t = smoothing_ > 0 ? smoothed_ : target_;
    switch (kind_) {
      case v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY:
        if (!logits_ && smoothing_ > 0)
          return CategoricalFromProbabilities<Real>(x, t, g);  // the target is no class any more
        if (logits_) return CategoricalFromLogits<Real>(x, t, absl::MakeSpan(scratch_), g);
        return SparseFromProbabilities<Real>(x, t, g);
      case v1::Loss::CATEGORICAL_CROSSENTROPY:
        if (logits_) return CategoricalFromLogits<Real>(x, t, absl::MakeSpan(scratch_), g);
        return CategoricalFromProbabilities<Real>(x, t, g);
      case v1::Loss::BINARY_CROSSENTROPY:
        if (logits_) return BinaryFromLogits<Real>(x, t, g);
        return BinaryFromProbabilities<Real>(x, t, g);
      default: return MeanSquared<Real>(x, t, g);
    }
  }

  double Metric(const v1::Metric& metric, absl::Span<const Real> x) {
    switch (metric.kind()) {
      case v1::Metric::ACCURACY: return Accuracy(x);
      case v1::Metric::TOP_K_ACCURACY: return InTopK(x, metric.k() == 0 ? 5 : metric.k());
      case v1::Metric::MEAN_ABSOLUTE_ERROR: return Error(x, [](double e) { return std::abs(e); });
      case v1::Metric::ROOT_MEAN_SQUARED_ERROR: return Error(x, [](double e) { return e * e; });
      default: return 0;
    }
  }

 private:
  void Smooth() {
    if (smoothing_ == 0) return;
    const Real share = plan_.softmax ? smoothing_ / static_cast<Real>(target_.size()) : smoothing_ / 2;
    std::transform(target_.begin(), target_.end(), smoothed_.begin(),
                   [&](Real t) { return t * (1 - smoothing_) + share; });
  }

  absl::Status CheckTarget(int64_t example) const {
    for (Real t : target_) {
      const bool good = kind_ == v1::Loss::MEAN_SQUARED_ERROR ? std::isfinite(t) : t >= 0 && t <= 1;
      if (good) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("label ", t, " of example ", example, " of the batch is not ",
                       kind_ == v1::Loss::MEAN_SQUARED_ERROR ? "a finite number" : "in [0, 1]",
                       ", as this loss needs; correct the data or choose another loss"));
    }
    return absl::OkStatus();
  }

  double Accuracy(absl::Span<const Real> x) const {
    const bool binary =
        kind_ == v1::Loss::BINARY_CROSSENTROPY || (kind_ == v1::Loss::MEAN_SQUARED_ERROR && x.size() == 1);
    if (!binary) return ArgMax(x) == ArgMax<Real>(target_) ? 1 : 0;
    // The logit of probability 0.5 is 0.
    const Real threshold = kind_ == v1::Loss::BINARY_CROSSENTROPY && logits_ ? Real(0) : Real(0.5);
    double right = 0;
    for (size_t i = 0; i < x.size(); ++i) right += (x[i] > threshold) == (target_[i] > Real(0.5)) ? 1 : 0;
    return right / static_cast<double>(x.size());
  }

  double InTopK(absl::Span<const Real> x, int64_t k) const {
    const Real own = x[ArgMax<Real>(target_)];
    const int64_t before = std::count_if(x.begin(), x.end(), [&](Real v) { return !(v <= own); });
    return before < k ? 1 : 0;
  }

  template <typename Norm>
  double Error(absl::Span<const Real> x, Norm norm) {
    if (plan_.fused && plan_.softmax) {
      Softmax<Real>(x, absl::MakeSpan(scratch_));
    } else {
      std::transform(x.begin(), x.end(), scratch_.begin(), [&](Real v) { return plan_.fused ? Sigmoid(v) : v; });
    }
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += norm(scratch_[i] - target_[i]);
    return sum / static_cast<double>(x.size());
  }

  const v1::Loss::Kind kind_;
  const LossPlan plan_;
  const bool logits_;
  const Real smoothing_;
  std::vector<Real> target_;    // as the data has it
  std::vector<Real> smoothed_;  // empty: without smoothing
  std::vector<Real> scratch_;
};

absl::Status CheckLabelSize(const v1::Loss& loss, int64_t outputs, int64_t label_size) {
  const bool one = loss.kind() == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY ||
                   (loss.kind() == v1::Loss::CATEGORICAL_CROSSENTROPY && label_size == 1);
  if (label_size == (one ? 1 : outputs)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the data has ", label_size, " labels an example, but the loss needs ", one ? 1 : outputs,
      one ? " (a class number)" : " (one for each output of the model)", "; choose another loss or number of units"));
}

absl::Status CheckSizes(const v1::Loss& loss, int64_t examples, int64_t outputs, absl::Span<const float> labels,
                        int64_t label_size) {
  CAIRN_RETURN_IF_ERROR(CheckLabelSize(loss, outputs, label_size));
  if (static_cast<int64_t>(labels.size()) >= examples * label_size) return absl::OkStatus();
  return absl::InvalidArgumentError("the batch has fewer labels than examples");
}

}  // namespace

LossPlan PlanLoss(const Graph& graph, const v1::Loss& loss, absl::Span<const v1::ClassWeight> class_weights) {
  LossPlan plan;
  for (const v1::ClassWeight& w : class_weights) {
    if (w.class_id() < 0) continue;  // refused at submission
    const size_t size = static_cast<size_t>(w.class_id()) + 1;
    if (plan.class_weights.size() < size) plan.class_weights.resize(size, 1.0f);
    plan.class_weights[w.class_id()] = w.weight();
  }
  plan.softmax = IsCategorical(loss.kind());
  const v1::Activation activation = graph.output().activation;
  if (plan.softmax) {
    plan.fused = !loss.from_logits() && activation == v1::SOFTMAX;
  } else {
    plan.fused = loss.kind() == v1::Loss::BINARY_CROSSENTROPY && !loss.from_logits() && activation == v1::SIGMOID;
  }
  return plan;
}

absl::Status CheckLabels(const v1::Loss& loss, const LossPlan& plan, int64_t examples, int64_t outputs,
                         absl::Span<const float> labels, int64_t label_size) {
  CAIRN_RETURN_IF_ERROR(CheckSizes(loss, examples, outputs, labels, label_size));
  ExampleLoss<float> example(loss, plan, outputs);
  for (int64_t e = 0; e < examples; ++e) {
    CAIRN_RETURN_IF_ERROR(example.SetTarget(e, labels.subspan(e * label_size, label_size)));
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status LossAndMetrics(const v1::Loss& loss, const LossPlan& plan, absl::Span<const v1::Metric> metrics,
                            int64_t examples, absl::Span<const Real> outputs, absl::Span<const float> labels,
                            int64_t label_size, absl::Span<Real> gradients, BatchSums* sums) {
  sums->examples = static_cast<uint64_t>(examples);
  sums->loss = 0;
  sums->metrics.assign(metrics.size(), 0.0);
  if (examples == 0) return absl::OkStatus();
  const int64_t size = static_cast<int64_t>(outputs.size()) / examples;
  CAIRN_CHECK(size > 0 && (gradients.empty() || gradients.size() == outputs.size()), "the backend's buffers");
  CAIRN_RETURN_IF_ERROR(CheckSizes(loss, examples, size, labels, label_size));
  ExampleLoss<Real> example(loss, plan, size);
  for (int64_t e = 0; e < examples; ++e) {
    const absl::Span<const Real> x = outputs.subspan(e * size, size);
    CAIRN_RETURN_IF_ERROR(example.SetTarget(e, labels.subspan(e * label_size, label_size)));
    const absl::Span<Real> gradient = gradients.empty() ? absl::Span<Real>() : gradients.subspan(e * size, size);
    const Real weight = gradients.empty() ? Real(1) : example.ClassWeight();
    const double of_example = example.Loss(x, gradient);
    sums->loss += weight == 1 ? of_example : static_cast<double>(weight) * of_example;
    if (weight != 1) {
      for (Real& g : gradient) g *= weight;
    }
    for (size_t m = 0; m < metrics.size(); ++m) sums->metrics[m] += example.Metric(metrics[m], x);
  }
  return absl::OkStatus();
}

template absl::Status LossAndMetrics<float>(const v1::Loss&, const LossPlan&, absl::Span<const v1::Metric>, int64_t,
                                            absl::Span<const float>, absl::Span<const float>, int64_t,
                                            absl::Span<float>, BatchSums*);
template absl::Status LossAndMetrics<double>(const v1::Loss&, const LossPlan&, absl::Span<const v1::Metric>, int64_t,
                                             absl::Span<const double>, absl::Span<const float>, int64_t,
                                             absl::Span<double>, BatchSums*);

}  // namespace cairn
