#include "worker/backend/loss.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/model/data_check.h"
#include "worker/backend/batch_loss.h"
#include "worker/backend/class_loss.h"
#include "worker/backend/row_metrics.h"

namespace cairn {
namespace {

static_assert(static_cast<int>(RowLossKind::kMeanAbsolute) == v1::Loss::MEAN_ABSOLUTE_ERROR &&
                  static_cast<int>(RowLossKind::kHuber) == v1::Loss::HUBER &&
                  static_cast<int>(RowLossKind::kCosine) == v1::Loss::COSINE_SIMILARITY &&
                  static_cast<int>(RowLossKind::kTversky) == v1::Loss::TVERSKY &&
                  static_cast<int>(RowLossKind::kGeneralizedCrossEntropy) ==
                      v1::Loss::CATEGORICAL_GENERALIZED_CROSS_ENTROPY,
              "RowLossKind has the numbers of v1::Loss::Kind");

// The targets that a loss accepts.
enum class Range { kFinite, kShare, kSide };

Range RangeOf(v1::Loss::Kind kind) {
  switch (kind) {
    case v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY:
    case v1::Loss::CATEGORICAL_CROSSENTROPY:
    case v1::Loss::BINARY_CROSSENTROPY:
    case v1::Loss::KL_DIVERGENCE:
    case v1::Loss::CATEGORICAL_HINGE:
    case v1::Loss::BINARY_FOCAL_CROSSENTROPY:
    case v1::Loss::CATEGORICAL_FOCAL_CROSSENTROPY:
    case v1::Loss::DICE:
    case v1::Loss::TVERSKY:
    case v1::Loss::CATEGORICAL_GENERALIZED_CROSS_ENTROPY: return Range::kShare;
    case v1::Loss::HINGE:
    case v1::Loss::SQUARED_HINGE: return Range::kSide;
    default: return Range::kFinite;
  }
}

// The rows, one after another: the target of each, then its loss.
template <typename Real>
class LossOfRow {
 public:
  // size: numbers in a row.
  LossOfRow(const v1::Loss& loss, const LossPlan& plan, int64_t size, bool class_numbers)
      : loss_(loss),
        kind_(loss.kind()),
        plan_(plan),
        settings_(SettingsOf(loss)),
        range_(RangeOf(loss.kind())),
        class_numbers_(class_numbers),
        logits_(plan.fused || loss.from_logits()),
        smoothing_(loss.label_smoothing()),
        target_(size),
        smoothed_(smoothing_ > 0 ? size : 0),
        scratch_(size) {}

  // The target of one row: the labels, or a class number as a one-hot vector.
  absl::Status SetTarget(int64_t example, absl::Span<const float> labels) {
    const int64_t size = static_cast<int64_t>(target_.size());
    known_ = true;
    if (!class_numbers_) {
      std::copy(labels.begin(), labels.end(), target_.begin());
      CAIRN_RETURN_IF_ERROR(CheckTarget(example));
      Smooth();
      return absl::OkStatus();
    }
    const float label = labels[0];
    std::fill(target_.begin(), target_.end(), Real(0));
    if (loss_.has_ignore_class() && label == static_cast<float>(loss_.ignore_class())) {
      known_ = label >= 0 && label < size;
      target_[known_ ? static_cast<int64_t>(label) : 0] = 1;
      Smooth();
      return absl::OkStatus();
    }
    if (!(label >= 0 && label < size && label == std::floor(label))) {
      return absl::InvalidArgumentError(absl::StrCat("label ", label, " of example ", example,
                                                     " of the batch is not one of the model's classes 0 .. ", size - 1,
                                                     "; give the last layer more units or correct the data"));
    }
    target_[static_cast<int64_t>(label)] = 1;
    Smooth();
    return absl::OkStatus();
  }

  absl::Span<const Real> target() const { return target_; }
  // false: the class number is ignored and is no class of the model.
  bool known() const { return known_; }

