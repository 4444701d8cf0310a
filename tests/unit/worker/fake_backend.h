// A program and a backend that do nothing. A test overrides what it needs.
#pragma once

#include <memory>
#include <string>

#include "worker/backend/backend.h"

namespace cairn {

class IdleProgram : public Program {
 public:
  absl::StatusOr<BatchSums> TrainStep(const Batch&, const StepInfo&, absl::Span<const float>, absl::Span<float>,
                                      const GradientReady&) override {
    return BatchSums();
  }
  absl::StatusOr<BatchSums> Evaluate(const Batch&, absl::Span<const float>) override { return BatchSums(); }
  absl::StatusOr<Buffer> Predict(const Batch&, absl::Span<const float>) override { return Buffer(); }
  uint64_t memory_bytes() const override { return 0; }
};

class IdleBackend : public Backend {
 public:
  std::string name() const override { return "idle"; }
  std::string device() const override { return "cpu"; }
  std::string fingerprint() const override { return "none"; }
  absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph>, const ProgramOptions&) override {
    return std::make_unique<IdleProgram>();
  }
};

}  // namespace cairn
