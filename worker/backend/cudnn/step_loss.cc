#include "worker/backend/cudnn/step_loss.h"

#include <algorithm>
#include <utility>

#include "worker/backend/batch_loss.h"
#include "worker/backend/cudnn/masked_loss.h"

namespace cairn::cudnn {
namespace {

bool HostCounts(const ProgramOptions& options, const LossPlan& plan, const OutputsLoss& parts) {
  if (parts.empty()) return plan.mask >= 0 || CountsOnHost(options.loss, options.metrics);
  return std::any_of(parts.parts().begin(), parts.parts().end(),
                     [](const OutputsLoss::Part& part) { return CountsOnHost(part.output.with.loss(), part.metrics); });
}

}  // namespace

StepLoss::StepLoss(const Graph& graph, const ProgramOptions& options)
    : options_(options),
      parts_(options.outputs),
      plan_(parts_.empty() ? PlanLoss(graph, options.loss, options.class_weights) : LossPlan()),
      outputs_(NumElements(graph.output().output)),
      host_metrics_(HostCounts(options, plan_, parts_)) {}

void StepLoss::SetIn(LoweringOptions* lowering) const {
  lowering->keep_outputs = host_metrics_;
  lowering->loss_plan = plan_;
  if (parts_.empty()) {
    lowering->loss = options_.loss;
    if (!host_metrics_) lowering->metrics = options_.metrics;
    return;
  }
  for (const OutputsLoss::Part& part : parts_.parts()) {
    LossPart& to = lowering->parts.emplace_back();
    to.loss = part.output.with.loss();
    to.plan = part.plan;
    if (!host_metrics_) to.metrics = part.metrics;
    to.begin = part.output.begin;
    to.size = part.output.size;
    to.label_begin = part.output.label_begin;
    to.label_size = part.output.label_size;
    to.weight = part.weight;
  }
}

int64_t StepLoss::results() const {
  if (parts_.empty()) return 1 + (host_metrics_ ? 0 : static_cast<int64_t>(options_.metrics.size()));
  int64_t count = 1;
  for (const OutputsLoss::Part& part : parts_.parts()) {
    count += 1 + (host_metrics_ ? 0 : static_cast<int64_t>(part.metrics.size()));
  }
  return count;
}

int64_t StepLoss::label_size() const {
  if (!parts_.empty()) return parts_.label_size();
  if (options_.loss.kind() == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY) return plan_.positions;
  // Of CTC: what a step needs grows with steps * labels, and who knows the steps does not know the labels.
  return IsBatchLoss(options_.loss.kind()) ? 1 : outputs_;
}

int64_t StepLoss::label_numbers() const {
  if (parts_.empty()) return std::max<int64_t>(outputs_, 1) + plan_.positions;
  int64_t numbers = parts_.label_size();
  for (const OutputsLoss::Part& part : parts_.parts()) numbers += part.plan.positions;
  return numbers;
}

bool StepLoss::weighs_rows() const {
  if (parts_.empty()) return options_.loss.has_ignore_class();
  return std::any_of(parts_.parts().begin(), parts_.parts().end(),
                     [](const OutputsLoss::Part& part) { return part.output.with.loss().has_ignore_class(); });
}

absl::Status StepLoss::Check(const Batch& batch) const {
  const absl::Span<const float> labels = batch.labels.floats();
  if (!parts_.empty()) return parts_.CheckLabels(batch.examples, labels, batch.label_size);
  if (masked()) {  // labels of masked steps may be anything; here their number counts
    if (labels.size() < static_cast<size_t>(batch.examples * batch.label_size))
      return absl::InvalidArgumentError("batch.labels: fewer than its examples have; pass all of them");
    return CheckLabels(options_.loss, plan_, 0, outputs_, {}, batch.label_size);
  }
  return CheckLabels(options_.loss, plan_, batch.examples, outputs_, labels, batch.label_size);
}

std::vector<float> StepLoss::RowWeightsOf(const Batch& batch) const {
  const absl::Span<const float> labels = batch.labels.floats();
  if (!parts_.empty()) return parts_.RowWeightsOf(batch.examples, labels, batch.label_size);
  if (masked()) return WeightsBeforeMask(options_.loss, plan_, batch);
  return RowWeights(options_.loss, plan_, batch.examples, labels, batch.label_size);
}

absl::StatusOr<BatchSums> StepLoss::Sums(const Batch& batch, const double* results, absl::Span<const float> outputs,
                                         absl::Span<const float> step_mask) const {
  if (!parts_.empty()) return SumsOfParts(batch, results, outputs);
  BatchSums sums{.examples = static_cast<uint64_t>(batch.examples), .loss = results[0]};
  if (!host_metrics_) {
    sums.metrics.assign(results + 1, results + 1 + options_.metrics.size());
    return sums;
  }
  const LabeledOutputs<float> labeled{.examples = batch.examples,
                                      .outputs = outputs,
                                      .labels = batch.labels.floats(),
                                      .label_size = batch.label_size,
                                      .step_mask = step_mask};
  if (!masked()) {
    CAIRN_RETURN_IF_ERROR(MetricsOf(options_.loss, plan_, options_.metrics, labeled, &sums));
    return sums;
  }
  BatchSums counted;  // only now it is known which labels and outputs count
  CAIRN_RETURN_IF_ERROR(LossAndMetrics<float>(options_.loss, plan_, options_.metrics, labeled, {}, &counted));
  sums.metrics = std::move(counted.metrics);
  return sums;
}

absl::StatusOr<BatchSums> StepLoss::SumsOfParts(const Batch& batch, const double* results,
                                                absl::Span<const float> outputs) const {
  BatchSums sums{.examples = static_cast<uint64_t>(batch.examples), .loss = results[0]};
  const double* next = results + 1;
  std::vector<double> metrics;
  for (const OutputsLoss::Part& part : parts_.parts()) {
    sums.loss += static_cast<double>(part.weight) * *next;
    sums.metrics.push_back(*next++);
    if (host_metrics_) continue;
    metrics.insert(metrics.end(), next, next + part.metrics.size());
    next += part.metrics.size();
  }
  if (host_metrics_) {
    CAIRN_ASSIGN_OR_RETURN(metrics,
                           parts_.MetricsOfParts(batch.examples, outputs, batch.labels.floats(), batch.label_size));
  }
  sums.metrics.insert(sums.metrics.end(), metrics.begin(), metrics.end());
  return sums;
}

}  // namespace cairn::cudnn
