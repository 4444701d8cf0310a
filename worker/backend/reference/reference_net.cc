#include "worker/backend/reference/reference_net.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/backend/dropout.h"

namespace cairn {

using reference::Geometry;

ReferenceNet::ReferenceNet(std::shared_ptr<const Graph> graph, const v1::Loss& loss, std::vector<v1::Metric> metrics,
                           absl::Span<const v1::ClassWeight> class_weights)
    : graph_(std::move(graph)),
      loss_(loss),
      metrics_(std::move(metrics)),
      plan_(PlanLoss(*graph_, loss_, class_weights)),
      nodes_(graph_->nodes().size()) {}

absl::Status ReferenceNet::CheckArguments(const Batch& batch, size_t values, size_t gradients) const {
  const size_t space = static_cast<size_t>(graph_->space_size());
  if (values != space || (gradients != 0 && gradients != space)) {
    return absl::InvalidArgumentError("values and gradients must be the whole parameter space");
  }
  const int64_t inputs = batch.examples * NumElements(graph_->input_shape());
  if (batch.examples < 1 || static_cast<int64_t>(batch.inputs.floats().size()) < inputs) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.examples, " examples with ",
                                                   batch.inputs.floats().size(), " numbers; the model needs ", inputs));
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchSums> ReferenceNet::TrainStep(const Batch& batch, const StepInfo& info,
                                                  absl::Span<const double> values, absl::Span<double> gradients) {
  CAIRN_RETURN_IF_ERROR(CheckArguments(batch, values.size(), gradients.size()));
  Forward(batch, &info, values);
  Activations& last = nodes_.back();
  last.gradient.assign(last.output.size(), 0.0);
  CAIRN_ASSIGN_OR_RETURN(BatchSums sums, Score(batch, absl::MakeSpan(last.gradient)));
  if (!gradients.empty()) Backward(values, gradients);
  return sums;
}

absl::StatusOr<BatchSums> ReferenceNet::Evaluate(const Batch& batch, absl::Span<const double> values) {
  CAIRN_RETURN_IF_ERROR(CheckArguments(batch, values.size(), 0));
  Forward(batch, nullptr, values);
  return Score(batch, {});
}

absl::StatusOr<std::vector<double>> ReferenceNet::Predict(const Batch& batch, absl::Span<const double> values) {
  CAIRN_RETURN_IF_ERROR(CheckArguments(batch, values.size(), 0));
  Forward(batch, nullptr, values);
  return nodes_.back().output;
}

uint64_t ReferenceNet::memory_bytes() const {
  uint64_t numbers = 0;
  for (const Activations& a : nodes_) numbers += a.before.size() + a.output.size() + a.gradient.size();
  return numbers * sizeof(double);
}

absl::StatusOr<BatchSums> ReferenceNet::Score(const Batch& batch, absl::Span<double> gradient) {
  const Activations& last = nodes_.back();
  BatchSums sums;
  CAIRN_RETURN_IF_ERROR(LossAndMetrics<double>(loss_, plan_, metrics_, batch.examples,
                                               plan_.fused ? last.before : last.output, batch.labels.floats(),
                                               batch.label_size, gradient, &sums));
  return sums;
}

Geometry ReferenceNet::GeometryOf(const Node& node) const {
  return {examples_, graph_->nodes()[node.inputs[0]].output, node.output, node.window};
}

template <typename Number>
absl::Span<Number> ReferenceNet::VariableOf(const Node& node, const char* name, absl::Span<Number> space) const {
  for (int v : node.variables) {
    const Variable& variable = graph_->variables()[v];
    if (absl::EndsWith(variable.name, absl::StrCat("/", name))) return space.subspan(variable.offset, variable.size);
  }
  return {};
}

// ---- forward ----

void ReferenceNet::Forward(const Batch& batch, const StepInfo* training, absl::Span<const double> values) {
  examples_ = batch.examples;
  const absl::Span<const float> inputs = batch.inputs.floats().first(examples_ * NumElements(graph_->input_shape()));
  nodes_[0].output.assign(inputs.begin(), inputs.end());
  for (size_t id = 1; id < nodes_.size(); ++id) {
    const Node& node = graph_->nodes()[id];
    Activations& here = nodes_[id];
    here.before.assign(examples_ * NumElements(node.output), 0.0);
    ForwardNode(node, training, values);
    here.output.assign(here.before.size(), 0.0);
    reference::Activate(node.activation, node.negative_slope, node.output.back(), here.before,
                        absl::MakeSpan(here.output));
  }
}

