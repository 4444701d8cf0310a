#include "worker/backend/outputs_loss.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/backend/class_loss.h"

namespace cairn {
namespace {

// What the loss needs to know of the layer that gives the output.
Node NodeOf(const JoinedOutput& output) {
  Node node;
  node.name = output.name;
  node.output = output.shape;
  node.activation = output.left_out;  // its loss takes logits where that is left out
  return node;
}

template <typename Real>
void Softmax(absl::Span<Real> row) {
  const Real most = *std::max_element(row.begin(), row.end());
  Real sum = 0;
  for (Real& x : row) sum += x = std::exp(x - most);
  for (Real& x : row) x /= sum;
}

}  // namespace

OutputsLoss::OutputsLoss(std::vector<JoinedOutput> outputs) : outputs_(std::move(outputs)) {
  for (const JoinedOutput& output : outputs_) {
    size_ += output.size;
    if (!output.trained) continue;
    labels_ += output.label_size;
    Part part{output, PlanLoss(NodeOf(output), output.with.loss()), {}, 1};
    part.metrics.assign(output.with.metrics().begin(), output.with.metrics().end());
    if (output.with.has_weight()) part.weight = output.with.weight();
    parts_.push_back(std::move(part));
  }
}

std::vector<float> OutputsLoss::LabelsOf(const Part& part, int64_t examples, absl::Span<const float> labels,
                                         int64_t label_size) const {
  const int64_t numbers = examples * label_size, size = part.output.label_size;
  std::vector<float> own;
  own.reserve(static_cast<size_t>(examples * (size + 1)));
  for (int64_t e = 0; e < examples; ++e) {
    const float* const begin = labels.data() + e * label_size + part.output.label_begin;
    own.insert(own.end(), begin, begin + size);
  }
  if (static_cast<int64_t>(labels.size()) == numbers + examples) {
    own.insert(own.end(), labels.begin() + numbers, labels.end());
  }
  return own;
}

template <typename Real>
std::vector<Real> OutputsLoss::OutputsOf(const Part& part, int64_t examples, absl::Span<const Real> joined) const {
  const int64_t size = part.output.size;
  std::vector<Real> own(static_cast<size_t>(examples * size));
  for (int64_t e = 0; e < examples; ++e) {
    std::copy_n(joined.begin() + e * size_ + part.output.begin, size, own.begin() + e * size);
  }
  return own;
}

absl::Status OutputsLoss::CheckLabelSize(int64_t examples, absl::Span<const float> labels, int64_t label_size) const {
  if (label_size == labels_ && static_cast<int64_t>(labels.size()) >= examples * label_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the data has ", label_size, " target numbers an example, but the ",
                                                 "losses of the outputs need ", labels_, "; see data.targets"));
}

absl::Status OutputsLoss::CheckLabels(int64_t examples, absl::Span<const float> labels, int64_t label_size) const {
  CAIRN_RETURN_IF_ERROR(CheckLabelSize(examples, labels, label_size));
  for (const Part& part : parts_) {
    std::vector<float> copied;
    absl::Span<const float> own = labels;
    if (part.output.label_size != label_size) own = copied = LabelsOf(part, examples, labels, label_size);
    const absl::Status checked =
        cairn::CheckLabels(part.output.with.loss(), part.plan, examples, part.output.size, own, part.output.label_size);
    if (!checked.ok()) return Annotate(checked, absl::StrCat("output \"", part.output.name, "\""));
  }
  return absl::OkStatus();
}

