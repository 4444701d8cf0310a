#include "worker/train/penalized_program.h"

#include <utility>
#include <vector>

#include "common/model/penalty.h"

namespace cairn {
namespace {

// The penalty of each range, taken when its values are there.
class Penalties {
 public:
  explicit Penalties(std::vector<PenaltyRange> ranges)
      : ranges_(std::move(ranges)), taken_(ranges_.size()), penalties_(ranges_.size()) {}

  void Begin(absl::Span<const float> values) {
    values_ = values;
    taken_.assign(ranges_.size(), false);
  }
  void Take(int64_t begin, int64_t end) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      if (taken_[i] || ranges_[i].begin < begin || ranges_[i].end > end) continue;
      penalties_[i] = PenaltyOf(ranges_[i], values_);
      taken_[i] = true;
    }
  }
  double Sum() const {
    double sum = 0;
    for (const double penalty : penalties_) sum += penalty;
    return sum;
  }

 private:
  const std::vector<PenaltyRange> ranges_;
  absl::Span<const float> values_;
  std::vector<bool> taken_;
  std::vector<double> penalties_;
};

// A forward pass asks for every layer's variables.
class TakingSource : public WeightSource {
 public:
  TakingSource(WeightSource& source, Penalties& penalties) : source_(source), penalties_(penalties) {}
  void Prefetch(int64_t begin, int64_t end) override { source_.Prefetch(begin, end); }
  absl::Status Acquire(int64_t begin, int64_t end) override {
    CAIRN_RETURN_IF_ERROR(source_.Acquire(begin, end));
    penalties_.Take(begin, end);
    return absl::OkStatus();
  }
  void Release(int64_t begin, int64_t end) override { source_.Release(begin, end); }

 private:
  WeightSource& source_;
  Penalties& penalties_;
};

class PenalizedProgram : public Program {
 public:
  PenalizedProgram(std::unique_ptr<Program> program, std::vector<PenaltyRange> ranges)
      : program_(std::move(program)), penalties_(std::move(ranges)) {}

  absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                      absl::Span<float> gradients, const GradientReady& ready) override {
    Begin(values);
    return Penalized(program_->TrainStep(batch, info, values, gradients, ready));
  }
  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float> values) override {
    Begin(values);
    return Penalized(program_->Evaluate(batch, values));
  }
  absl::StatusOr<Buffer> Predict(const Batch& batch, absl::Span<const float> values) override {
    penalties_.Begin(values);
    return program_->Predict(batch, values);
  }
  absl::StatusOr<BatchSums> TrainJoined(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                        const std::shared_ptr<GradientJoin>& join, uint32_t leaf,
                                        const GradientReady& ready) override {
    Begin(values);
    return Penalized(program_->TrainJoined(batch, info, values, join, leaf, ready));
  }
  void Prefetch(const Batch& next) override { program_->Prefetch(next); }
  absl::Status UseWeightSource(WeightSource* source) override {
    source_ = source == nullptr ? nullptr : std::make_unique<TakingSource>(*source, penalties_);
    return program_->UseWeightSource(source_.get());
  }
  uint64_t memory_bytes() const override { return program_->memory_bytes(); }

 private:
  void Begin(absl::Span<const float> values) {
    penalties_.Begin(values);
    if (source_ == nullptr) penalties_.Take(0, static_cast<int64_t>(values.size()));
  }
  absl::StatusOr<BatchSums> Penalized(absl::StatusOr<BatchSums> sums) const {
    if (sums.ok()) sums->loss += static_cast<double>(sums->examples) * penalties_.Sum();
    return sums;
  }

  std::unique_ptr<WeightSource> source_;  // outlives the program's use of it
  std::unique_ptr<Program> program_;
  Penalties penalties_;
};

}  // namespace

std::unique_ptr<Program> WithPenalty(std::unique_ptr<Program> program, const Graph& graph) {
  std::vector<PenaltyRange> ranges = PenaltyRangesOf(graph, 0, graph.space_size());
  if (ranges.empty()) return program;
  return std::make_unique<PenalizedProgram>(std::move(program), std::move(ranges));
}

}  // namespace cairn
