#include "worker/train/spectral_program.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/model/spectral.h"

namespace cairn {
namespace {

class SpectralProgram : public Program {
 public:
  SpectralProgram(std::unique_ptr<Program> program, std::vector<SpectralRange> ranges)
      : program_(std::move(program)), ranges_(std::move(ranges)) {}

  absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                      absl::Span<float> gradients, const GradientReady& ready) override {
    return program_->TrainStep(batch, Exact(info), Normalized(values), gradients, ready);
  }
  absl::StatusOr<BatchSums> TrainJoined(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                        const std::shared_ptr<GradientJoin>& join, uint32_t leaf,
                                        const GradientReady& ready) override {
    return program_->TrainJoined(batch, Exact(info), Normalized(values), join, leaf, ready);
  }
  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float> values) override {
    return program_->Evaluate(batch, values);
  }
  absl::StatusOr<Buffer> Predict(const Batch& batch, absl::Span<const float> values) override {
    return program_->Predict(batch, values);
  }
  void Prefetch(const Batch& next) override { program_->Prefetch(next); }
  // CheckSpectral refuses the strategy that asks for it.
  absl::Status UseWeightSource(WeightSource* source) override {
    if (source == nullptr) return program_->UseWeightSource(nullptr);
    return absl::UnimplementedError("spectral normalization needs all values at once; use MULTI_WORKER_MIRRORED");
  }
  uint64_t memory_bytes() const override { return program_->memory_bytes() + values_.size() * sizeof(float); }

 private:
  absl::Span<const float> Normalized(absl::Span<const float> values) {
    values_.assign(values.begin(), values.end());
    NormalizeKernels(ranges_, absl::MakeSpan(values_));
    return values_;
  }
  // The quotients are exact in no other type than theirs.
  static StepInfo Exact(StepInfo info) {
    info.values = v1::FLOAT32;
    return info;
  }

  const std::unique_ptr<Program> program_;
  const std::vector<SpectralRange> ranges_;
  std::vector<float> values_;
};

}  // namespace

std::unique_ptr<Program> WithSpectralNormalization(std::unique_ptr<Program> program, const Graph& graph) {
  std::vector<SpectralRange> ranges = SpectralRangesOf(graph, 0, graph.space_size());
  if (ranges.empty()) return program;
  return std::make_unique<SpectralProgram>(std::move(program), std::move(ranges));
}

}  // namespace cairn