  // The weight of the target's class.
  Real ClassWeight() const {
    if (plan_.class_weights.empty()) return 1;
    const size_t of =
        target_.size() == 1 ? (target_[0] > Real(0.5) ? 1 : 0) : static_cast<size_t>(row::ArgMax<Real>(target_));
    return of < plan_.class_weights.size() ? Real(plan_.class_weights[of]) : Real(1);
  }

  double Loss(absl::Span<const Real> x, absl::Span<Real> g) {
    const absl::Span<const Real> t = smoothing_ > 0 ? smoothed_ : target_;
    switch (kind_) {
      case v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY:
        if (!logits_ && smoothing_ > 0)
          return row::CategoricalFromProbabilities<Real>(x, t, g);  // the target is no class any more
        if (logits_) return row::CategoricalFromLogits<Real>(x, t, absl::MakeSpan(scratch_), g);
        return row::SparseFromProbabilities<Real>(x, t, g);
      case v1::Loss::CATEGORICAL_CROSSENTROPY:
        if (logits_) return row::CategoricalFromLogits<Real>(x, t, absl::MakeSpan(scratch_), g);
        return row::CategoricalFromProbabilities<Real>(x, t, g);
      case v1::Loss::BINARY_CROSSENTROPY:
        if (logits_) return row::BinaryFromLogits<Real>(x, t, g);
        return row::BinaryFromProbabilities<Real>(x, t, g);
      case v1::Loss::MEAN_SQUARED_ERROR: return row::MeanSquared<Real>(x, t, g);
      default: return Other(x, t, g);
    }
  }

 private:
  double Other(absl::Span<const Real> x, absl::Span<const Real> t, absl::Span<Real> g) const {
    const auto n = static_cast<int64_t>(x.size());
    const auto of = [&](int64_t i) { return t[static_cast<size_t>(i)]; };
    const auto write = [&](int64_t i, Real v) { g[static_cast<size_t>(i)] = v; };
    if (g.empty())
      return RowLoss<Real, false, decltype(of), decltype(write)>(settings_, x.data(), n, of, write).Compute();
    return RowLoss<Real, true, decltype(of), decltype(write)>(settings_, x.data(), n, of, write).Compute();
  }

  void Smooth() {
    if (smoothing_ == 0) return;
    const Real share = plan_.softmax ? smoothing_ / static_cast<Real>(target_.size()) : smoothing_ / 2;
    std::transform(target_.begin(), target_.end(), smoothed_.begin(),
                   [&](Real t) { return t * (1 - smoothing_) + share; });
  }

  absl::Status CheckTarget(int64_t example) const {
    for (Real t : target_) {
      const bool good = range_ == Range::kFinite  ? std::isfinite(t)
                        : range_ == Range::kShare ? t >= 0 && t <= 1
                                                  : t == -1 || t == 0 || t == 1;
      if (good) continue;
      return absl::InvalidArgumentError(absl::StrCat("label ", t, " of example ", example, " of the batch is not ",
                                                     range_ == Range::kFinite  ? "a finite number"
                                                     : range_ == Range::kShare ? "in [0, 1]"
                                                                               : "-1, 0 or 1",
                                                     ", as this loss needs; correct the data or choose another loss"));
    }
    return absl::OkStatus();
  }

