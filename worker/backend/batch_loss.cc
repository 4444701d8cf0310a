#include "worker/backend/batch_loss.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/decimal.h"
#include "worker/backend/circle_loss.h"
#include "worker/backend/ctc_loss.h"

namespace cairn {
namespace {

template <typename Real>
double SumOfCtc(const LossPlan& plan, const LabeledOutputs<Real>& batch, absl::Span<const float> weights,
                absl::Span<Real> gradients) {
  const auto n = static_cast<size_t>(batch.examples), size = batch.outputs.size() / n,
             width = static_cast<size_t>(batch.label_size);
  CtcLoss<Real> loss(plan.metric_rows, static_cast<int64_t>(size) / plan.metric_rows);
  double sum = 0;
  for (size_t e = 0; e < n; ++e) {
    const absl::Span<const float> own = batch.labels.subspan(e * width, width);
    const absl::Span<Real> gradient = gradients.empty() ? gradients : gradients.subspan(e * size, size);
    const auto count = std::find(own.begin(), own.end(), 0.0f) - own.begin();
    const double of_example = loss.Compute(batch.outputs.subspan(e * size, size), own, count, gradient);
    const float weight = weights.empty() ? 1.0f : weights[e];
    sum += weight == 0 ? 0 : static_cast<double>(weight) * of_example;
    if (weight == 1) continue;
    for (Real& g : gradient) g = weight == 0 ? Real(0) : g * static_cast<Real>(weight);
  }
  return sum;
}

}  // namespace

CircleSettings CircleSettingsOf(const v1::Loss& loss) {
  CircleSettings settings;
  if (loss.has_gamma()) settings.gamma = Decimal(loss.gamma());
  if (loss.has_margin()) settings.margin = Decimal(loss.margin());
  if (loss.has_remove_diagonal()) settings.remove_diagonal = loss.remove_diagonal();
  return settings;
}

bool IsBatchLoss(v1::Loss::Kind kind) { return kind == v1::Loss::CTC || kind == v1::Loss::CIRCLE; }

absl::Status CheckBatchLabels(const v1::Loss& loss, const LossPlan& plan, int64_t examples, int64_t outputs,
                              absl::Span<const float> labels, int64_t label_size) {
  const bool circle = loss.kind() == v1::Loss::CIRCLE;
  if (circle ? label_size != 1 : label_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the data has ", label_size, " labels an example, but the loss needs ",
        circle ? "a class number" : "a sequence of class numbers", "; choose another loss, or other data.targets"));
  }
  const auto width = static_cast<size_t>(label_size);
  for (int64_t e = 0; e < examples; ++e) {
    const absl::Span<const float> own = labels.subspan(static_cast<size_t>(e) * width, width);
    if (!circle) {
      CAIRN_RETURN_IF_ERROR(CheckCtcLabels(e, plan.metric_rows, outputs / plan.metric_rows, own).status());
    } else if (!(own[0] >= 0 && own[0] == std::floor(own[0]) && std::isfinite(own[0]))) {
      return absl::InvalidArgumentError(
          absl::StrCat("label ", own[0], " of example ", e, " of the batch is not a class number; correct the data"));
    }
  }
  return absl::OkStatus();
}

template <typename Real>
double BatchLoss(const v1::Loss& loss, const LossPlan& plan, const LabeledOutputs<Real>& batch,
                 absl::Span<const float> weights, absl::Span<Real> gradients) {
  if (loss.kind() == v1::Loss::CIRCLE) {
    return CircleLoss<Real>(CircleSettingsOf(loss), batch.examples, batch.outputs, batch.labels, weights, gradients);
  }
  return SumOfCtc<Real>(plan, batch, weights, gradients);
}

template double BatchLoss<float>(const v1::Loss&, const LossPlan&, const LabeledOutputs<float>&,
                                 absl::Span<const float>, absl::Span<float>);
template double BatchLoss<double>(const v1::Loss&, const LossPlan&, const LabeledOutputs<double>&,
                                  absl::Span<const float>, absl::Span<double>);

}  // namespace cairn
