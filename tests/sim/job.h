// The simulated job: a tiny model, and gradients that are a cheap pure function, so that the exact result is known.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "common/base/ids.h"
#include "common/model/graph.h"
#include "common/model/step_plan.h"
#include "tests/sim/rng.h"

namespace cairn::sim {

inline constexpr int64_t kInputs = 5;
inline constexpr int64_t kValidationExamples = 11;

// A job of a random shape (replicas, partitions, steps, mode, durability). Asynchronous jobs start at zero, so that their sums are exact.
v1::JobSpec RandomJob(Rng& rng, int ps);
v1::DataInfo DataOf(int64_t train_examples);

// The gradient (sum over `examples`) of a replica at a step.
//   synchronous: depends on the values, the step and the replica with full float32 noise: any other order of additions, any
//   stale value, any repeated update changes bits.
//   asynchronous: -examples * (replica + 1), so that with learning rate 1 every applied push adds exactly replica + 1.
void FillGradient(const v1::JobSpec& spec, int64_t step, ReplicaId replica, int64_t examples, absl::Span<const float> values,
                  absl::Span<float> gradient);

// What the values have to be, written independently of the code under test: naive tree, naive optimizer.
class Reference {
 public:
  Reference(const v1::JobSpec& spec, const Graph& graph, const StepPlan& plan);

  // Synchronous: of the whole parameter space after so many steps.
  const std::vector<float>& AfterSteps(uint64_t steps) const { return trajectory_[steps]; }
  uint64_t steps() const { return trajectory_.size() - 1; }
  // Asynchronous: with so many updates of each replica. All variables have the same value.
  float Sum(absl::Span<const uint64_t> sequences) const;
  bool IsVariable(int64_t number) const { return is_variable_[static_cast<size_t>(number)]; }

 private:
  std::vector<bool> is_variable_;
  std::vector<std::vector<float>> trajectory_;
  std::vector<std::vector<float>> counted_;  // by replica and sequence: what it has added
};

}  // namespace cairn::sim