  const v1::Loss loss_;
  const v1::Loss::Kind kind_;
  const LossPlan plan_;
  const RowLossSettings settings_;
  const Range range_;
  const bool class_numbers_, logits_;
  const Real smoothing_;
  bool known_ = true;
  std::vector<Real> target_;    // as the data has it
  std::vector<Real> smoothed_;  // empty: without smoothing
  std::vector<Real> scratch_;
};

absl::Status CheckLabelSize(const v1::Loss& loss, const LossPlan& plan, int64_t outputs, int64_t label_size) {
  if (IsBatchLoss(loss.kind())) return absl::OkStatus();  // CheckBatchLabels
  const bool one = TakesClassNumbers(loss, plan, outputs, label_size);
  const int64_t wanted = one ? plan.positions : outputs;
  if (label_size == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the data has ", label_size, " labels an example, but the loss needs ",
                                                 wanted,
                                                 !one                  ? " (one for each output of the model)"
                                                 : plan.positions == 1 ? " (a class number)"
                                                                       : " (a class number for each position)",
                                                 "; choose another loss or number of units"));
}

absl::Status CheckSizes(const v1::Loss& loss, const LossPlan& plan, int64_t examples, int64_t outputs,
                        absl::Span<const float> labels, int64_t label_size) {
  CAIRN_RETURN_IF_ERROR(CheckLabelSize(loss, plan, outputs, label_size));
  if (static_cast<int64_t>(labels.size()) >= examples * label_size) return absl::OkStatus();
  return absl::InvalidArgumentError("the batch has fewer labels than examples");
}

// The rows of a batch: labels and outputs of each.
struct Rows {
  int64_t of_example, size, label;
  bool class_numbers;
  Rows(const v1::Loss& loss, const LossPlan& plan, int64_t outputs, int64_t label_size)
      : of_example(plan.positions),
        size(outputs / plan.positions),
        label(label_size / plan.positions),
        class_numbers(TakesClassNumbers(loss, plan, outputs, label_size)) {}
};

// Metrics of a loss's row, which is one or all of the metrics' rows of its example.
template <typename Real>
void AddMetrics(const LossPlan& plan, absl::Span<const Real> x, absl::Span<const Real> t, bool known,
                RowMetrics<Real>& metrics) {
  const auto rows = static_cast<size_t>(plan.metric_rows / plan.positions), size = x.size() / rows;
  for (size_t r = 0; r < rows; ++r) metrics.Add(x.subspan(r * size, size), t.subspan(r * size, size), known);
}

// The weights of the batch's examples, which follow the labels; empty: there are none.
absl::Span<const float> SampleWeights(absl::Span<const float> labels, int64_t examples, int64_t label_size) {
  const auto numbers = static_cast<size_t>(examples * label_size);
  if (labels.size() != numbers + static_cast<size_t>(examples) || examples == 0) return {};
  return labels.subspan(numbers);
}

// Which rows of a batch have masked steps.
class StepMask {
 public:
  // steps: [examples, steps] of 1 and 0; empty: every step counts.
  StepMask(absl::Span<const float> steps, int64_t rows) : steps_(steps) {
    if (steps.empty()) return;
    rows_of_step_ = rows / static_cast<int64_t>(steps.size());
    CAIRN_CHECK(rows_of_step_ * static_cast<int64_t>(steps.size()) == rows, "a masked output has rows in every step");
  }
  bool Counts(int64_t row) const { return steps_.empty() || steps_[row / rows_of_step_] != 0; }

 private:
  const absl::Span<const float> steps_;
  int64_t rows_of_step_ = 1;
};

// RowWeights of a masked output: the rows that count share the weight of the whole batch.
std::vector<float> MaskedRowWeights(const v1::Loss& loss, const LossPlan& plan, int64_t examples,
                                    absl::Span<const float> labels, absl::Span<const float> weights,
                                    absl::Span<const float> step_mask) {
  const int64_t rows = examples * plan.positions;
  const StepMask mask(step_mask, rows);
  // If a class is ignored, each row's target is a class number.
  const auto counts = [&](int64_t r) {
    return mask.Counts(r) && !(loss.has_ignore_class() && labels[r] == static_cast<float>(loss.ignore_class()));
  };
  int64_t counted = 0;
  for (int64_t r = 0; r < rows; ++r) counted += counts(r) ? 1 : 0;
  const float each = static_cast<float>(examples) / static_cast<float>(std::max<int64_t>(counted, 1));
  std::vector<float> result(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    if (counts(r)) result[r] = (weights.empty() ? 1.0f : weights[r / plan.positions]) * each;
  }
  return result;
}

}  // namespace

LossPlan PlanLoss(const Graph& graph, const v1::Loss& loss, absl::Span<const v1::ClassWeight> class_weights) {
  return PlanLoss(graph.output(), loss, class_weights);
}

