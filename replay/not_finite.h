// NotFiniteFinder: which example and which layer the first number of a step comes from that is not finite.
//
// Called on one thread, while the pool computes nothing else. Examples are computed one by one; the outputs of layers
// as in an evaluation (without dropout, with the moving averages of batch normalizations).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/tensor/batch.h"
#include "replay/replay_run.h"

namespace cairn {

struct NotFinite {
  // In the order in which a step comes to them.
  enum class Kind { kInput, kLabel, kOutput, kLoss, kGradient, kVariable };
  Kind kind = Kind::kLoss;
  int64_t step = 0;
  std::string name;                // kOutput: of the layer; kGradient, kVariable: of the variable
  std::optional<int32_t> replica;  // nullopt: kVariable, after the update
  // The index of the example in the training split, from 0. nullopt: no single example has it.
  std::optional<int64_t> example;
  // Layers whose outputs could not be computed alone, each with the reason; one of them may be the first.
  std::vector<std::string> not_looked_at;
};

class NotFiniteFinder {
 public:
  NotFiniteFinder(const TrainingBatches& batches, ComputePool& pool) : batches_(batches), pool_(pool) {}

  // Of a replica that was computed. nullopt: its loss and its gradient are finite. In a job with a loss scale the
  // gradient is not looked at: the job leaves such a step out.
  absl::StatusOr<std::optional<NotFinite>> LookAt(const ReplayedReplica& replica);
  // Of the values after the update.
  std::optional<NotFinite> LookAt(const ReplayedStep& step) const;

 private:
  bool IsFinite(double loss, absl::Span<const float> gradient, float loss_scale) const;
  absl::StatusOr<std::optional<NotFinite>> LookAtExamples(const ReplayedReplica& replica, ProgramCache& programs);
  NotFinite Describe(const ReplayedReplica& replica, const Batch& examples, double loss,
                     absl::Span<const float> gradient);

  const TrainingBatches& batches_;
  ComputePool& pool_;
};

}  // namespace cairn
