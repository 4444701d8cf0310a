#include "worker/backend/cudnn/watched.h"

#include <algorithm>
#include <utility>

namespace cairn::cudnn {
namespace {

class WatchedProgram : public Program {
 public:
  WatchedProgram(std::unique_ptr<Program> program, std::shared_ptr<DeviceHealth> health)
      : health_(std::move(health)), program_(std::move(program)) {}

  absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                      absl::Span<float> gradients, const GradientReady& ready) override {
    return Call([&] { return program_->TrainStep(batch, info, values, gradients, ready); });
  }
  absl::StatusOr<BatchSums> TrainJoined(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                        const std::shared_ptr<GradientJoin>& join, uint32_t leaf,
                                        const GradientReady& ready) override {
    return Call([&] { return program_->TrainJoined(batch, info, values, join, leaf, ready); });
  }
  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float> values) override {
    return Call([&] { return program_->Evaluate(batch, values); });
  }
  absl::StatusOr<Buffer> Predict(const Batch& batch, absl::Span<const float> values) override {
    return Call([&] { return program_->Predict(batch, values); });
  }
  void Prefetch(const Batch& next) override {
    if (health_->status().ok()) program_->Prefetch(next);
  }
  absl::Status UseWeightSource(WeightSource* source) override { return program_->UseWeightSource(source); }
  uint64_t memory_bytes() const override { return program_->memory_bytes(); }

 private:
  template <typename Fn>
  auto Call(Fn fn) -> decltype(fn()) {
    CAIRN_RETURN_IF_ERROR(health_->status());
    auto result = fn();
    if (!result.ok()) return health_->Note(result.status());
    return result;
  }

  const std::shared_ptr<DeviceHealth> health_;
  const std::unique_ptr<Program> program_;
};

}  // namespace

absl::Duration StepPatience(bool first, absl::Duration slowest) {
  if (first || slowest <= absl::ZeroDuration()) return kPatience;
  return std::clamp(kPatienceFactor * slowest, kPatienceMin, kPatience);
}

std::unique_ptr<Program> Watched(std::unique_ptr<Program> program, std::shared_ptr<DeviceHealth> health) {
  return std::make_unique<WatchedProgram>(std::move(program), std::move(health));
}

}  // namespace cairn::cudnn