LossPlan PlanLoss(const Node& output, const v1::Loss& loss, absl::Span<const v1::ClassWeight> class_weights) {
  LossPlan plan;
  for (const v1::ClassWeight& w : class_weights) {
    if (w.class_id() < 0) continue;  // refused at submission
    const size_t size = static_cast<size_t>(w.class_id()) + 1;
    if (plan.class_weights.size() < size) plan.class_weights.resize(size, 1.0f);
    plan.class_weights[w.class_id()] = w.weight();
  }
  plan.softmax = IsCategorical(loss.kind());
  plan.mask = output.mask;
  const v1::Loss::Kind kind = loss.kind();
  if (kind == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY || kind == v1::Loss::CATEGORICAL_CROSSENTROPY) {
    plan.fused = !loss.from_logits() && output.activation == v1::SOFTMAX;
  } else {
    plan.fused = kind == v1::Loss::BINARY_CROSSENTROPY && !loss.from_logits() && output.activation == v1::SIGMOID;
  }
  plan.metric_rows = NumElements(output.output) / output.output.back();
  const bool whole = kind == v1::Loss::DICE || kind == v1::Loss::TVERSKY || IsBatchLoss(kind);
  plan.positions = whole ? 1 : plan.metric_rows;
  return plan;
}

RowLossSettings SettingsOf(const v1::Loss& loss) {
  RowLossSettings s;
  s.kind = loss.kind();
  s.logits = loss.from_logits();
  s.balancing = loss.apply_class_balancing();
  if (loss.has_delta()) s.delta = loss.delta();
  s.alpha = loss.has_alpha() ? loss.alpha() : loss.kind() == v1::Loss::TVERSKY ? 0.5f : 0.25f;
  if (loss.has_beta()) s.beta = loss.beta();
  if (loss.has_gamma()) s.gamma = loss.gamma();
  if (loss.has_q()) s.q = loss.q();
  return s;
}

std::vector<float> RowWeights(const v1::Loss& loss, const LossPlan& plan, int64_t examples,
                              absl::Span<const float> labels, int64_t label_size, absl::Span<const float> step_mask) {
  const absl::Span<const float> weights = SampleWeights(labels, examples, label_size);
  if (!step_mask.empty()) return MaskedRowWeights(loss, plan, examples, labels, weights, step_mask);
  if (weights.empty() && !loss.has_ignore_class()) return {};
  std::vector<float> rows(static_cast<size_t>(examples * plan.positions));
  for (int64_t e = 0; e < examples; ++e) {
    const absl::Span<const float> own = labels.subspan(e * label_size, label_size);
    const auto ignored = [&](int64_t p) {
      return loss.has_ignore_class() && own[p] == static_cast<float>(loss.ignore_class());
    };
    int64_t counted = 0;
    for (int64_t p = 0; p < plan.positions; ++p) counted += ignored(p) ? 0 : 1;
    const float each = (weights.empty() ? 1.0f : weights[e]) / static_cast<float>(std::max<int64_t>(counted, 1));
    for (int64_t p = 0; p < plan.positions; ++p) rows[e * plan.positions + p] = ignored(p) ? 0 : each;
  }
  return rows;
}