// Into `before`: the node without its activation.
void ReferenceNet::ForwardNode(const Node& node, const StepInfo* training, absl::Span<const double> values) {
  const Geometry g = GeometryOf(node);
  const std::vector<double>& x = nodes_[node.inputs[0]].output;
  Activations& here = nodes_[node.id];
  const absl::Span<double> y = absl::MakeSpan(here.before);
  const auto variable = [&](const char* name) { return VariableOf(node, name, values); };
  switch (node.kind) {
    case LayerKind::kInput:
    case LayerKind::kFlatten:
    case LayerKind::kActivation:
      std::copy(x.begin(), x.end(), y.begin());
      break;
    case LayerKind::kRescaling: {
      const v1::Rescaling& r = node.layer.rescaling();
      std::transform(x.begin(), x.end(), y.begin(), [&](double v) { return v * r.scale() + r.offset(); });
      break;
    }
    case LayerKind::kConv2D:
      reference::Conv2D(g, x, variable("kernel"), variable("bias"), y);
      break;
    case LayerKind::kDepthwiseConv2D:
      reference::DepthwiseConv2D(g, x, variable("kernel"), variable("bias"), y);
      break;
    case LayerKind::kBatchNormalization: {
      if (training != nullptr) here.statistics = reference::Statistics(g.input.back(), x);
      const absl::Span<const double> mean = training != nullptr ? here.statistics.mean : variable("moving_mean");
      const absl::Span<const double> variance =
          training != nullptr ? here.statistics.variance : variable("moving_variance");
      reference::BatchNormalization(x, mean, variance, node.layer.batch_normalization().epsilon(), variable("gamma"),
                                    variable("beta"), y);
      break;
    }
    case LayerKind::kMaxPooling2D:
      reference::MaxPooling2D(g, x, y);
      break;
    case LayerKind::kAveragePooling2D:
      reference::AveragePooling2D(g, x, y);
      break;
    case LayerKind::kGlobalAveragePooling2D:
      reference::GlobalAveragePooling2D(g, x, y);
      break;
    case LayerKind::kAdd:
      for (int input : node.inputs) {
        for (size_t i = 0; i < y.size(); ++i) y[i] += nodes_[input].output[i];
      }
      break;
    case LayerKind::kConcatenate: {
      int64_t place = 0;  // of the input's first channel
      for (int input : node.inputs) {
        const std::vector<double>& from = nodes_[input].output;
        const int64_t channels = graph_->nodes()[input].output.back();
        for (size_t i = 0; i < from.size(); ++i) {
          y[i / channels * node.output.back() + place + i % channels] = from[i];
        }
        place += channels;
      }
      break;
    }
    case LayerKind::kDense:
      reference::Dense(g.input.back(), g.output.back(), x, variable("kernel"), variable("bias"), y);
      break;
    case LayerKind::kDropout: {
      here.mask.assign(y.size(), 1.0f);
      if (training != nullptr) {
        DropoutMask(*training, node.id, node.layer.dropout().rate()).Fill(0, absl::MakeSpan(here.mask));
      }
      for (size_t i = 0; i < y.size(); ++i) y[i] = x[i] * here.mask[i];
      break;
    }
    case LayerKind::kZeroPadding2D:
      reference::ZeroPadding2D(g, x, y);
      break;
    default:
      CAIRN_CHECK(false, "a layer kind without a formula");
  }
}

// ---- backward ----