std::vector<float> OutputsLoss::RowWeightsOf(int64_t examples, absl::Span<const float> labels,
                                             int64_t label_size) const {
  const bool weights = static_cast<int64_t>(labels.size()) == examples * (label_size + 1);
  if (!weights && std::none_of(parts_.begin(), parts_.end(),
                               [](const Part& part) { return part.output.with.loss().has_ignore_class(); })) {
    return {};  // before any labels are copied
  }
  std::vector<float> all;
  for (const Part& part : parts_) {
    std::vector<float> own = RowWeights(part.output.with.loss(), part.plan, examples,
                                        LabelsOf(part, examples, labels, label_size), part.output.label_size);
    if (own.empty()) {  // each row has its share of the example
      own.assign(static_cast<size_t>(examples * part.plan.positions), 1 / static_cast<float>(part.plan.positions));
    }
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

absl::StatusOr<std::vector<double>> OutputsLoss::MetricsOfParts(int64_t examples, absl::Span<const float> joined,
                                                                absl::Span<const float> labels,
                                                                int64_t label_size) const {
  std::vector<double> all;
  for (const Part& part : parts_) {
    BatchSums own;
    CAIRN_RETURN_IF_ERROR(MetricsOf(part.output.with.loss(), part.plan, part.metrics,
                                    {.examples = examples,
                                     .outputs = OutputsOf<float>(part, examples, joined),
                                     .labels = LabelsOf(part, examples, labels, label_size),
                                     .label_size = part.output.label_size},
                                    &own));
    all.insert(all.end(), own.metrics.begin(), own.metrics.end());
  }
  return all;
}

template <typename Real>
absl::Status OutputsLoss::Compute(int64_t examples, absl::Span<const Real> joined, absl::Span<const float> labels,
                                  int64_t label_size, absl::Span<Real> gradients, BatchSums* sums) const {
  sums->examples = static_cast<uint64_t>(examples);
  sums->loss = 0;
  sums->metrics.clear();
  CAIRN_CHECK(static_cast<int64_t>(joined.size()) == examples * size_, "the joined output");
  CAIRN_RETURN_IF_ERROR(CheckLabelSize(examples, labels, label_size));
  std::fill(gradients.begin(), gradients.end(), Real(0));
  std::vector<double> metrics;
  std::vector<Real> g;
  for (const Part& part : parts_) {
    const int64_t size = part.output.size;
    const std::vector<Real> x = OutputsOf<Real>(part, examples, joined);
    g.resize(gradients.empty() ? 0 : x.size());
    BatchSums own;
    const absl::Status computed = LossAndMetrics<Real>(part.output.with.loss(), part.plan, part.metrics,
                                                       {.examples = examples,
                                                        .outputs = x,
                                                        .labels = LabelsOf(part, examples, labels, label_size),
                                                        .label_size = part.output.label_size},
                                                       absl::MakeSpan(g), &own);
    if (!computed.ok()) return Annotate(computed, absl::StrCat("output \"", part.output.name, "\""));
    for (int64_t e = 0; e < examples && !g.empty(); ++e) {
      std::transform(g.begin() + e * size, g.begin() + (e + 1) * size,
                     gradients.begin() + e * size_ + part.output.begin, [&](Real v) { return v * Real(part.weight); });
    }
    sums->loss += static_cast<double>(part.weight) * own.loss;
    sums->metrics.push_back(own.loss);
    metrics.insert(metrics.end(), own.metrics.begin(), own.metrics.end());
  }
  sums->metrics.insert(sums->metrics.end(), metrics.begin(), metrics.end());
  return absl::OkStatus();
}

template <typename Real>
void OutputsLoss::Activate(absl::Span<Real> joined) const {
  for (const JoinedOutput& output : outputs_) {
    if (output.left_out == v1::LINEAR) continue;
    const auto width = static_cast<size_t>(output.shape.back()), size = static_cast<size_t>(output.size);
    for (size_t at = static_cast<size_t>(output.begin); at < joined.size(); at += static_cast<size_t>(size_)) {
      for (size_t r = 0; r < size; r += width) {
        const absl::Span<Real> numbers = joined.subspan(at + r, width);
        if (output.left_out == v1::SOFTMAX) {
          Softmax(numbers);
        } else {
          for (Real& number : numbers) number = row::Sigmoid(number);
        }
      }
    }
  }
}

template absl::Status OutputsLoss::Compute<float>(int64_t, absl::Span<const float>, absl::Span<const float>, int64_t,
                                                  absl::Span<float>, BatchSums*) const;
template absl::Status OutputsLoss::Compute<double>(int64_t, absl::Span<const double>, absl::Span<const float>, int64_t,
                                                   absl::Span<double>, BatchSums*) const;
template void OutputsLoss::Activate<float>(absl::Span<float>) const;
template void OutputsLoss::Activate<double>(absl::Span<double>) const;

}  // namespace cairn