absl::Status CheckLabels(const v1::Loss& loss, const LossPlan& plan, int64_t examples, int64_t outputs,
                         absl::Span<const float> labels, int64_t label_size) {
  CAIRN_RETURN_IF_ERROR(CheckSizes(loss, plan, examples, outputs, labels, label_size));
  if (IsBatchLoss(loss.kind())) return CheckBatchLabels(loss, plan, examples, outputs, labels, label_size);
  const Rows rows(loss, plan, outputs, label_size);
  LossOfRow<float> row(loss, plan, rows.size, rows.class_numbers);
  for (int64_t r = 0; r < examples * rows.of_example; ++r) {
    CAIRN_RETURN_IF_ERROR(row.SetTarget(r / rows.of_example, labels.subspan(r * rows.label, rows.label)));
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status LossAndMetrics(const v1::Loss& loss, const LossPlan& plan, absl::Span<const v1::Metric> metrics,
                            const LabeledOutputs<Real>& batch, absl::Span<Real> gradients, BatchSums* sums) {
  const int64_t examples = batch.examples, label_size = batch.label_size;
  const absl::Span<const Real> outputs = batch.outputs;
  const absl::Span<const float> labels = batch.labels;
  sums->examples = static_cast<uint64_t>(examples);
  sums->loss = 0;
  const int64_t size = examples == 0 ? plan.positions : static_cast<int64_t>(outputs.size()) / examples;
  const Rows rows(loss, plan, size, label_size);
  RowMetrics<Real> counted(loss, plan, metrics, rows.size * plan.positions / plan.metric_rows, &sums->metrics);
  if (examples == 0) return absl::OkStatus();
  CAIRN_CHECK(size > 0 && (gradients.empty() || gradients.size() == outputs.size()), "the backend's buffers");
  CAIRN_RETURN_IF_ERROR(CheckSizes(loss, plan, examples, size, labels, label_size));
  const std::vector<float> weights = RowWeights(loss, plan, examples, labels, label_size, batch.step_mask);
  if (IsBatchLoss(loss.kind())) {
    CAIRN_RETURN_IF_ERROR(CheckBatchLabels(loss, plan, examples, size, labels, label_size));
    sums->loss = BatchLoss<Real>(loss, plan, batch, weights, gradients);
    return absl::OkStatus();
  }
  const StepMask mask(batch.step_mask, examples * rows.of_example);
  LossOfRow<Real> row(loss, plan, rows.size, rows.class_numbers);
  const Real share = Real(1) / static_cast<Real>(rows.of_example);
  for (int64_t r = 0; r < examples * rows.of_example; ++r) {
    const absl::Span<const Real> x = outputs.subspan(r * rows.size, rows.size);
    const absl::Span<Real> gradient =
        gradients.empty() ? absl::Span<Real>() : gradients.subspan(r * rows.size, rows.size);
    if (!mask.Counts(r)) {
      std::fill(gradient.begin(), gradient.end(), Real(0));
      continue;
    }
    CAIRN_RETURN_IF_ERROR(row.SetTarget(r / rows.of_example, labels.subspan(r * rows.label, rows.label)));
    Real weight = gradients.empty() ? Real(1) : row.ClassWeight();
    if (!weights.empty()) {
      weight *= Real(weights[r]);
    } else if (rows.of_example > 1) {
      weight *= share;
    }
    const double of_row = row.Loss(x, gradient);
    sums->loss += weight == 1 ? of_row : static_cast<double>(weight) * of_row;
    if (weight != 1) {
      for (Real& g : gradient) g *= weight;
    }
    AddMetrics<Real>(plan, x, row.target(), row.known(), counted);
  }
  return absl::OkStatus();
}

absl::Status MetricsOf(const v1::Loss& loss, const LossPlan& plan, absl::Span<const v1::Metric> metrics,
                       const LabeledOutputs<float>& batch, BatchSums* sums) {
  const int64_t size = static_cast<int64_t>(batch.outputs.size()) / std::max<int64_t>(batch.examples, 1);
  const Rows rows(loss, plan, size, batch.label_size);
  RowMetrics<float> counted(loss, plan, metrics, rows.size * plan.positions / plan.metric_rows, &sums->metrics);
  if (metrics.empty() || IsBatchLoss(loss.kind())) return absl::OkStatus();  // no metric compares sequences or pairs
  LossOfRow<float> row(loss, plan, rows.size, rows.class_numbers);
  for (int64_t r = 0; r < batch.examples * rows.of_example; ++r) {
    CAIRN_RETURN_IF_ERROR(row.SetTarget(r / rows.of_example, batch.labels.subspan(r * rows.label, rows.label)));
    AddMetrics<float>(plan, batch.outputs.subspan(r * rows.size, rows.size), row.target(), row.known(), counted);
  }
  return absl::OkStatus();
}

template absl::Status LossAndMetrics<float>(const v1::Loss&, const LossPlan&, absl::Span<const v1::Metric>,
                                            const LabeledOutputs<float>&, absl::Span<float>, BatchSums*);
template absl::Status LossAndMetrics<double>(const v1::Loss&, const LossPlan&, absl::Span<const v1::Metric>,
                                             const LabeledOutputs<double>&, absl::Span<double>, BatchSums*);

}  // namespace cairn