void ReferenceNet::Backward(absl::Span<const double> values, absl::Span<double> gradients) {
  std::fill(gradients.begin(), gradients.end(), 0.0);
  for (size_t id = 0; id + 1 < nodes_.size(); ++id) nodes_[id].gradient.assign(nodes_[id].output.size(), 0.0);
  for (size_t id = nodes_.size(); id-- > 1;) {
    const Node& node = graph_->nodes()[id];
    const Activations& here = nodes_[id];
    std::vector<double> before = here.gradient;
    if (!(plan_.fused && id + 1 == nodes_.size())) {
      reference::ActivateBackward(node.activation, node.negative_slope, node.output.back(), here.before, here.output,
                                  here.gradient, absl::MakeSpan(before));
    }
    BackwardNode(node, before, values, gradients);
  }
}

// dy: with regard to `before`. Adds to the gradients of the node's inputs and variables.
void ReferenceNet::BackwardNode(const Node& node, absl::Span<const double> dy, absl::Span<const double> values,
                                absl::Span<double> gradients) {
  const Geometry g = GeometryOf(node);
  const std::vector<double>& x = nodes_[node.inputs[0]].output;
  const absl::Span<double> dx = absl::MakeSpan(nodes_[node.inputs[0]].gradient);
  const auto variable = [&](const char* name) { return VariableOf(node, name, values); };
  const auto gradient = [&](const char* name) { return VariableOf(node, name, gradients); };
  switch (node.kind) {
    case LayerKind::kInput:
    case LayerKind::kFlatten:
    case LayerKind::kActivation:
      for (size_t i = 0; i < dy.size(); ++i) dx[i] += dy[i];
      break;
    case LayerKind::kRescaling:
      for (size_t i = 0; i < dy.size(); ++i) dx[i] += dy[i] * node.layer.rescaling().scale();
      break;
    case LayerKind::kConv2D:
      reference::Conv2DBackward(g, x, variable("kernel"), dy, dx, gradient("kernel"), gradient("bias"));
      break;
    case LayerKind::kDepthwiseConv2D:
      reference::DepthwiseConv2DBackward(g, x, variable("kernel"), dy, dx, gradient("kernel"), gradient("bias"));
      break;
    case LayerKind::kBatchNormalization: {
      const reference::BatchStatistics& statistics = nodes_[node.id].statistics;
      reference::BatchNormalizationBackward(x, statistics, node.layer.batch_normalization().epsilon(),
                                            variable("gamma"), dy, dx, gradient("gamma"), gradient("beta"));
      const absl::Span<double> mean = gradient("moving_mean"), variance = gradient("moving_variance");
      for (size_t c = 0; c < mean.size(); ++c) {
        mean[c] = static_cast<double>(examples_) * statistics.mean[c];
        variance[c] = static_cast<double>(examples_) * statistics.variance[c];
      }
      break;
    }
    case LayerKind::kMaxPooling2D:
      reference::MaxPooling2DBackward(g, x, dy, dx);
      break;
    case LayerKind::kAveragePooling2D:
      reference::AveragePooling2DBackward(g, dy, dx);
      break;
    case LayerKind::kGlobalAveragePooling2D:
      reference::GlobalAveragePooling2DBackward(g, dy, dx);
      break;
    case LayerKind::kAdd:
    case LayerKind::kConcatenate:
      BackwardJoin(node, dy);
      break;
    case LayerKind::kDense:
      reference::DenseBackward(g.input.back(), g.output.back(), x, variable("kernel"), dy, dx, gradient("kernel"),
                               gradient("bias"));
      break;
    case LayerKind::kDropout:
      for (size_t i = 0; i < dy.size(); ++i) dx[i] += dy[i] * nodes_[node.id].mask[i];
      break;
    case LayerKind::kZeroPadding2D:
      reference::ZeroPadding2DBackward(g, dy, dx);
      break;
    default:
      CAIRN_CHECK(false, "a layer kind without a formula");
  }
}

void ReferenceNet::BackwardJoin(const Node& node, absl::Span<const double> dy) {
  int64_t place = 0;
  for (int input : node.inputs) {
    std::vector<double>& dx = nodes_[input].gradient;
    const int64_t channels = graph_->nodes()[input].output.back();
    for (size_t i = 0; i < dx.size(); ++i) {
      dx[i] += node.kind == LayerKind::kAdd ? dy[i] : dy[i / channels * node.output.back() + place + i % channels];
    }
    place += channels;
  }
}

}  // namespace cairn
