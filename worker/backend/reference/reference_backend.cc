#include "worker/backend/reference/reference_backend.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/backend/layer_check.h"
#include "worker/backend/reference/reference_layer.h"
#include "worker/backend/reference/reference_net.h"

namespace cairn {
namespace {

class ReferenceProgram : public Program {
 public:
  ReferenceProgram(std::shared_ptr<const Graph> graph, const ProgramOptions& options)
      : graph_(graph),
        batch_max_(options.batch_max),
        net_(graph, options.loss, options.metrics, options.class_weights, options.outputs) {}

  absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                      absl::Span<float> gradients, const GradientReady& ready) override {
    CAIRN_RETURN_IF_ERROR(CheckBatch(batch));
    if (static_cast<int64_t>(gradients.size()) != graph_->space_size()) {
      return absl::InvalidArgumentError("gradients must be the whole parameter space");
    }
    gradients_.resize(gradients.size());
    CAIRN_ASSIGN_OR_RETURN(BatchSums sums, net_.TrainStep(batch, info, Widen(values), absl::MakeSpan(gradients_)));
    std::copy(gradients_.begin(), gradients_.end(), gradients.begin());
    if (ready) Announce(ready);
    return sums;
  }

  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float> values) override {
    CAIRN_RETURN_IF_ERROR(CheckBatch(batch));
    return net_.Evaluate(batch, Widen(values));
  }

  absl::StatusOr<Buffer> Predict(const Batch& batch, absl::Span<const float> values) override {
    CAIRN_RETURN_IF_ERROR(CheckBatch(batch));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<double> outputs, net_.Predict(batch, Widen(values)));
    Buffer buffer = Buffer::Allocate(outputs.size() * sizeof(float));
    std::copy(outputs.begin(), outputs.end(), buffer.mutable_floats().begin());
    return buffer;
  }

  uint64_t memory_bytes() const override {
    return net_.memory_bytes() + (values_.size() + gradients_.size()) * sizeof(double);
  }

 private:
  absl::Status CheckBatch(const Batch& batch) const {
    if (batch.examples >= 1 && batch.examples <= batch_max_) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch.examples, " examples; this program takes 1 .. ", batch_max_));
  }

  absl::Span<const double> Widen(absl::Span<const float> values) {
    values_.assign(values.begin(), values.end());
    return values_;
  }

  // The ranges of the layers' variables, from the last to the first, as a backend that overlaps would announce them.
  void Announce(const GradientReady& ready) const {
    int64_t end = graph_->space_size();
    for (size_t v = graph_->variables().size(); v-- > 0;) {
      ready(graph_->variables()[v].offset, end);
      end = graph_->variables()[v].offset;
    }
  }

  std::shared_ptr<const Graph> graph_;
  const int64_t batch_max_;
  ReferenceNet net_;
  std::vector<double> values_;
  std::vector<double> gradients_;
};

class ReferenceBackend : public Backend {
 public:
  std::string name() const override { return "reference"; }
  std::string device() const override { return "cpu: reference, float64"; }
  std::string fingerprint() const override { return "reference-1"; }
  absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph> graph,
                                                   const ProgramOptions& options) override {
    CAIRN_RETURN_IF_ERROR(
        CheckLayers(*graph, "reference", [](LayerKind kind) { return reference::FindLayer(kind) != nullptr; }));
    if (options.batch_max < 1) return absl::InvalidArgumentError("batch_max must be at least 1");
    return std::make_unique<ReferenceProgram>(std::move(graph), options);
  }
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace cairn
